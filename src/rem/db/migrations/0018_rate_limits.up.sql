-- One row for each caller whose requests are limited, with the requests of its current period. A crash of PostgreSQL empties an
-- UNLOGGED table, and everyone begins a new period. The user is an id, or the address of callers without a login.
CREATE UNLOGGED TABLE rate_limits (
  tenant_id text NOT NULL,
  user_id text NOT NULL,
  requests bigint NOT NULL,
  ends_at timestamptz NOT NULL,
  PRIMARY KEY (tenant_id, user_id)
) WITH (fillfactor = 50);
