-- name: messages_before
-- Return what the user said in the sessions $3 within $5 messages before the places $4.
SELECT m.tenant_id, m.id, m.session_id, m.message_index, m.content
FROM unnest($3::uuid[], $4::integer[]) AS s (session_id, place)
JOIN rem.messages m ON m.tenant_id = $1 AND m.user_id = $2 AND m.session_id = s.session_id
  AND m.message_index BETWEEN s.place - $5 AND s.place - 1
WHERE m.role = 'user' AND m.deleted_at IS NULL AND (m.expires_at IS NULL OR m.expires_at > now())
ORDER BY m.session_id, m.message_index
