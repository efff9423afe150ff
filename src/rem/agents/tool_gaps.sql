-- name: lock_gaps
-- Let the answers of one owner count their gaps one after another: two new rows of one key would be a conflict.
SELECT pg_advisory_xact_lock(hashtextextended('rem.tool_gaps:' || $1::text || ':' || coalesce($2::text, ''), 0))

-- name: record_gap
-- Count one more call of a missing tool ($5) by an agent ($4). There is one row for each agent and tool of an owner; a new one
-- gets the id $3. A gap that was deleted starts again at 1. A row of another owner is never changed.
INSERT INTO rem.tool_gaps AS g (tenant_id, user_id, id, agent, missing_tools, attempted_task, existing_tools_checked,
                                session_id, origin)
VALUES ($1, $2,
        coalesce((SELECT o.id FROM rem.tool_gaps o WHERE o.tenant_id = $1 AND o.user_id IS NOT DISTINCT FROM $2
                    AND o.agent = $4 AND o.missing_tools = ARRAY[$5] ORDER BY o.created_at, o.id LIMIT 1), $3),
        $4, ARRAY[$5], $6, $7, $8, 'agent')
ON CONFLICT (tenant_id, id) DO UPDATE
SET occurrences = CASE WHEN g.deleted_at IS NULL THEN g.occurrences + 1 ELSE 1 END,
    attempted_task = excluded.attempted_task, existing_tools_checked = excluded.existing_tools_checked,
    session_id = excluded.session_id, deleted_at = NULL, expires_at = NULL
WHERE g.user_id IS NOT DISTINCT FROM excluded.user_id

-- name: all_gaps
-- Return the gaps of all users: agent, tool, number of calls, number of users, time of the last call. The tasks stay out:
-- they are messages of the users.
SELECT g.agent, g.missing_tools[1] AS tool, sum(g.occurrences) AS occurrences, count(DISTINCT g.user_id) AS users,
       max(g.updated_at) AS updated_at
FROM rem.tool_gaps g
WHERE g.tenant_id = $1 AND g.deleted_at IS NULL AND g.agent IS NOT NULL AND (g.expires_at IS NULL OR g.expires_at > now())
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT $2
