-- name: count
-- Count a request of the caller ($1, $2) in its period of $3 seconds, and return the requests and the rest of the period. A period
-- begins with the first request after the end of the last one.
INSERT INTO rem.rate_limits AS r (tenant_id, user_id, requests, ends_at)
VALUES ($1, $2, 1, now() + make_interval(secs => $3))
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET requests = CASE WHEN r.ends_at > now() THEN r.requests + 1 ELSE 1 END,
    ends_at = CASE WHEN r.ends_at > now() THEN least(r.ends_at, excluded.ends_at) ELSE excluded.ends_at END
RETURNING requests, extract(epoch FROM ends_at - now())::float8 AS seconds

-- name: delete_ended
-- Delete the rows of ended periods that no other transaction writes.
DELETE FROM rem.rate_limits r USING (
  SELECT l.tenant_id, l.user_id FROM rem.rate_limits l WHERE l.ends_at <= now() FOR UPDATE SKIP LOCKED) ended
WHERE (r.tenant_id, r.user_id) = (ended.tenant_id, ended.user_id)
