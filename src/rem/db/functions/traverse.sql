-- TRAVERSE: breadth-first over the edges that a scope sees. The sets of nodes are arrays, not temporary tables, so that it
-- also runs on a replica; each level is one statement. A path is a JSON list of keys without its brackets.

-- The type of an edge as it is compared: works_with, works-with, "works with" and WorksWith are one.
CREATE OR REPLACE FUNCTION rem_edge_type(rel_type text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN translate(lower(rel_type), ' _-', '');

-- The edges out of some nodes, with what they lead to: all that LOOKUP finds for their label, nothing if they dangle.
CREATE OR REPLACE FUNCTION rem_edges_out(
  of_tenant text, of_user text, from_types text[], from_ids uuid[], from_paths text[], rel_types text[])
RETURNS TABLE (path text, ordinal integer, rel_type text, weight double precision, src_type text, src_key text, dst_key text,
               entity_type text, entity_id uuid, entity_key text, key_rank smallint, record text)
LANGUAGE sql STABLE AS $$
  SELECT f.path, e.ordinal, e.rel_type, e.weight, e.src_type, e.src_key, e.dst_key,
         coalesce(exact.entity_type, near.entity_type), coalesce(exact.entity_id, near.entity_id),
         coalesce(exact.entity_key, near.entity_key), coalesce(exact.key_rank, near.key_rank), coalesce(exact.record, near.record)
  FROM unnest(from_types, from_ids, from_paths) AS f (src_type, src_id, path)
  JOIN rem.edges e ON e.tenant_id = of_tenant AND e.src_id = f.src_id AND e.src_type = f.src_type
    AND (e.user_id = of_user OR e.user_id IS NULL)
    AND (rel_types IS NULL OR rem.rem_edge_type(e.rel_type) = ANY (rel_types))
  LEFT JOIN LATERAL rem.rem_resolve_key(of_tenant, of_user, e.dst_key, e.dst_type) exact ON true
  -- Only what has no exact answer is tried as `type/key` and without separators; OFFSET keeps the test before the call.
  LEFT JOIN LATERAL (
    SELECT l.* FROM rem.rem_resolve_label(of_tenant, of_user, e.dst_key, e.dst_type) l
    WHERE exact.entity_id IS NULL OFFSET 0) near ON true
$$;

-- The edges into some nodes, with what they come from: exactly those that lead there in the other direction.
CREATE OR REPLACE FUNCTION rem_edges_in(
  of_tenant text, of_user text, to_types text[], to_ids uuid[], to_paths text[], rel_types text[])
RETURNS TABLE (path text, ordinal integer, rel_type text, weight double precision,
               entity_type text, entity_id uuid, entity_key text, record text)
LANGUAGE sql STABLE AS $$
  SELECT t.path, e.ordinal, e.rel_type, e.weight, e.src_type, e.src_id, e.src_key, source.record
  FROM unnest(to_types, to_ids, to_paths) AS t (dst_type, dst_id, path)
  JOIN rem.kv_store target ON target.tenant_id = of_tenant AND target.entity_id = t.dst_id AND target.entity_type = t.dst_type
  CROSS JOIN LATERAL (VALUES (target.compact_key), (target.entity_type || '/' || target.compact_key)) AS label (compact_key)
  CROSS JOIN LATERAL (
    SELECT own.* FROM rem.edges own
    WHERE own.tenant_id = of_tenant AND rem.rem_compact_key(own.dst_key) = label.compact_key AND own.user_id = of_user
    UNION ALL
    SELECT shared.* FROM rem.edges shared
    WHERE shared.tenant_id = of_tenant AND rem.rem_compact_key(shared.dst_key) = label.compact_key AND shared.user_id IS NULL
  ) e
  -- The row that holds the edge may have expired.
  JOIN rem.kv_store source ON source.tenant_id = of_tenant AND source.entity_id = e.src_id AND source.entity_type = e.src_type
    AND source.key_rank = 1 AND (source.expires_at IS NULL OR source.expires_at > now())
  WHERE (rel_types IS NULL OR rem.rem_edge_type(e.rel_type) = ANY (rel_types))
    AND (e.dst_type IS NULL OR e.dst_type = target.entity_type)
    AND CASE WHEN e.dst_key = target.entity_key THEN true ELSE EXISTS (
      SELECT FROM rem.rem_resolve_label(of_tenant, of_user, e.dst_key, e.dst_type) l
      WHERE l.entity_type = target.entity_type AND l.entity_id = target.entity_id) END
$$;

-- The nodes among some that the scope sees, each once, in their order; without a type, whatever has the id.
CREATE OR REPLACE FUNCTION rem_visible_nodes(
  of_tenant text, of_user text, of_types text[], of_ids uuid[], OUT types text[], OUT ids uuid[], OUT keys text[])
LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(n.entity_type ORDER BY n.place), '{}'), coalesce(array_agg(n.entity_id ORDER BY n.place), '{}'),
         coalesce(array_agg(n.entity_key ORDER BY n.place), '{}')
  FROM (SELECT k.entity_type, k.entity_id, k.entity_key, min(asked.place) AS place
        FROM unnest(of_types, of_ids) WITH ORDINALITY AS asked (entity_type, entity_id, place)
        JOIN rem.kv_store k ON k.tenant_id = of_tenant AND k.entity_id = asked.entity_id
          AND (asked.entity_type IS NULL OR k.entity_type = asked.entity_type) AND k.key_rank = 1
          AND (k.user_id = of_user OR k.user_id IS NULL) AND (k.expires_at IS NULL OR k.expires_at > now())
        GROUP BY k.entity_type, k.entity_id, k.entity_key) n
