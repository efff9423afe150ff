"""Measure Store.lookup against a bare primary-key SELECT on the same pool, for growing tables."""

from __future__ import annotations

import random
from uuid import UUID

from bench.measure import Result, measure_in_turns, print_progress
from rem import Rem, Resource, Settings
from rem.db.database import Database

SIZES = (1_000, 100_000, 1_000_000)
_USERS = 100
_ROUNDS = 2_000
_FILL = """
INSERT INTO rem.resources (user_id, name, content, graph_edges, metadata, tags)
SELECT 'user-' || i % {users}, 'Entity Number ' || i, repeat('What is remembered of this entity. ', 10) || i,
       jsonb_build_array(jsonb_build_object('dst', 'entity-number-' || i * 7 % 1000, 'rel_type', 'links_to')),
       jsonb_build_object('number', i), ARRAY['bench']
FROM generate_series($1::integer, $2::integer) AS i
"""


async def run(settings: Settings, sizes: tuple[int, ...] = SIZES) -> Result:
    """Measure at each size, and check the growth of the time of a lookup."""
    result = Result("lookup")
    medians: list[float] = []
    async with Rem.open(settings) as rem:
        stored = 0
        for size in sizes:
            await _fill(rem.database, stored, size)
            stored = size
            times = await _measure(rem, size)
            medians.append(times["rem_lookup"])
            result.figures[f"{size}"] = times
            print_progress(f"lookup at {size:,}: {times}")
            result.check(f"lookup p50 against bare SELECT at {size:,}", times["rem_lookup"] / times["bare_select"], 1.5)
    result.check(f"growth of lookup from {sizes[0]:,} to {sizes[-1]:,}", medians[-1] / medians[0], 1.3)
    return result


async def _fill(database: Database, first: int, last: int) -> None:
    print_progress(f"storing {last - first:,} entities ...")
    async with database.connection() as connection:
        for start in range(first, last, 100_000):
            end = min(start + 100_000, last)
            await connection.execute(_FILL.format(users=_USERS), start, end - 1)
        for table in ("resources", "kv_store", "edges"):
            await connection.execute(f"VACUUM ANALYZE rem.{table}")
        await connection.execute("CHECKPOINT")


async def _measure(rem: Rem, size: int) -> dict[str, float]:
    source = random.Random(size)
    numbers = [source.randrange(size) for _ in range(_ROUNDS + 50)]
    ids = await _read_ids(rem.database, numbers)
    stores = [rem.for_user(f"user-{number}").store for number in range(_USERS)]

    async def rem_lookup(turn: int) -> None:
        number = numbers[turn]
        entities = await stores[number % _USERS].lookup(f"entity-number-{number}")
        assert isinstance(entities[0], Resource)

    async def bare_select(turn: int) -> None:
        async with rem.database.pool.acquire() as connection:
            row = await connection.fetchrow(
                "SELECT * FROM rem.resources WHERE tenant_id = $1 AND id = $2", "default", ids[numbers[turn]]
            )
        assert row is not None

    return await measure_in_turns({"bare_select": bare_select, "rem_lookup": rem_lookup}, _ROUNDS)


async def _read_ids(database: Database, numbers: list[int]) -> dict[int, UUID]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT (metadata ->> 'number')::integer, id FROM rem.resources WHERE key = ANY ($1::text[])",
            [f"entity-number-{number}" for number in numbers],
        )
    return {row[0]: row[1] for row in rows}
