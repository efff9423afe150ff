"""Compare a database with partitions with one without: the same rows on the same server, measured in turns."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from pydantic import SecretStr

from bench.measure import Call, Result, measure_in_turns, median, print_progress
from bench.search import KnownVectors, prepare_vectors, read_questions
from rem import Edge, Rem, Resource, Settings
from rem.db.database import Database, migrate_schema
from rem.db.preflight import read_server_info
from rem.db.sql import parse_blocks
from rem.query.tree import Search
from rem.query.verbs.search import Searcher
from rem.search.indexer import Indexer

PARTITIONS = 16
LARGE_TENANT = "large"
OWNER = "owner"
BULK_REPEATS = 3
_SQL = parse_blocks((Path(__file__).parent / "search.sql").read_text())


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is stored and measured. An owner of more than 20,000 passages is searched with the HNSW index."""

    tenants: int = 40
    tenant_rows: int = 500
    large_rows: int = 25_000
    bulk_rows: int = 5_000
    rounds: int = 500


QUICK = Sizes(tenants=4, tenant_rows=100, large_rows=200, bulk_rows=500, rounds=30)


async def run(settings: Settings, sizes: Sizes | None = None) -> Result:
    """Measure reads and writes of small tenants, SEARCH of a large one, and bulk loads."""
    sizes = sizes or Sizes()
    result = Result("partitions")
    plain_settings = await create_database(settings, "plain", None)
    divided_settings = await create_database(settings, "divided", PARTITIONS)
    async with Rem.open(plain_settings) as plain, Rem.open(divided_settings) as divided:
        databases = {"plain": plain, "divided": divided}
        for rem in databases.values():
            await _fill(rem, sizes)
        times = await measure_in_turns(
            _name_calls({name: await _make_reads(rem, sizes) for name, rem in databases.items()}), sizes.rounds
        )
        # Afterwards: SEARCH would index the written rows.
        times |= await measure_in_turns(
            _name_calls({name: _make_writes(rem, sizes) for name, rem in databases.items()}), sizes.rounds
        )
        times |= await _load_in_turns(databases, sizes)
        result.figures = {"partitions": PARTITIONS, **times}
        for call in dict.fromkeys(name.rpartition(" ")[0] for name in times):
            ratio = times[f"{call} divided"] / times[f"{call} plain"]
            print_progress(f"partitions: {call}: {times[f'{call} plain']} plain, ratio {ratio:.2f}")
            result.check(f"{call} with {PARTITIONS} partitions against none", ratio, 1.3)
    return result


async def create_database(settings: Settings, name: str, partitions: int | None) -> Settings:
    """Create and migrate a database on the embedded server, and return the settings for it."""
    address = Database(settings).get_connection_string()
    admin = await asyncpg.connect(address)
    await admin.execute(f"CREATE DATABASE {name}")
    await admin.close()
    own = address.replace("/rem?", f"/{name}?")
    external = settings.model_copy(
        update={"postgres": settings.postgres.model_copy(update={"connection_string": SecretStr(own)})}
    )
    async with Database(external).unpooled_connection() as connection:
        await migrate_schema(connection, external, await read_server_info(connection), partitions)
    return external


async def _fill(rem: Rem, sizes: Sizes) -> None:
    """Store the rows of all tenants with their passages and vectors."""
    print_progress(f"partitions: storing {sizes.tenants * sizes.tenant_rows + sizes.large_rows:,} rows ...")
    await prepare_vectors(rem.database)
    async with rem.database.connection() as connection:
        await connection.execute("SET maintenance_work_mem = '1GB'")
        tenants = {_name(number): sizes.tenant_rows for number in range(sizes.tenants)} | {
            LARGE_TENANT: sizes.large_rows
        }
        for tenant, rows in tenants.items():
            await connection.execute(_SQL["rows"], tenant, OWNER, 0, rows - 1)
        await connection.execute("ANALYZE")
        for tenant in tenants:
            await connection.execute(_SQL["passages"], tenant, 1)
        await connection.execute("DELETE FROM rem.search_queue")
        await connection.execute("SELECT rem.rem_index_passages(1::smallint, 384)")
        await connection.execute("SELECT rem.rem_fold_statistics()")
        await connection.execute("VACUUM ANALYZE")
        await connection.execute("CHECKPOINT")