$$;

-- What can be reached from some nodes: each once at its least depth over the heaviest edge there, by depth, weight and key.
-- It goes on until it has `most` of them. The last row is about the walk itself: its depth is NULL, its path {reached,
-- dangling, first_dangling, only_back}. Rows go out one by one, because a long list of records would be copied again and again.
CREATE OR REPLACE FUNCTION rem_traverse(
  of_tenant text, of_user text, start_types text[], start_ids uuid[], rel_types text[], directions text[], max_depth integer,
  most integer)
RETURNS TABLE (entity_type text, entity_id uuid, key text, depth integer, path text, rel_type text, weight double precision,
               direction text, record text)
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  starts record;
  level_types text[];
  level_ids uuid[];
  level_paths text[];
  next_types text[];
  next_ids uuid[];
  next_paths text[];
  seen_types text[];
  seen_ids uuid[];
  reached integer := 0;
  dangling bigint := 0;
  first_dangling text[] := '{}';
BEGIN
  starts := rem.rem_visible_nodes(of_tenant, of_user, start_types, start_ids);
  level_types := starts.types;
  level_ids := starts.ids;
  level_paths := ARRAY(SELECT to_json(k.key)::text FROM unnest(starts.keys) WITH ORDINALITY AS k (key, place) ORDER BY k.place);
  seen_types := level_types;
  seen_ids := level_ids;
  FOR level IN 1 .. max_depth LOOP
    EXIT WHEN cardinality(level_ids) = 0 OR reached >= most;
    depth := level;
    next_types := '{}';
    next_ids := '{}';
    next_paths := '{}';
    FOR entity_type, entity_id, key, path, rel_type, weight, direction, record IN
      WITH outward AS MATERIALIZED (
        SELECT o.* FROM rem.rem_edges_out(of_tenant, of_user, level_types, level_ids, level_paths, rel_types) o
        WHERE 'out' = ANY (directions)
      ), reached AS (
        SELECT o.path, o.ordinal, o.rel_type, o.weight, 'out' AS way, o.entity_type, o.entity_id, o.entity_key, o.key_rank,
               o.record, false AS is_seen
        FROM outward o WHERE o.entity_id IS NOT NULL
        UNION ALL
        SELECT i.path, i.ordinal, i.rel_type, i.weight, 'in', i.entity_type, i.entity_id, i.entity_key, 1, i.record, false
        FROM rem.rem_edges_in(of_tenant, of_user, level_types, level_ids, level_paths, rel_types) i
        WHERE 'in' = ANY (directions)
        UNION ALL
        -- What was seen before wins and is then dropped: a sort, where a join could be planned for a few nodes and meet many.
        SELECT '', 0, '', 0, '', s.entity_type, s.entity_id, '', 1, NULL, true
        FROM unnest(seen_types, seen_ids) AS s (entity_type, entity_id)
      ), once AS (
        SELECT DISTINCT ON (r.entity_id, r.entity_type) r.* FROM reached r
        ORDER BY r.entity_id, r.entity_type, r.is_seen DESC, r.weight DESC, r.path, r.way DESC, r.ordinal, r.key_rank
      ), named AS (
        SELECT n.*, CASE WHEN n.key_rank = 1 THEN n.entity_key ELSE (
          SELECT k.entity_key FROM rem.kv_store k
          WHERE k.tenant_id = of_tenant AND k.entity_id = n.entity_id AND k.entity_type = n.entity_type AND k.key_rank = 1)
          END AS own_key
        FROM once n WHERE NOT n.is_seen
      ), fresh AS (
        SELECT n.* FROM named n ORDER BY n.weight DESC, n.own_key, n.entity_type, n.entity_id LIMIT most - reached
      )
      SELECT f.entity_type, f.entity_id, f.own_key, f.path || ',' || to_json(f.own_key)::text, f.rel_type, f.weight, f.way,
             coalesce(f.record, rem.rem_record(f.entity_type, of_tenant, f.entity_id)::text)
      FROM fresh f
      UNION ALL
      SELECT NULL, NULL, NULL, o.src_key || ' ' || o.rel_type || ' ' || o.dst_key, NULL, NULL, NULL, NULL
      FROM outward o WHERE o.entity_id IS NULL
    LOOP
      IF entity_id IS NOT NULL THEN
        next_types := next_types || entity_type;
        next_ids := next_ids || entity_id;
        next_paths := next_paths || path;
        RETURN NEXT;
      ELSE
        dangling := dangling + 1;
        IF dangling <= 3 THEN
          first_dangling := first_dangling || path;
        END IF;
      END IF;
    END LOOP;
    reached := reached + cardinality(next_ids);
    level_types := next_types;
    level_ids := next_ids;
    level_paths := next_paths;
    seen_types := seen_types || next_types;
    seen_ids := seen_ids || next_ids;
  END LOOP;
  depth := NULL;
  path := json_build_object('reached', reached, 'dangling', dangling, 'first_dangling', first_dangling,
    'only_back', reached = 0 AND (
      'out' = ANY (directions) AND EXISTS (
        SELECT FROM rem.rem_edges_out(of_tenant, of_user, starts.types, starts.ids, NULL, rel_types) o WHERE o.entity_id IS NOT NULL)
      OR 'in' = ANY (directions) AND EXISTS (
        SELECT FROM rem.rem_edges_in(of_tenant, of_user, starts.types, starts.ids, NULL, rel_types))));
  RETURN NEXT;
