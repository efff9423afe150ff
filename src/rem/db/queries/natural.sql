-- name: understand
-- The first of some labels ($3) that something answers to; if there is none, how many keys are the ones most like a
-- text ($4), if any is like it at all.
SELECT exact.position::integer AS exact,
       CASE WHEN exact.position IS NULL AND $4::text IS NOT NULL
         THEN (SELECT count(DISTINCT near.key)::integer
               FROM (SELECT match ->> 1 AS key, rank() OVER (ORDER BY (match ->> 2)::float8 DESC) AS place
                     FROM json_array_elements(rem.rem_fuzzy($1, $2, $4, $5, $6, NULL)::json) AS match
                     WHERE match ->> 3 = 'key' AND match ->> 0 <> 'messages') AS near
               WHERE near.place = 1)
         ELSE 0
       END AS nearest
FROM (SELECT min(asked.position) AS position
      FROM unnest($3::text[]) WITH ORDINALITY AS asked (label, position)
      WHERE EXISTS (SELECT FROM rem.rem_resolve_label($1, $2, asked.label, NULL))) AS exact
