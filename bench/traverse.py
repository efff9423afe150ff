"""Compare TRAVERSE to depth 3 with a bare recursive query for the same nodes, and with the graph in memory."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import orjson

from bench.measure import Call, Result, measure_in_turns, print_progress
from rem import Rem, Settings
from rem.db.database import Database
from rem.query.tree import Lookup, Traverse

NODES = 100_000
_DEGREE = 10
_DEPTH = 3
_ROUNDS = 100
_USER = "walker"
_STEPS = (7919, 104729, 15485863, 32452843, 49979687, 67867967, 86028121, 104395301, 122949823, 141650939)
_FILL = """
INSERT INTO rem.resources (user_id, name, content, graph_edges)
SELECT $3, 'node-' || i, 'What is remembered of node ' || i,
       (SELECT jsonb_agg(jsonb_build_object('dst', 'node-' || (i + 1) * step % $4, 'rel_type', 'links_to', 'weight', 1))
        FROM unnest($5::bigint[]) AS step)
FROM generate_series($1::bigint, $2::bigint) AS i
"""
_BARE = """
WITH RECURSIVE walk AS (
  SELECT k.entity_type, k.entity_id, k.entity_key, k.record, 0 AS depth, ARRAY[k.entity_key] AS path,
         NULL::text AS rel_type, NULL::double precision AS weight
  FROM rem.kv_store k
  WHERE k.tenant_id = 'default' AND k.entity_key = $2 AND (k.user_id = $1 OR k.user_id IS NULL)
  UNION ALL
  SELECT k.entity_type, k.entity_id, k.entity_key, k.record, w.depth + 1, w.path || k.entity_key, e.rel_type, e.weight
  FROM walk w
  JOIN rem.edges e ON e.tenant_id = 'default' AND e.src_id = w.entity_id AND e.src_type = w.entity_type
    AND (e.user_id = $1 OR e.user_id IS NULL)
  JOIN rem.kv_store k ON k.tenant_id = 'default' AND k.entity_key = e.dst_key AND (k.user_id = $1 OR k.user_id IS NULL)
  WHERE w.depth < $3 AND k.entity_key <> ALL (w.path)
)
SELECT entity_type, entity_key, depth, path, rel_type, weight, record
FROM (SELECT DISTINCT ON (entity_type, entity_id) * FROM walk ORDER BY entity_type, entity_id, depth, weight DESC) n
WHERE depth > 0 ORDER BY depth, weight DESC, entity_key
"""


async def run(settings: Settings, nodes: int = NODES, rounds: int = _ROUNDS) -> Result:
    """Measure the same walks in all three ways, in turn."""
    result = Result("traverse")
    async with Rem.open(settings) as rem:
        await _fill(rem.database, nodes)
        times = await _measure(rem, nodes, rounds)
    result.figures = {"nodes": nodes, "edges": nodes * _DEGREE, "depth": _DEPTH, **times}
    print_progress(f"traverse: {result.figures}")
    limit = times["rem_traverse"] / times["bare_recursive_query"]
    result.check(f"TRAVERSE to depth {_DEPTH} of {nodes:,} nodes against a bare recursive query", limit, 1.5)
    return result


async def _fill(database: Database, nodes: int) -> None:
    print_progress(f"storing {nodes:,} nodes with {nodes * _DEGREE:,} edges ...")
    async with database.connection() as connection:
        for start in range(0, nodes, 20_000):
            end = min(start + 20_000, nodes)
            await connection.execute(_FILL, start, end - 1, _USER, nodes, list(_STEPS))
        for table in ("resources", "kv_store", "edges"):
            await connection.execute(f"VACUUM ANALYZE rem.{table}")
        await connection.execute("CHECKPOINT")


async def _measure(rem: Rem, nodes: int, rounds: int) -> dict[str, Any]:
    source = random.Random(nodes)
    starts = [source.randrange(nodes) for _ in range(rounds + 50)]
    reached: dict[str, list[int]] = defaultdict(list)

    async def rem_traverse(turn: int) -> None:
        result = await rem.for_user(_USER).query(Traverse(Lookup((f"node-{starts[turn]}",)), depth=_DEPTH))
        reached["rem"].append(result.count)

    async def bare(turn: int) -> None:
        async with rem.database.pool.acquire() as connection:
            rows = await connection.fetch(_BARE, _USER, f"node-{starts[turn]}", _DEPTH)
        reached["bare"].append(len([{**row, "record": orjson.loads(row["record"])} for row in rows]))

    async def in_memory(turn: int) -> None:
        reached["memory"].append(len(_breadth_first(starts[turn], nodes)))

    calls: dict[str, Call] = {"bare_recursive_query": bare, "rem_traverse": rem_traverse, "in_memory": in_memory}
    times = await measure_in_turns(calls, rounds, warm_up=10)
    assert reached["rem"] == reached["bare"] == reached["memory"]
    return {"nodes_reached": round(sum(reached["rem"]) / len(reached["rem"])), **times}


def _breadth_first(start: int, nodes: int) -> dict[int, list[int]]:
    """Walk the same edges in memory, and return the path to each reached node."""
    paths = {start: [start]}
    level = [start]
    for _ in range(_DEPTH):
        reached = []
        for node in level:
            for step in _STEPS:
                target = (node + 1) * step % nodes
                if target not in paths:
                    paths[target] = [*paths[node], target]
                    reached.append(target)
        level = reached
    del paths[start]
    return paths
