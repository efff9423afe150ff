-- LOOKUP: find entities by exact keys in one round trip, the user's own rows before the tenant's shared rows.

-- Return the rank of exact keys, such as the address of a file. Names have lower ranks, and FUZZY compares only those.
CREATE OR REPLACE FUNCTION rem_exact_key_rank() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 100::smallint;

-- Return the rank of weak keys, such as the heading of a section. They count only where no other row has the same key.
CREATE OR REPLACE FUNCTION rem_weak_key_rank() RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 1000::smallint;

-- Return whether no other row that the scope sees has this key.
CREATE OR REPLACE FUNCTION rem_is_only_match(
  of_tenant text, of_user text, of_key text, of_type text, match_type text, match_id uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT NOT EXISTS (
    SELECT FROM rem.kv_store k
    WHERE k.tenant_id = of_tenant AND k.entity_key = of_key AND k.user_id = of_user AND (k.entity_type, k.entity_id) <> (match_type, match_id)
      AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
  ) AND NOT EXISTS (
    SELECT FROM rem.kv_store k
    WHERE k.tenant_id = of_tenant AND k.entity_key = of_key AND k.user_id IS NULL AND (k.entity_type, k.entity_id) <> (match_type, match_id)
      AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now()))
$$;

-- Return the entities with a key. Own and shared rows are two queries, so that each is one index lookup, however many owners have the same
-- key.
CREATE OR REPLACE FUNCTION rem_resolve_key(of_tenant text, of_user text, of_key text, of_type text)
RETURNS TABLE (entity_type text, entity_key text, entity_id uuid, is_own boolean, key_rank smallint, record text)
LANGUAGE sql STABLE ROWS 1 AS $$
  SELECT k.entity_type, k.entity_key, k.entity_id, true, k.key_rank, k.record FROM rem.kv_store k
  WHERE k.tenant_id = of_tenant AND k.entity_key = of_key AND k.user_id = of_user
    AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
    AND (k.key_rank < rem.rem_weak_key_rank() OR rem.rem_is_only_match(of_tenant, of_user, of_key, of_type, k.entity_type, k.entity_id))
  UNION ALL
  SELECT k.entity_type, k.entity_key, k.entity_id, false, k.key_rank, k.record FROM rem.kv_store k
  WHERE k.tenant_id = of_tenant AND k.entity_key = of_key AND k.user_id IS NULL
    AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
    AND (k.key_rank < rem.rem_weak_key_rank() OR rem.rem_is_only_match(of_tenant, of_user, of_key, of_type, k.entity_type, k.entity_id))
$$;

-- Return the entities with a key, compared without separators. Weak keys are not compared in this way.
CREATE OR REPLACE FUNCTION rem_resolve_compact_key(of_tenant text, of_user text, of_key text, of_type text)
RETURNS TABLE (entity_type text, entity_key text, entity_id uuid, is_own boolean, key_rank smallint, record text)
LANGUAGE sql STABLE ROWS 1 AS $$
  SELECT k.entity_type, k.entity_key, k.entity_id, true, k.key_rank, k.record FROM rem.kv_store k
  WHERE k.tenant_id = of_tenant AND k.compact_key = rem.rem_compact_key(of_key) AND k.user_id = of_user
    AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
    AND k.key_rank < rem.rem_weak_key_rank()
  UNION ALL
  SELECT k.entity_type, k.entity_key, k.entity_id, false, k.key_rank, k.record FROM rem.kv_store k
  WHERE k.tenant_id = of_tenant AND k.compact_key = rem.rem_compact_key(of_key) AND k.user_id IS NULL
    AND (of_type IS NULL OR k.entity_type = of_type) AND (k.expires_at IS NULL OR k.expires_at > now())
    AND k.key_rank < rem.rem_weak_key_rank()
$$;

-- Return the entities for a label: by its key; else, for `type/key`, by that; else by its key without separators.
CREATE OR REPLACE FUNCTION rem_resolve_label(of_tenant text, of_user text, label text, of_type text)
RETURNS TABLE (entity_type text, entity_key text, entity_id uuid, is_own boolean, key_rank smallint, record text)
LANGUAGE plpgsql STABLE ROWS 1 AS $$
DECLARE
  label_key text := rem.rem_key(label);
  label_type text;
