"""Measure Store.upsert_many, with all triggers, against a bare COPY into a table with the same indexes.

Each row also has a key and two edges in the mirror tables. How long it takes to copy these into empty tables with the
same indexes shows the floor: no implementation that keeps the mirrors can be faster.
"""

from __future__ import annotations

import time
from typing import Any

from bench.measure import Result, median, print_progress
from rem import Edge, Rem, Resource, Settings
from rem.db.maintenance import check_mirrors

ROWS = 100_000
_REPEATS = 3
_COLUMNS = ["name", "content", "graph_edges", "metadata", "tags"]


async def run(settings: Settings, rows: int = ROWS) -> Result:
    """Load the same rows in both ways, several times in turns."""
    result = Result("bulk_load")
    started = time.perf_counter()
    entities = [_create_entity(number, rows) for number in range(rows)]
    building = time.perf_counter() - started
    records = [_to_record(entity) for entity in entities]
    bare, mirrors, loaded, again, computing = [], [], [], [], []
    async with Rem.open(settings) as rem:
        for _ in range(_REPEATS):
            bare.append(await _bare_copy(rem, records))
            computed = time.process_time()
            loaded.append(await _load(rem, entities))
            computing.append(time.process_time() - computed)
            mirrors.append(await _copy_mirrors(rem))
            again.append(await _load(rem, entities, empty_first=False))
            print_progress(
                f"bulk load of {rows:,}: bare {bare[-1]:.2f} s, mirrors {mirrors[-1]:.2f} s, "
                f"library {loaded[-1]:.2f} s, again {again[-1]:.2f} s"
            )
        parts = await _measure_parts(rem)
        report = await check_mirrors(rem.database)
        assert report.is_exact
        assert (report.keys, report.edges) == (rows, 2 * rows)
    result.figures = {
        "rows": rows,
        "bare_copy_seconds": round(median(bare), 3),
        "bare_mirrors_seconds": round(median(mirrors), 3),
        "ratio_to_bare_copy_and_mirrors": round(median(loaded) / (median(bare) + median(mirrors)), 2),
        "library_seconds": round(median(loaded), 3),
        "library_again_seconds": round(median(again), 3),
        "building_the_entities_seconds": round(building, 3),
        "library_python_seconds": round(median(computing), 3),
        **parts,
        "rows_per_second": round(rows / median(loaded)),
    }
    result.check(f"bulk load of {rows:,} against bare COPY", median(loaded) / median(bare), 4.0)
    return result


def _create_entity(number: int, rows: int) -> Resource:
    return Resource(
        name=f"Entity Number {number}",
        content=f"What is remembered of entity {number}. " * 10,
        graph_edges=[
            Edge(dst=f"entity-number-{number * 7 % rows}", rel_type="links_to", weight=0.5),
            Edge(dst=f"entity-number-{number * 13 % rows}", rel_type="cites"),
        ],
        metadata={"number": number, "kind": "note"},
        tags=["bench", "note"],
    )


def _to_record(entity: Resource) -> tuple[Any, ...]:
    edges = [edge.model_dump(mode="json") for edge in entity.graph_edges]
    return (entity.name, entity.content, edges, entity.metadata, entity.tags)


async def _bare_copy(rem: Rem, records: list[tuple[Any, ...]]) -> float:
    async with rem.database.connection() as connection:
        await connection.execute("DROP TABLE IF EXISTS rem.bare")
        await connection.execute("CREATE TABLE rem.bare (LIKE rem.resources INCLUDING ALL)")
        await connection.execute("CHECKPOINT")
        started = time.perf_counter()
        await connection.copy_records_to_table("bare", schema_name="rem", records=records, columns=_COLUMNS)
        seconds = time.perf_counter() - started
        await connection.execute("DROP TABLE rem.bare")
    return seconds


async def _copy_mirrors(rem: Rem) -> float:
    """Copy the keys and edges of the loaded rows into empty tables with the same indexes."""
    seconds = 0.0
    async with rem.database.connection() as connection:
        for table, kind in (("kv_store", "UNLOGGED"), ("edges", "")):
            columns = await connection.fetchval(
                "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute WHERE attrelid = $1::regclass "
                "AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
                f"rem.{table}",
            )
            await connection.execute(f"CREATE {kind} TABLE rem.bare (LIKE rem.{table} INCLUDING ALL)")
            await connection.execute("CHECKPOINT")
            started = time.perf_counter()
            await connection.execute(f"INSERT INTO rem.bare ({columns}) SELECT {columns} FROM rem.{table}")
            seconds += time.perf_counter() - started
            await connection.execute("DROP TABLE rem.bare")
    return seconds


async def _measure_parts(rem: Rem) -> dict[str, float]:
    """Measure what the database computes for a bulk load besides writing: the keys, and the rows of the mirrors."""
    statements = {
        "keys_seconds": "SELECT 'SELECT rem.rem_key(name) FROM rem.' || $1::text",
        "kv_store_rows_seconds": "SELECT rem.rem_kv_query(e, 'rem.resources') FROM rem.entity_types e WHERE name = $1",
        "edges_rows_seconds": "SELECT rem.rem_edges_query(e, 'rem.resources') FROM rem.entity_types e WHERE name = $1",
    }
    seconds = {}
    async with rem.database.connection() as connection:
        for part, statement in statements.items():
            query = await connection.fetchval(statement, "resources")
            started = time.perf_counter()
            await connection.execute(f"EXPLAIN (ANALYZE, TIMING OFF, SERIALIZE) {query}")
            seconds[part] = round(time.perf_counter() - started, 3)
    return seconds


async def _load(rem: Rem, entities: list[Resource], *, empty_first: bool = True) -> float:
    async with rem.database.connection() as connection:
        if empty_first:
            await connection.execute("TRUNCATE rem.resources CASCADE")
            for table in ("resources", "kv_store", "edges"):
                await connection.execute(f"VACUUM rem.{table}")
        await connection.execute("CHECKPOINT")
    started = time.perf_counter()
    report = await rem.for_user().store.upsert_many(entities)
    seconds = time.perf_counter() - started
    assert report.counts["inserted" if empty_first else "unchanged"] == len(entities)
    return seconds
