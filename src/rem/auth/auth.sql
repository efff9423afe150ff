-- name: log_in
-- Create or update the account of a person who logged in: $1 user, $2 tenant, $3 e-mail, $4 name. An account keeps its tenant
-- and role. A disabled one stays so, and the caller checks that.
INSERT INTO rem_auth.accounts AS a (user_id, tenant_id, email, name, last_login_at)
VALUES ($1, $2, $3, $4, now())
ON CONFLICT (user_id) DO UPDATE
SET email = excluded.email, name = coalesce(excluded.name, a.name), last_login_at = now(), updated_at = now()
RETURNING *

-- name: save_account
-- Create or change an account: $1 user, $2 tenant, $3 e-mail, $4 name, $5 role, $6 tier; NULL keeps a value.
INSERT INTO rem_auth.accounts AS a (user_id, tenant_id, email, name, role, tier)
VALUES ($1, $2, $3, $4, coalesce($5, 'user'), coalesce($6, 'free'))
ON CONFLICT (user_id) DO UPDATE
SET name = coalesce($4, a.name), role = coalesce($5, a.role), tier = coalesce($6, a.tier), updated_at = now()
WHERE a.tenant_id = excluded.tenant_id
RETURNING *

-- name: get_account
SELECT * FROM rem_auth.accounts WHERE user_id = $1 AND tenant_id = $2

-- name: list_accounts
SELECT * FROM rem_auth.accounts WHERE tenant_id = $1 ORDER BY email, user_id LIMIT $2 OFFSET $3

-- name: set_disabled
UPDATE rem_auth.accounts
SET disabled_at = CASE WHEN $3::boolean THEN coalesce(disabled_at, now()) END, updated_at = now()
WHERE user_id = $1 AND tenant_id = $2
RETURNING *

