-- Queries of the ontology dream, always for one owner.

-- name: rules
-- The rules that assign agents to documents: the owner's own and the shared ones, highest priority first. An own rule replaces the shared
-- one of the same name, even if it is disabled.
SELECT c.id, c.key, c.agent_schema, c.mime_type_pattern, c.uri_pattern, c.tag_filter
FROM (SELECT DISTINCT ON (c.key) c.* FROM rem.ontology_configs c
      WHERE c.tenant_id = $1 AND (c.user_id = $2 OR c.user_id IS NULL) AND c.deleted_at IS NULL
        AND (c.expires_at IS NULL OR c.expires_at > now())
      ORDER BY c.key, c.user_id NULLS LAST) c
WHERE c.enabled
ORDER BY c.priority DESC, c.user_id NULLS LAST, c.key

-- name: new_files
-- Files that the dream has not seen in their current version, or not with the rules of one of the digests ($3).
SELECT f.id, f.key, f.name, f.uri, f.mime_type, f.tags, f.updated_at
FROM rem.files f LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (f.tenant_id, f.id, 'ontology')
WHERE f.tenant_id = $1 AND f.user_id IS NOT DISTINCT FROM $2 AND f.deleted_at IS NULL
  AND (f.expires_at IS NULL OR f.expires_at > now()) AND f.processing_status = 'completed'
  AND (p.seen_at IS DISTINCT FROM f.updated_at OR p.seen_index IS NULL OR p.seen_index <> ALL ($3::integer[]))
ORDER BY f.created_at, f.id LIMIT $4

-- name: file_parts
-- The chunks of a file, in their order.
SELECT r.id, r.key, r.content, r.updated_at, r.metadata -> 'start' AS start, r.metadata -> 'end' AS "end"
FROM rem.resources r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.metadata ? 'file_id' AND r.metadata ->> 'file_id' = $3 AND r.deleted_at IS NULL
  AND (r.expires_at IS NULL OR r.expires_at > now())
ORDER BY r.ordinal, r.id LIMIT $4

-- name: new_text_uris
-- Addresses with a text, not part of a file, that the dream has not seen in its current version, or not with these rules.
SELECT r.uri, min(r.created_at) AS since
FROM rem.resources r LEFT JOIN rem.dream_progress p ON (p.tenant_id, p.source_id, p.dream) = (r.tenant_id, r.id, 'ontology')
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.deleted_at IS NULL AND r.uri IS NOT NULL
  AND NOT r.metadata ? 'file_id' AND r.origin NOT LIKE 'dream:%' AND (r.expires_at IS NULL OR r.expires_at > now())
  AND (p.seen_at IS DISTINCT FROM r.updated_at OR p.seen_index IS NULL OR p.seen_index <> ALL ($3::integer[]))
GROUP BY r.uri ORDER BY since, r.uri LIMIT $4

-- name: text_parts
-- The texts of an address, in their order.
SELECT r.id, r.key, r.name, r.content, r.tags, r.updated_at
FROM rem.resources r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.uri = $3 AND NOT r.metadata ? 'file_id' AND r.origin NOT LIKE 'dream:%'
  AND r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())
ORDER BY r.ordinal, r.created_at, r.id LIMIT $4

-- name: subjects
-- Subjects of the dream's live statements: all, or those among $3.
SELECT DISTINCT s.subject_type, s.subject_id FROM rem.statements s
WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = 'ontology' AND s.state = 'live'
  AND ($3::uuid[] IS NULL OR s.subject_id = ANY ($3))
ORDER BY s.subject_type, s.subject_id

-- name: is_refused
-- Whether the owner refused the entry of an agent about a document, whatever its name was then.
SELECT EXISTS (
  SELECT FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.subject_id = $2 AND s.dream = 'ontology' AND s.kind = 'row' AND s.state = 'refused'
    AND starts_with(reverse(s.name), reverse('/' || rem.rem_key($3))))

-- name: entries_by_name
-- For each name its key, the entry that the dream has under it with its subject, and whether the name is free of the owner's own rows.
SELECT n.name, n.key, s.entity_id, s.subject_id,
       coalesce(held.origin LIKE 'dream:%' AND held.deleted_at IS NULL, true) AS is_free, held.id AS held_by
FROM (SELECT n.name, rem.rem_key(n.name) AS key, n.position FROM unnest($3::text[]) WITH ORDINALITY AS n (name, position)
      OFFSET 0) n  -- so that a key is computed once, and not for each row that it is compared with
LEFT JOIN LATERAL (
  SELECT s.entity_id, s.subject_id FROM rem.statements s
  WHERE s.tenant_id = $1 AND s.user_id IS NOT DISTINCT FROM $2 AND s.dream = 'ontology' AND s.kind = 'row' AND s.state = 'live'
    AND s.name = n.key ORDER BY s.stated_at LIMIT 1) s ON true
LEFT JOIN LATERAL (
  SELECT o.id, o.origin, o.deleted_at FROM rem.ontologies o
  WHERE o.tenant_id = $1 AND o.user_id IS NOT DISTINCT FROM $2 AND o.key = n.key
  ORDER BY o.deleted_at NULLS FIRST LIMIT 1) held ON true
ORDER BY n.position

-- name: mark_texts
-- Mark all texts of an address as seen with the rules of the digest $5, except those that were written after $4.
INSERT INTO rem.dream_progress AS p (tenant_id, user_id, dream, source_type, source_id, seen_at, seen_index)
SELECT r.tenant_id, $2, 'ontology', 'resources', r.id, r.updated_at, $5 FROM rem.resources r
WHERE r.tenant_id = $1 AND r.user_id IS NOT DISTINCT FROM $2 AND r.uri = $3 AND r.updated_at <= $4 AND NOT r.metadata ? 'file_id' AND r.deleted_at IS NULL
ON CONFLICT (tenant_id, source_id, dream) DO UPDATE SET seen_at = excluded.seen_at, seen_index = excluded.seen_index
WHERE (p.seen_at, p.seen_index) IS DISTINCT FROM (excluded.seen_at, excluded.seen_index)
