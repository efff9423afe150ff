-- TRAVERSE: follow edges breadth-first, as far as a scope sees them. Sets of nodes are arrays, not temporary tables, so it also runs on a
-- read-only replica. Each level is one statement. A path is a JSON list of keys without its brackets.

-- Return the type of an edge for comparisons: works_with, works-with, "works with" and WorksWith are equal.
CREATE OR REPLACE FUNCTION rem_edge_type(rel_type text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN translate(lower(rel_type), ' _-', '');

-- Return the edges out of some nodes with their targets: every entity that LOOKUP finds for `dst_key`, or NULL if there is none.
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
  -- Only a key without an exact match is tried as `type/key` and without separators. OFFSET 0 keeps the test before the call.
  LEFT JOIN LATERAL (
    SELECT l.* FROM rem.rem_resolve_label(of_tenant, of_user, e.dst_key, e.dst_type) l
    WHERE exact.entity_id IS NULL OFFSET 0) near ON true
$$;

-- Return the edges into some nodes with their sources: exactly the edges that rem_edges_out follows in the other direction.
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
  -- The row with the edge may have expired.
  JOIN rem.kv_store source ON source.tenant_id = of_tenant AND source.entity_id = e.src_id AND source.entity_type = e.src_type
    AND source.key_rank = 1 AND (source.expires_at IS NULL OR source.expires_at > now())
  WHERE (rel_types IS NULL OR rem.rem_edge_type(e.rel_type) = ANY (rel_types))
    AND (e.dst_type IS NULL OR e.dst_type = target.entity_type)
    AND CASE WHEN e.dst_key = target.entity_key AND target.key_rank < rem.rem_weak_key_rank() THEN true ELSE EXISTS (
      SELECT FROM rem.rem_resolve_label(of_tenant, of_user, e.dst_key, e.dst_type) l
      WHERE l.entity_type = target.entity_type AND l.entity_id = target.entity_id) END
$$;

-- Return the nodes that the scope sees, without duplicates, in their order. A node without a type is any entity with the id.
CREATE OR REPLACE FUNCTION rem_visible_nodes(
  of_tenant text, of_user text, of_types text[], of_ids uuid[], OUT types text[], OUT ids uuid[], OUT keys text[])
LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(n.entity_type ORDER BY n.position), '{}'), coalesce(array_agg(n.entity_id ORDER BY n.position), '{}'),
         coalesce(array_agg(n.entity_key ORDER BY n.position), '{}')
  FROM (SELECT k.entity_type, k.entity_id, k.entity_key, min(given.position) AS position
        FROM unnest(of_types, of_ids) WITH ORDINALITY AS given (entity_type, entity_id, position)
        JOIN rem.kv_store k ON k.tenant_id = of_tenant AND k.entity_id = given.entity_id
          AND (given.entity_type IS NULL OR k.entity_type = given.entity_type) AND k.key_rank = 1
          AND (k.user_id = of_user OR k.user_id IS NULL) AND (k.expires_at IS NULL OR k.expires_at > now())
        GROUP BY k.entity_type, k.entity_id, k.entity_key) n
$$;

-- Return the nodes that can be reached: each once, at its smallest depth, over its heaviest edge, sorted by depth, weight and key. It
-- stops at `max_nodes`. The last row is about the walk itself: its depth is NULL, and its path is {reached, dangling, first_dangling,
-- only_back}. Rows are returned one by one, because a growing array of records would be copied again and again.
CREATE OR REPLACE FUNCTION rem_traverse(
  of_tenant text, of_user text, start_types text[], start_ids uuid[], rel_types text[], directions text[], max_depth integer,
  max_nodes integer)
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
  bytes bigint := 0;
BEGIN
  starts := rem.rem_visible_nodes(of_tenant, of_user, start_types, start_ids);
  level_types := starts.types;
  level_ids := starts.ids;
  level_paths := ARRAY(SELECT to_json(k.key)::text FROM unnest(starts.keys) WITH ORDINALITY AS k (key, position) ORDER BY k.position);
  seen_types := level_types;
  seen_ids := level_ids;
  FOR level IN 1 .. max_depth LOOP
    EXIT WHEN cardinality(level_ids) = 0 OR reached >= max_nodes;
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
        -- Nodes seen before come first and are then dropped. This sort is safe; a join could be planned for few nodes and meet many.
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
        SELECT n.* FROM named n ORDER BY n.weight DESC, n.own_key, n.entity_type, n.entity_id LIMIT max_nodes - reached
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
        bytes := bytes + octet_length(record);
        IF bytes > rem.rem_max_result_bytes() THEN
          PERFORM rem.rem_check_result_bytes(bytes, reached + cardinality(next_ids));
        END IF;
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

-- Return the edges of some nodes, grouped by type and direction: their number and the keys at the other end of the first `max_keys`. No
-- record is loaded, and no key is resolved.
CREATE OR REPLACE FUNCTION rem_traverse_plan(
  of_tenant text, of_user text, start_types text[], start_ids uuid[], rel_types text[], directions text[], max_keys integer)
RETURNS TABLE (entity_type text, entity_key text, rel_type text, direction text, edges bigint, destinations text[])
LANGUAGE sql STABLE AS $$
  WITH starts AS MATERIALIZED (
    SELECT n.* FROM rem.rem_visible_nodes(of_tenant, of_user, start_types, start_ids) v,
           unnest(v.types, v.ids, v.keys) WITH ORDINALITY AS n (entity_type, entity_id, entity_key, position)
  ), edges AS (
    SELECT s.position, s.entity_type, s.entity_key, e.rel_type, 'out' AS direction, e.dst_key AS other, e.weight
    FROM starts s JOIN rem.edges e ON e.tenant_id = of_tenant AND e.src_id = s.entity_id AND e.src_type = s.entity_type
    WHERE 'out' = ANY (directions) AND (rel_types IS NULL OR rem.rem_edge_type(e.rel_type) = ANY (rel_types))
    UNION ALL
    -- An edge can match two keys of one node.
    SELECT DISTINCT ON (s.position, i.entity_type, i.entity_id, i.ordinal)
           s.position, s.entity_type, s.entity_key, i.rel_type, 'in', i.entity_key, i.weight
    FROM starts s, rem.rem_edges_in(of_tenant, of_user, ARRAY[s.entity_type], ARRAY[s.entity_id], '{""}', rel_types) i
    WHERE 'in' = ANY (directions)
  ), ranked AS (
    SELECT e.*, row_number() OVER (PARTITION BY e.position, e.direction, e.rel_type ORDER BY e.weight DESC, e.other) AS rank FROM edges e
  )
  SELECT r.entity_type, r.entity_key, r.rel_type, r.direction, count(*),
         array_agg(r.other ORDER BY r.rank) FILTER (WHERE r.rank <= max_keys)
  FROM ranked r GROUP BY r.position, r.entity_type, r.entity_key, r.rel_type, r.direction
  ORDER BY r.position, r.direction DESC, count(*) DESC, r.rel_type
$$;
