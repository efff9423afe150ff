-- Return the edges of an entity after a write. The incoming edges replace the stored edges of the writer's origin, and of every origin among
-- the incoming ones. All other edges stay: loading a file again must not delete dreamed edges.
CREATE OR REPLACE FUNCTION rem_merge_edges(stored jsonb, incoming jsonb, writer text) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN stored = '[]' THEN incoming ELSE incoming || coalesce(
  (SELECT jsonb_agg(kept.edge ORDER BY kept.ordinal)
   FROM jsonb_array_elements(stored) WITH ORDINALITY AS kept (edge, ordinal)
   WHERE coalesce(kept.edge ->> 'origin', 'user') <> writer
     AND NOT EXISTS (SELECT FROM jsonb_array_elements(incoming) AS brought (edge)
                     WHERE coalesce(brought.edge ->> 'origin', 'user') = coalesce(kept.edge ->> 'origin', 'user'))),
  '[]') END;
