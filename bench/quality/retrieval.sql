-- Erase the data of a benchmark, which is in its own tenant.

-- name: erase_sessions
DELETE FROM rem.sessions WHERE tenant_id = $1

-- name: erase_resources
DELETE FROM rem.resources WHERE tenant_id = $1

-- name: erase_dream_runs
-- Derived rows are erased with their sources; this erases the records of the runs.
DELETE FROM rem.dream_runs WHERE tenant_id = $1

-- name: lexemes
-- Return the words of some texts as PostgreSQL stems them, with their frequencies. `place` is the place of the text, from 1.
SELECT t.place, w.lexeme, cardinality(w.positions) AS frequency
FROM unnest($2::text[]) WITH ORDINALITY AS t (body, place) CROSS JOIN LATERAL unnest(to_tsvector($1::text::regconfig, t.body)) w

-- name: stems
-- Return the English stems of words, in order.
SELECT array_agg(coalesce((ts_lexize('english_stem', w.word))[1], w.word) ORDER BY w.place)
FROM unnest($1::text[]) WITH ORDINALITY AS w (word, place)