def _name(number: int) -> str:
    return f"tenant-{number}"


def _name_calls(calls_by_database: dict[str, dict[str, Call]]) -> dict[str, Call]:
    """Return the calls of all databases, those of the same kind one after the other."""
    kinds = next(iter(calls_by_database.values()))
    return {f"{kind} {name}": calls[kind] for kind in kinds for name, calls in calls_by_database.items()}


def _pick(turn: int, sizes: Sizes) -> tuple[int, int]:
    """Return the tenant and the row of a turn, the same for both databases."""
    source = random.Random(turn)
    return source.randrange(sizes.tenants), source.randrange(sizes.tenant_rows)


async def _make_reads(rem: Rem, sizes: Sizes) -> dict[str, Call]:
    questions = await read_questions(rem.database)
    texts = list(questions)
    async with rem.database.connection() as connection:
        ids = {
            (row[0], row[1]): row[2] for row in await connection.fetch("SELECT tenant_id, key, id FROM rem.resources")
        }
    embedder = KnownVectors(questions)
    searcher = Searcher(rem.database, embedder, Indexer(rem.database, embedder, "english"))
    stores = [rem.for_user(OWNER, tenant=_name(number)).store for number in range(sizes.tenants)]
    large = rem.for_user(OWNER, tenant=LARGE_TENANT).store

    async def lookup(turn: int) -> None:
        tenant, row = _pick(turn, sizes)
        assert await stores[tenant].lookup(f"row-{row}")

    async def get(turn: int) -> None:
        tenant, row = _pick(turn, sizes)
        assert await stores[tenant].get(Resource, ids[_name(tenant), f"row-{row}"])

    async def traverse(turn: int) -> None:
        tenant, row = _pick(turn, sizes)
        await rem.for_user(OWNER, tenant=_name(tenant)).query(f'TRAVERSE "row-{row}" DEPTH 2')

    async def search(turn: int) -> None:
        assert (await searcher.search(stores[_pick(turn, sizes)[0]], _ask(texts, turn))).count

    async def search_large(turn: int) -> None:
        assert (await searcher.search(large, _ask(texts, turn))).count

    return {
        "lookup": lookup,
        "get": get,
        "traverse": traverse,
        "search": search,
        "search in a large tenant": search_large,
    }


def _make_writes(rem: Rem, sizes: Sizes) -> dict[str, Call]:
    stores = [rem.for_user(OWNER, tenant=_name(number)).store for number in range(sizes.tenants)]

    async def update(turn: int) -> None:
        tenant, row = _pick(turn, sizes)
        await stores[tenant].upsert(Resource(name=f"Row {row}", category=f"turn {turn}"))

    async def insert(turn: int) -> None:
        edges = [Edge(dst="row-1", rel_type="cites")]
        await stores[_pick(turn, sizes)[0]].upsert(
            Resource(name=f"New {turn}", content="A new row.", graph_edges=edges)
        )

    return {"update": update, "insert": insert}


def _ask(texts: list[str], turn: int) -> Search:
    return Search(texts[turn % len(texts)], limit=10, min_similarity=0)


async def _load_in_turns(databases: dict[str, Rem], sizes: Sizes) -> dict[str, float]:
    """Return the median seconds of a bulk load into a new tenant of each database."""
    seconds: dict[str, list[float]] = {name: [] for name in databases}
    edges = [Edge(dst="bulk-1", rel_type="cites")]
    for repeat in range(BULK_REPEATS):
        for name, rem in databases.items():
            rows = [
                Resource(name=f"Bulk {n}", content=f"Row {n} of a bulk load.", graph_edges=edges)
                for n in range(sizes.bulk_rows)
            ]
            started = time.perf_counter()
            await rem.for_user(OWNER, tenant=f"bulk-{repeat}").store.upsert_many(rows)
            seconds[name].append(time.perf_counter() - started)
    return {f"bulk load {name}": round(median(values), 3) for name, values in seconds.items()}
