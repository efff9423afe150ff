-- Accounts, logins, tokens and API keys, in a schema of their own that the role of the SQL verb cannot enter. Secrets are
-- stored as SHA-256 hashes: they have 256 random bits, so a slow hash would protect them no better.

DO $$ BEGIN
  IF to_regnamespace('rem_auth') IS NULL THEN
    CREATE SCHEMA rem_auth;
  END IF;
END $$;

-- People who logged in, or whom an administrator added. The role and tier here count; those in rem.users are copies that
-- people may read and change.
CREATE TABLE rem_auth.accounts (
  user_id text PRIMARY KEY CHECK (length(user_id) BETWEEN 1 AND 255),
  tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 255),
  email text NOT NULL CHECK (octet_length(email) BETWEEN 3 AND 1024),
  name text,
  role text NOT NULL DEFAULT 'user' CHECK (role IN ('admin', 'user', 'service')),
  tier text NOT NULL DEFAULT 'free' CHECK (tier IN ('anonymous', 'free', 'basic', 'pro')),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  last_login_at timestamptz,
  disabled_at timestamptz
);
CREATE INDEX accounts_tenant ON rem_auth.accounts (tenant_id, email);

-- One row for each time that a person logged in: in a browser (cookie), for a program (token), for an MCP client (mcp).
CREATE TABLE rem_auth.logins (
  id uuid PRIMARY KEY,
  tenant_id text NOT NULL,
  user_id text NOT NULL REFERENCES rem_auth.accounts ON DELETE CASCADE,
  kind text NOT NULL CHECK (kind IN ('cookie', 'token', 'mcp')),
  provider text,
  client_id text,
  scopes text[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  revoked_at timestamptz,
  revoked_because text
);
CREATE INDEX logins_user ON rem_auth.logins (user_id, created_at);
CREATE INDEX logins_expiry ON rem_auth.logins (expires_at);

-- Used ones stay until they expire, so that a second use is noticed.
CREATE TABLE rem_auth.refresh_tokens (
  token_hash bytea PRIMARY KEY CHECK (octet_length(token_hash) = 32),
  login_id uuid NOT NULL REFERENCES rem_auth.logins ON DELETE CASCADE,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  used_at timestamptz
);
CREATE INDEX refresh_tokens_login ON rem_auth.refresh_tokens (login_id);

-- A key without a role has the role of its account. The prefix is the part of a key that people see in lists.
CREATE TABLE rem_auth.api_keys (
  id uuid PRIMARY KEY,
  tenant_id text NOT NULL CHECK (octet_length(tenant_id) BETWEEN 1 AND 255),
  user_id text,
  email text,
  name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  prefix text NOT NULL UNIQUE,
  key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32),
  role text CHECK (role IN ('admin', 'user', 'service')),
  tier text CHECK (tier IN ('anonymous', 'free', 'basic', 'pro')),
  scopes text[] NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz,
  CONSTRAINT key_has_user CHECK (user_id IS NOT NULL OR role = 'service')
);
CREATE INDEX api_keys_owner ON rem_auth.api_keys (tenant_id, user_id);

-- Programs that registered themselves to let people log in for them, as MCP clients do.
CREATE TABLE rem_auth.oauth_clients (
  id text PRIMARY KEY,
  registration jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- What a person allowed a client, until the client fetches its tokens.
CREATE TABLE rem_auth.oauth_codes (
  code_hash bytea PRIMARY KEY CHECK (octet_length(code_hash) = 32),
  tenant_id text NOT NULL,
  user_id text NOT NULL REFERENCES rem_auth.accounts ON DELETE CASCADE,
  client_id text NOT NULL REFERENCES rem_auth.oauth_clients ON DELETE CASCADE,
  request jsonb NOT NULL,
  expires_at timestamptz NOT NULL,
  login_id uuid
);

-- The secret of this database. Ids that follow from a name are made with it, so that nobody else can compute them.

CREATE TABLE installation (
  id_key bytea NOT NULL,
  -- The secret for the keyed hashes of words and texts, encrypted with a key of the settings; NULL if nothing is encrypted.
  index_key text
);
REVOKE ALL ON installation FROM PUBLIC;

-- 610 random bits: pgcrypto need not be there.
INSERT INTO installation (id_key)
SELECT sha512(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8')) FROM generate_series(1, 5);

-- One row for each caller whose requests are limited, with the requests of its current period. A crash of PostgreSQL empties an
-- UNLOGGED table, and everyone begins a new period. The user is an id, or the address of callers without a login.
CREATE UNLOGGED TABLE rate_limits (
  tenant_id text NOT NULL,
  user_id text NOT NULL,
  requests bigint NOT NULL,
  ends_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, user_id)
) WITH (fillfactor = 50);