END $$;

-- The plan of a walk: which edges begin or end at some nodes, by type, with how many there are and where the first of them
-- lead (for `in`: come from). Nothing is loaded, and nothing is resolved.
CREATE OR REPLACE FUNCTION rem_traverse_plan(
  of_tenant text, of_user text, start_types text[], start_ids uuid[], rel_types text[], directions text[], most integer)
RETURNS TABLE (entity_type text, entity_key text, rel_type text, direction text, edges bigint, destinations text[])
LANGUAGE sql STABLE AS $$
  WITH starts AS MATERIALIZED (
    SELECT n.* FROM rem.rem_visible_nodes(of_tenant, of_user, start_types, start_ids) v,
           unnest(v.types, v.ids, v.keys) WITH ORDINALITY AS n (entity_type, entity_id, entity_key, place)
  ), edges AS (
    SELECT s.place, s.entity_type, s.entity_key, e.rel_type, 'out' AS direction, e.dst_key AS other, e.weight
    FROM starts s JOIN rem.edges e ON e.tenant_id = of_tenant AND e.src_id = s.entity_id AND e.src_type = s.entity_type
    WHERE 'out' = ANY (directions) AND (rel_types IS NULL OR rem.rem_edge_type(e.rel_type) = ANY (rel_types))
    UNION ALL
    -- An edge may fit two keys of one node.
    SELECT DISTINCT ON (s.place, i.entity_type, i.entity_id, i.ordinal)
           s.place, s.entity_type, s.entity_key, i.rel_type, 'in', i.entity_key, i.weight
    FROM starts s, rem.rem_edges_in(of_tenant, of_user, ARRAY[s.entity_type], ARRAY[s.entity_id], '{""}', rel_types) i
    WHERE 'in' = ANY (directions)
  ), ranked AS (
    SELECT e.*, row_number() OVER (PARTITION BY e.place, e.direction, e.rel_type ORDER BY e.weight DESC, e.other) AS rank FROM edges e
  )
  SELECT r.entity_type, r.entity_key, r.rel_type, r.direction, count(*),
         array_agg(r.other ORDER BY r.rank) FILTER (WHERE r.rank <= most)
  FROM ranked r GROUP BY r.place, r.entity_type, r.entity_key, r.rel_type, r.direction
  ORDER BY r.place, r.direction DESC, count(*) DESC, r.rel_type
$$;
