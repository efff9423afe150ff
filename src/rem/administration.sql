-- name: users
-- Return the people of a tenant ($1): those with an account, and those who only own rows. $2 is one user, or NULL.
WITH owners AS (
  SELECT o.user_id, sum(o.sessions)::bigint AS sessions, sum(o.messages)::bigint AS messages, max(o.active_at) AS active_at FROM (
    SELECT s.user_id, count(*) AS sessions, sum(s.message_count) AS messages, max(s.updated_at) AS active_at FROM rem.sessions s
    WHERE s.tenant_id = $1 AND s.deleted_at IS NULL GROUP BY s.user_id
    UNION ALL
    SELECT r.user_id, 0, 0, max(r.updated_at) FROM rem.resources r
    WHERE r.tenant_id = $1 AND r.deleted_at IS NULL AND r.user_id IS NOT NULL GROUP BY r.user_id) o
  GROUP BY o.user_id)
SELECT coalesce(a.user_id, o.user_id) AS user_id, a.email, a.name, a.role, a.tier, a.created_at, a.last_login_at, a.disabled_at,
       coalesce(o.sessions, 0) AS sessions, coalesce(o.messages, 0) AS messages, o.active_at AS last_active_at
FROM (SELECT * FROM rem_auth.accounts c WHERE c.tenant_id = $1) a FULL JOIN owners o ON o.user_id = a.user_id
WHERE coalesce(a.user_id, o.user_id) NOT LIKE 'anon:%' AND ($2::text IS NULL OR coalesce(a.user_id, o.user_id) = $2)
ORDER BY a.email NULLS LAST, 1 LIMIT $3 OFFSET $4

-- name: sessions
-- Return the sessions of a tenant without names and content. $2 is one user, or NULL.
SELECT s.id, s.user_id, s.mode, s.agent_schema, s.message_count, s.total_tokens, s.created_at, s.updated_at, s.expires_at,
       (SELECT count(*) FROM rem.shared_sessions x
        WHERE x.tenant_id = s.tenant_id AND x.session_id = s.id AND x.deleted_at IS NULL) AS readers
FROM rem.sessions s
WHERE s.tenant_id = $1 AND ($2::text IS NULL OR s.user_id = $2) AND s.deleted_at IS NULL
ORDER BY s.updated_at DESC, s.id LIMIT $3 OFFSET $4

-- name: totals
SELECT (SELECT count(*) FROM rem_auth.accounts a WHERE a.tenant_id = $1) AS accounts,
       (SELECT count(*) FROM rem_auth.accounts a WHERE a.tenant_id = $1 AND a.disabled_at IS NOT NULL) AS disabled_accounts,
       (SELECT count(DISTINCT s.user_id) FROM rem.sessions s
        WHERE s.tenant_id = $1 AND s.deleted_at IS NULL AND s.updated_at > now() - interval '30 days'
          AND s.user_id NOT LIKE 'anon:%') AS active_users,
       (SELECT coalesce(sum(s.total_tokens), 0)::bigint FROM rem.sessions s WHERE s.tenant_id = $1 AND s.deleted_at IS NULL) AS tokens

-- name: count_rows
SELECT count(*) FILTER (WHERE r.deleted_at IS NULL) AS live, count(*) FILTER (WHERE r.deleted_at IS NOT NULL) AS deleted,
       count(*) FILTER (WHERE r.deleted_at IS NULL AND r.user_id IS NULL) AS shared
FROM {table} r WHERE r.tenant_id = $1

-- name: measure_own_rows
-- Count the rows of one user ($2; NULL: shared rows) and the bytes of their values, as they are stored.
SELECT count(*) FILTER (WHERE r.deleted_at IS NULL) AS live, count(*) FILTER (WHERE r.deleted_at IS NOT NULL) AS deleted,
       coalesce(sum(pg_column_size(r)), 0)::bigint AS bytes
FROM {table} r WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2

-- name: actions
-- Count the entries of the audit log of the last day.
SELECT l.action, count(*) AS entries FROM rem.audit_log l
WHERE l.tenant_id = $1 AND l.at > now() - interval '1 day' GROUP BY l.action ORDER BY l.action