-- name: create_login
INSERT INTO rem_auth.logins (id, tenant_id, user_id, kind, provider, client_id, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: login_identity
-- Return the caller of a login that is still valid.
SELECT l.id, l.kind, l.scopes, l.client_id, l.expires_at, a.user_id, a.tenant_id, a.email, a.name, a.role, a.tier
FROM rem_auth.logins l JOIN rem_auth.accounts a USING (user_id)
WHERE l.id = $1 AND l.revoked_at IS NULL AND l.expires_at > now() AND a.disabled_at IS NULL

-- name: is_login_valid
SELECT EXISTS (
    SELECT FROM rem_auth.logins l JOIN rem_auth.accounts a USING (user_id)
    WHERE l.id = $1 AND l.revoked_at IS NULL AND a.disabled_at IS NULL)

-- name: list_logins
SELECT id, kind, provider, client_id, scopes, created_at, expires_at FROM rem_auth.logins
WHERE user_id = $1 AND tenant_id = $2 AND revoked_at IS NULL AND expires_at > now()
ORDER BY created_at DESC LIMIT 200

-- name: revoke_login
UPDATE rem_auth.logins SET revoked_at = now(), revoked_because = $2 WHERE id = $1 AND revoked_at IS NULL RETURNING id

-- name: revoke_logins
UPDATE rem_auth.logins SET revoked_at = now(), revoked_because = $3
WHERE user_id = $1 AND tenant_id = $2 AND revoked_at IS NULL AND expires_at > now() RETURNING id

-- name: add_refresh_token
INSERT INTO rem_auth.refresh_tokens (token_hash, login_id, expires_at) VALUES ($1, $2, $3)

-- name: extend_login
UPDATE rem_auth.logins SET expires_at = $2 WHERE id = $1

-- name: lock_refresh_token
-- Return a refresh token, and let a second use of it wait until the first one is done.
SELECT r.login_id, r.expires_at <= now() AS is_expired, r.used_at IS NOT NULL AS is_used
FROM rem_auth.refresh_tokens r WHERE r.token_hash = $1 FOR UPDATE

-- name: peek_refresh_token
SELECT r.login_id, r.expires_at FROM rem_auth.refresh_tokens r WHERE r.token_hash = $1

-- name: use_refresh_token
UPDATE rem_auth.refresh_tokens SET used_at = now() WHERE token_hash = $1

-- name: purge
-- Delete what ended more than a day ago.
WITH codes AS (DELETE FROM rem_auth.oauth_codes WHERE expires_at < now() - interval '1 day'),
tokens AS (DELETE FROM rem_auth.refresh_tokens WHERE expires_at < now() - interval '1 day'),
clients AS (
  DELETE FROM rem_auth.oauth_clients c
  WHERE c.created_at < now() - interval '1 day'
    AND NOT EXISTS (SELECT FROM rem_auth.logins l WHERE l.client_id = c.id AND l.expires_at > now())
)
DELETE FROM rem_auth.logins WHERE expires_at < now() - interval '1 day'

-- name: add_key
INSERT INTO rem_auth.api_keys (id, tenant_id, user_id, email, name, prefix, key_hash, role, tier, scopes, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
RETURNING *

-- name: key_identity
-- Return the API key with a prefix, if it is valid. A role or tier that the key does not have comes from the account.
SELECT k.id, k.key_hash, k.tenant_id, k.user_id, coalesce(a.email, k.email) AS email, a.name, k.scopes, k.expires_at,
       coalesce(k.role, a.role, 'user') AS role, coalesce(k.tier, a.tier, 'free') AS tier,
       k.role IS NULL AND a.user_id IS NOT NULL AS has_role_of_account,
       k.last_used_at IS NULL OR k.last_used_at < now() - interval '1 minute' AS is_stale
FROM rem_auth.api_keys k LEFT JOIN rem_auth.accounts a ON a.user_id = k.user_id AND a.tenant_id = k.tenant_id
WHERE k.prefix = $1 AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now()) AND a.disabled_at IS NULL

-- name: is_key_valid
SELECT EXISTS (
    SELECT FROM rem_auth.api_keys k LEFT JOIN rem_auth.accounts a ON a.user_id = k.user_id AND a.tenant_id = k.tenant_id
    WHERE k.id = $1 AND k.revoked_at IS NULL AND a.disabled_at IS NULL)

-- name: touch_key
UPDATE rem_auth.api_keys SET last_used_at = now() WHERE id = $1

-- name: list_keys
-- Return keys, newest first: those of a user ($2), or of the whole tenant if $2 is NULL; of all tenants if $1 is NULL.
SELECT * FROM rem_auth.api_keys
WHERE ($1::text IS NULL OR tenant_id = $1) AND ($2::text IS NULL OR user_id = $2)
ORDER BY created_at DESC, id LIMIT 1000

-- name: revoke_key
-- Revoke a key by its id or prefix ($1): of a user ($3) and tenant ($2), if these are given.
UPDATE rem_auth.api_keys SET revoked_at = coalesce(revoked_at, now())
WHERE (id::text = $1 OR prefix = $1) AND ($2::text IS NULL OR tenant_id = $2) AND ($3::text IS NULL OR user_id = $3)
RETURNING *

-- name: add_client
INSERT INTO rem_auth.oauth_clients (id, registration) VALUES ($1, $2)

-- name: get_client
SELECT registration FROM rem_auth.oauth_clients WHERE id = $1

-- name: add_code
INSERT INTO rem_auth.oauth_codes (code_hash, tenant_id, user_id, client_id, request, expires_at)
VALUES ($1, $2, $3, $4, $5, $6)

-- name: get_code
SELECT user_id, tenant_id, client_id, request, expires_at, login_id FROM rem_auth.oauth_codes WHERE code_hash = $1

-- name: use_code
-- Take a code, once. The login that it led to is kept, so that it can be revoked if the code comes again.
UPDATE rem_auth.oauth_codes SET login_id = $2 WHERE code_hash = $1 AND login_id IS NULL AND expires_at > now()
RETURNING user_id, tenant_id
