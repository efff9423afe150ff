DROP TABLE rem_auth.oauth_codes, rem_auth.oauth_clients, rem_auth.api_keys, rem_auth.refresh_tokens, rem_auth.logins,
  rem_auth.accounts;
-- One that an administrator made is the administrator's.
DO $$ BEGIN
  IF pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'rem_auth'), 'USAGE') THEN
    DROP SCHEMA rem_auth;
  END IF;
END $$;
