-- name: insert
INSERT INTO rem.audit_log (tenant_id, at, id, actor, subject, role, via, method, credential_id, action, operation, status, targets,
                           client, request_id)
SELECT e.tenant_id, e.at, e.id, e.actor, e.subject, e.role, e.via, e.method, e.credential_id, e.action, e.operation, e.status, e.targets,
       e.client, e.request_id
FROM jsonb_to_recordset($1::jsonb) AS e (
  tenant_id text, at timestamptz, id uuid, actor text, subject text, role text, via text, method text, credential_id text,
  action text, operation text, status smallint, targets jsonb, client text, request_id text)
ON CONFLICT DO NOTHING

-- name: find
SELECT l.at, l.id, l.actor, l.subject, l.role, l.via, l.method, l.credential_id, l.action, l.operation, l.status, l.targets, l.client,
       l.request_id
FROM rem.audit_log l
WHERE l.tenant_id = $1 AND ($2::text IS NULL OR l.actor = $2) AND ($3::text IS NULL OR l.action = $3)
  AND ($4::text IS NULL OR l.subject = $4) AND ($5::jsonb IS NULL OR l.targets @> $5)
  AND ($6::timestamptz IS NULL OR l.at >= $6) AND ($7::timestamptz IS NULL OR l.at < $7)
ORDER BY l.at DESC, l.id DESC LIMIT $8 OFFSET $9

-- name: allow_change
-- Allow UPDATE or DELETE on the log until the end of the transaction; the empty text forbids it again.
SELECT set_config('rem.audit_change', $1, true)

-- name: prune
DELETE FROM rem.audit_log l WHERE l.at < $1

-- name: pseudonymize
UPDATE rem.audit_log l
SET actor = CASE WHEN l.actor = $2 THEN $3 ELSE l.actor END,
    subject = CASE WHEN l.subject = $2 THEN $3 ELSE l.subject END,
    credential_id = CASE WHEN l.actor = $2 THEN NULL ELSE l.credential_id END,
    client = CASE WHEN l.actor = $2 THEN NULL ELSE l.client END,
    request_id = CASE WHEN l.actor = $2 THEN NULL ELSE l.request_id END
WHERE l.tenant_id = $1 AND (l.actor = $2 OR l.subject = $2)