BEGIN
  RETURN QUERY SELECT k.* FROM rem.rem_resolve_key(of_tenant, of_user, label_key, of_type) k;
  IF FOUND OR label_key = '' THEN
    RETURN;
  END IF;
  -- In `users/sarah@example.com` the part before the slash is the type.
  IF of_type IS NULL AND strpos(label, '/') > 0 THEN
    label_type := (SELECT name FROM rem.entity_types WHERE name = lower(btrim(split_part(label, '/', 1))));
    IF label_type IS NOT NULL THEN
      RETURN QUERY SELECT k.*
        FROM rem.rem_resolve_label(of_tenant, of_user, substr(label, strpos(label, '/') + 1), label_type) k;
      RETURN;
    END IF;
  END IF;
  RETURN QUERY SELECT k.* FROM rem.rem_resolve_compact_key(of_tenant, of_user, label_key, of_type) k;
END $$;

-- Return how many bytes the records of a query may have together. One large row has many labels, and a server that sends it once for each
-- of them runs out of memory.
CREATE OR REPLACE FUNCTION rem_max_result_bytes() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 64 * 1024 * 1024;

-- Raise an error if the records of a query have more bytes than that. A single record may.
CREATE OR REPLACE FUNCTION rem_check_result_bytes(bytes bigint, records integer) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF bytes > rem.rem_max_result_bytes() AND records > 1 THEN
    RAISE EXCEPTION 'the result is too large' USING ERRCODE = 'program_limit_exceeded', CONSTRAINT = 'result_fits';
  END IF;
END $$;

-- Return how many of the first rows fit into one result: at least one. Their columns are measured, and no record is built. `of_types` has
-- the type of each row, or one type for all of them.
CREATE OR REPLACE FUNCTION rem_count_fitting(of_tenant text, of_types text[], of_ids uuid[]) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
DECLARE
  bytes bigint := 0;
BEGIN
  FOR position IN 1 .. coalesce(cardinality(of_ids), 0) LOOP
    bytes := bytes + coalesce(rem.rem_record_bytes(of_types[least(position, cardinality(of_types))], of_tenant, of_ids[position]), 0);
    IF bytes > rem.rem_max_result_bytes() THEN
      RETURN greatest(position - 1, 1);
    END IF;
  END LOOP;
  RETURN coalesce(cardinality(of_ids), 0);
END $$;

-- Raise an error if some rows do not fit into one result, before any record is built. Return true, for a WHERE.
CREATE OR REPLACE FUNCTION rem_check_rows_fit(of_tenant text, of_types text[], of_ids uuid[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF rem.rem_count_fitting(of_tenant, of_types, of_ids) < cardinality(of_ids) THEN
    RAISE EXCEPTION 'the result is too large' USING ERRCODE = 'program_limit_exceeded', CONSTRAINT = 'result_fits';
  END IF;
  RETURN true;
END $$;

-- Return the matches of several labels, in their order, as a JSON list of [position of the label, type, record].
CREATE OR REPLACE FUNCTION rem_lookup(of_tenant text, of_user text, labels text[], of_type text) RETURNS json
LANGUAGE plpgsql STABLE AS $$
DECLARE
  label_matches text;
  label_count integer;
  matches text[];
  bytes bigint := 0;
  records integer := 0;
BEGIN
  FOR position IN 1 .. cardinality(labels) LOOP
    SELECT string_agg(
        '[' || position || ',"' || k.entity_type || '",'
          || coalesce(k.record, rem.rem_record(k.entity_type, of_tenant, k.entity_id)::text) || ']',
        ',' ORDER BY k.is_own DESC, k.key_rank, k.entity_type, k.entity_id), count(*)
      INTO label_matches, label_count FROM rem.rem_resolve_label(of_tenant, of_user, labels[position], of_type) k;
    matches := matches || label_matches;
    bytes := bytes + coalesce(octet_length(label_matches), 0);
    records := records + label_count;
    PERFORM rem.rem_check_result_bytes(bytes, records);
  END LOOP;
  RETURN '[' || coalesce(array_to_string(matches, ','), '') || ']';
END $$;
