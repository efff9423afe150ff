"""Compare LOOKUP and SEARCH of one tenant among 10,000 with the same rows in a database of one tenant."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Call, Result, percentile, print_progress, time_in_turns
from bench.partitions import create_database
from bench.search import KnownVectors, prepare_vectors, read_questions
from rem import Rem, Settings
from rem.db.sql import parse_blocks
from rem.query.tree import Search
from rem.query.verbs.search import Searcher
from rem.search.indexer import Indexer

OWNER = "owner"
TENANT = "tenant-1"
TENANTS_AT_ONCE = 1_000
MAX_RATIO = 1.5
_SQL = parse_blocks((Path(__file__).parent / "tenants.sql").read_text())


@dataclass(frozen=True, slots=True)
class TenantSizes:
    """How much is stored and measured."""

    tenants: int = 10_000
    rows: int = 10
    rounds: int = 1_000


QUICK = TenantSizes(tenants=50, rows=10, rounds=50)


async def run(settings: Settings, sizes: TenantSizes | None = None) -> Result:
    """Measure the same tenant in both databases in turns, and other tenants of the large one at random."""
    sizes = sizes or TenantSizes()
    result = Result("tenants")
    many_settings = await create_database(settings, "many", None)
    one_settings = await create_database(settings, "one", None)
    async with Rem.open(many_settings) as many, Rem.open(one_settings) as one:
        await _fill(many, sizes)
        await _copy_tenant(many, one)
        calls = await _make_calls({"many": many, "one": one}, sizes)
        times = await time_in_turns(calls, sizes.rounds)
        async with many.database.connection() as connection:
            size = await connection.fetchval("SELECT pg_database_size(current_database())")
    figures = {
        name: {f"p{percent}_ms": round(percentile(values, percent) * 1000, 3) for percent in (50, 95)}
        for name, values in times.items()
    }
    result.figures = {"tenants": sizes.tenants, "rows_of_a_tenant": sizes.rows, "database_bytes": size, **figures}
    for verb in ("lookup", "search"):
        for percent in ("p50_ms", "p95_ms"):
            ratio = figures[f"{verb} many"][percent] / figures[f"{verb} one"][percent]
            print_progress(f"tenants: {verb} {percent} {figures[f'{verb} many'][percent]}, ratio {ratio:.2f}")
            result.check(f"{verb} {percent} among {sizes.tenants:,} tenants against one tenant", ratio, MAX_RATIO)
    return result


async def _fill(rem: Rem, sizes: TenantSizes) -> None:
    """Store the rows of all tenants with their passages and vectors."""
    print_progress(f"tenants: storing {sizes.tenants:,} tenants with {sizes.rows} rows each ...")
    await prepare_vectors(rem.database)
    async with rem.database.connection() as connection:
        for first in range(1, sizes.tenants + 1, TENANTS_AT_ONCE):
            last = min(first + TENANTS_AT_ONCE - 1, sizes.tenants)
            await connection.execute(_SQL["rows"], OWNER, sizes.rows, first, last)
    await _finish(rem)


async def _copy_tenant(many: Rem, one: Rem) -> None:
    """Store the rows of the measured tenant in the other database, with the same ids and vectors."""
    await prepare_vectors(one.database)
    async with many.database.connection() as source, one.database.connection() as target:
        rows = await source.fetch(_SQL["export_tenant"], TENANT)
        await target.executemany(_SQL["import_row"], [(TENANT, OWNER, *row) for row in rows])
    await _finish(one)


async def _finish(rem: Rem) -> None:
    async with rem.database.connection() as connection:
        await connection.execute("SET maintenance_work_mem = '1GB'")
        await connection.execute("DELETE FROM rem.search_queue")
        await connection.execute(_SQL["passages"])
        await connection.execute("SELECT rem.rem_index_passages(1::smallint, 384)")
        await connection.execute("SELECT rem.rem_fold_statistics()")
        await connection.execute(_SQL["means"])
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")


async def _make_calls(databases: dict[str, Rem], sizes: TenantSizes) -> dict[str, Call]:
    calls: dict[str, Call] = {}
    for name, rem in databases.items():
        questions = await read_questions(rem.database)
        embedder = KnownVectors(questions)
        searcher = Searcher(rem.database, embedder, Indexer(rem.database, embedder, "english"))
        texts = list(questions)
        calls |= {
            f"lookup {name}": _make_lookup(rem, sizes, 1),
            f"search {name}": _make_search(rem, searcher, texts, 1),
        }
        if name == "many":
            calls |= {
                "lookup any": _make_lookup(rem, sizes, sizes.tenants),
                "search any": _make_search(rem, searcher, texts, sizes.tenants),
            }
    return calls


def _make_lookup(rem: Rem, sizes: TenantSizes, tenants: int) -> Call:
    async def lookup(turn: int) -> None:
        source = random.Random(turn)
        store = rem.for_user(OWNER, tenant=f"tenant-{source.randrange(tenants) + 1}").store
        assert await store.lookup(f"row-{source.randrange(sizes.rows) + 1}")

    return lookup


def _make_search(rem: Rem, searcher: Searcher, texts: list[str], tenants: int) -> Call:
    async def search(turn: int) -> None:
        store = rem.for_user(OWNER, tenant=f"tenant-{random.Random(turn).randrange(tenants) + 1}").store
        found = await searcher.search(store, Search(texts[turn % len(texts)], limit=10, min_similarity=0))
        assert found.count

    return search
