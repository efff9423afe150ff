-- SEARCH also reads the role, the interests and the topics of users. All users are indexed again.
UPDATE entity_types SET search_fields = '{summary,role,interests,preferred_topics}',
  search_expression = 'concat_ws(E''\n'', r.summary, r.role, r.interests::text, r.preferred_topics::text)'
WHERE name = 'users';
INSERT INTO search_queue (tenant_id, owner, entity_type, entity_ids)
SELECT tenant_id, coalesce(user_id, ''), 'users', array_agg(id ORDER BY created_at) FROM users
WHERE deleted_at IS NULL GROUP BY tenant_id, user_id;
