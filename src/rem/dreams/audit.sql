-- Checks of `rem dreaming audit` for one owner. Every query of a check returns the rows that are wrong.

-- name: read_only
-- Let the rest of the transaction read alone.
SET TRANSACTION READ ONLY

-- name: exact_duplicates
-- Moments with exactly the summary of an older one.
SELECT d.id, d.key, d.older AS other FROM (
  SELECT m.id, m.key, m.summary,
    first_value(m.key) OVER (PARTITION BY lower(regexp_replace(m.summary, '\s+', ' ', 'g')) ORDER BY m.created_at, m.id) AS older,
    row_number() OVER (PARTITION BY lower(regexp_replace(m.summary, '\s+', ' ', 'g')) ORDER BY m.created_at, m.id) AS position
  FROM rem.moments m
  WHERE m.tenant_id = $1 AND m.user_id IS NOT DISTINCT FROM $2 AND m.deleted_at IS NULL AND m.origin LIKE 'dream:%'
    AND m.summary <> '') d
WHERE d.position > 1 ORDER BY d.key LIMIT $3

-- name: latest_summaries
-- Summaries of the owner's moments, latest first.
SELECT m.id, m.key, m.summary FROM rem.moments m
WHERE m.tenant_id = $1 AND m.user_id IS NOT DISTINCT FROM $2 AND m.deleted_at IS NULL AND m.origin LIKE 'dream:%'
  AND m.summary ~ '\S'
ORDER BY m.created_at DESC, m.id LIMIT $3

-- name: without_source
-- Live statements without source, or with a source that is gone.
SELECT s.id, s.name AS key, s.entity_type || '/' || s.entity_id AS other FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.state = 'live' AND (
  NOT EXISTS (SELECT FROM rem.statement_sources x WHERE (x.tenant_id, x.statement_id) = (s.tenant_id, s.id))
  OR EXISTS (SELECT FROM rem.statement_sources x WHERE (x.tenant_id, x.statement_id) = (s.tenant_id, s.id)
             AND NOT rem.rem_is_live(x.tenant_id, x.source_type, x.source_id)))
ORDER BY s.name LIMIT $3

-- name: orphan_rows
-- Derived rows without a statement.
SELECT r.id, r.key, NULL::text AS other FROM rem.{table} r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL AND r.origin LIKE 'dream:%'
  AND NOT EXISTS (SELECT FROM rem.statements s WHERE (s.tenant_id, s.entity_id, s.kind, s.state) = (r.tenant_id, r.id, 'row', 'live'))
ORDER BY r.key LIMIT $3

-- name: orphan_edges
-- Derived edges without a statement.
SELECT e.src_id AS id, e.src_key AS key, e.dst_key AS other, e.src_type FROM rem.edges e
WHERE e.tenant_id = $1 AND e.user_id IS NOT DISTINCT FROM $2 AND e.origin LIKE 'dream:%'
  AND NOT EXISTS (
    SELECT FROM rem.statements s
    WHERE (s.tenant_id, s.entity_id, s.kind, s.state) = (e.tenant_id, e.src_id, 'edge', 'live')
      AND s.value ->> 'rel_type' = e.rel_type AND rem.rem_key(s.value ->> 'dst') = e.dst_key)
ORDER BY e.src_key, e.dst_key LIMIT $3

-- name: dangling_edges
-- Derived edges to a key that no row has which the owner sees.
SELECT e.src_id AS id, e.src_key AS key, e.dst_key AS other, e.src_type, e.rel_type FROM rem.edges e
WHERE e.tenant_id = $1 AND e.user_id IS NOT DISTINCT FROM $2 AND e.origin LIKE 'dream:%'
  AND NOT EXISTS (SELECT FROM rem.rem_resolve_label($1, $2, e.dst_key, e.dst_type))
ORDER BY e.src_key, e.dst_key LIMIT $3

-- name: stale_profiles
-- Profiles that are older than a moment which was stored more than a week ago.
SELECT u.id, u.key, NULL::text AS other FROM rem.users u
WHERE u.tenant_id = $1 AND u.user_id IS NOT DISTINCT FROM $2 AND u.deleted_at IS NULL
  AND EXISTS (SELECT FROM rem.statements s WHERE (s.tenant_id, s.entity_id, s.dream, s.state) = (u.tenant_id, u.id, 'profiles', 'live'))
  AND EXISTS (
    SELECT FROM rem.moments m
    WHERE m.tenant_id = u.tenant_id AND m.user_id = u.user_id AND m.deleted_at IS NULL
      AND m.created_at < now() - interval '7 days'
      AND m.created_at > (SELECT max(r.started_at) FROM rem.dream_runs r
                          WHERE r.tenant_id = u.tenant_id AND r.user_id = u.user_id AND 'profiles' = ANY (r.dreams)))
LIMIT $3

-- name: end_edge
UPDATE rem.statements s SET state = 'ended', ended_at = clock_timestamp(), ended_by = $3
WHERE s.tenant_id = $1 AND s.entity_id = $2 AND s.kind = 'edge' AND s.state = 'live' AND s.value ->> 'rel_type' = $4
  AND rem.rem_key(s.value ->> 'dst') = $5

-- name: end_row
UPDATE rem.statements s SET state = 'ended', ended_at = clock_timestamp(), ended_by = $3
WHERE s.tenant_id = $1 AND s.entity_id = $2 AND s.kind = 'row' AND s.state = 'live'

-- name: delete_statement
DELETE FROM rem.statements s WHERE s.tenant_id = $1 AND s.id = $2 RETURNING s.entity_type, s.entity_id, s.kind, s.name,
  ARRAY(SELECT jsonb_object_keys(CASE s.kind WHEN 'row' THEN s.value ELSE '{}' END)) AS filled

-- name: delete_orphan
DELETE FROM rem.{table} r WHERE r.tenant_id = $1 AND r.id = $2 AND r.origin LIKE 'dream:%'
  AND NOT EXISTS (SELECT FROM rem.statements s WHERE (s.tenant_id, s.entity_id, s.kind, s.state) = (r.tenant_id, r.id, 'row', 'live'))
