"""Compare SEARCH in one scope with the two bare pgvector queries for the same rows, at growing sizes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.measure import Call, Result, measure_in_turns, print_progress
from rem import Rem, Settings
from rem.db.database import Database
from rem.db.sql import parse_blocks
from rem.query.tree import Search
from rem.query.verbs.search import Searcher
from rem.search.indexer import Indexer, vector_to_text

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.search.embedder import Vector, Vectors

SIZES = (100_000, 1_000_000)
LARGE_SIZES = (1_000_000, 10_000_000)
_CHUNK = 250_000
_OWNERS = (("few", 60), ("some", 3_000), ("many", 50_000))
_TENANT = "default"
_LIMIT = 10
ROUNDS = 200
_IDENTIFIER = " AB-"
"""The beginning of the identifier that each row has, with its number."""
_SQL = parse_blocks((Path(__file__).parent / "search.sql").read_text())


class KnownVectors:
    """An embedder with precomputed vectors, because embedding is not measured here."""

    model = "bench"
    dimension = 384

    def __init__(self, vectors: dict[str, Vector]) -> None:
        self._vectors = vectors

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of known texts."""
        return np.stack([self._vectors[text] for text in texts])

    async def embed_one(self, text: str) -> Vector:
        """Return the vector of a known text, which may end with an identifier."""
        return self._vectors[text.partition(_IDENTIFIER)[0]]

    async def close(self) -> None:
        """Do nothing."""


async def run_large(settings: Settings, sizes: tuple[int, int] = LARGE_SIZES, rounds: int = ROUNDS) -> Result:
    """Compare SEARCH at ten million passages with one million, for owners that are searched without the vector index.

    The further passages have no rows: SEARCH finds passages, and reads the rows of the ten best only. The vector index
    of ten million passages is not made: that takes an hour and 15 GB of memory.
    """
    result = await run(settings, sizes, rounds, max_rows=sizes[0], owners=_OWNERS[:2])
    for owner, _ in _OWNERS[:2]:
        if growth := result.figures.get(f"growth {owner}"):
            result.check(f"SEARCH p50 at {sizes[1]:,} passages against {sizes[0]:,}, {owner}", growth, 2.0)
    return result


async def run(
    settings: Settings,
    sizes: tuple[int, ...] = SIZES,
    rounds: int = ROUNDS,
    max_rows: int | None = None,
    owners: tuple[tuple[str, int], ...] = _OWNERS,
) -> Result:
    """Measure at each size, for owners of few, some and many rows. Only the last ones need the vector index."""
    has_index = owners == _OWNERS
    result = Result("search")
    async with Rem.open(settings) as rem:
        await prepare_vectors(rem.database)
        questions = await read_questions(rem.database)
        searcher = Searcher(
            rem.database, KnownVectors(questions), Indexer(rem.database, KnownVectors(questions), "english")
        )
        stored = 0
        for size in sizes:
            await _fill(rem.database, stored, size, max_rows or size, has_index)
            stored = size
            async with rem.database.connection() as connection:
                sizes_in_bytes = {row["name"]: row["bytes"] for row in await connection.fetch(_SQL["sizes"])}
            result.figures[f"bytes {size}"] = sizes_in_bytes
            print_progress(f"search, bytes of {size:,} rows: {sizes_in_bytes}")
            for owner, rows in owners:
                if rows <= size // 2:
                    await _measure(result, rem, searcher, questions, size, owner, rounds, has_index)
    for owner, _ in _OWNERS:
        first, last = (result.figures.get(f"{size} {owner}", {}).get("rem_search") for size in (sizes[0], sizes[-1]))
        if first and last:
            result.figures[f"growth {owner}"] = round(last / first, 2)
    return result


async def prepare_vectors(database: Database) -> None:
    """Store the parts of the vectors, and the model that they belong to."""
    async with database.connection() as connection:
        await connection.execute("SET maintenance_work_mem = '2GB'")
        await connection.execute("SELECT setseed(0.42)")
        await connection.execute(_SQL["parts"])
        for kind, parts in _parts().items():
            await connection.execute(_SQL["store_parts"], kind, [vector_to_text(part) for part in parts])
        await connection.execute(
            "INSERT INTO rem.embedding_models (name, dimension, is_current) VALUES ('bench', 384, true)"
        )


def _parts() -> dict[str, Vectors]:
    """Return the parts of vectors: topic centres, deviations, details, in the few directions in which texts differ.

    Plain random numbers in 384 dimensions would all be equally far from each other, as no texts are.
    """
    source = np.random.default_rng(42)
    directions = source.normal(size=(32, 384))
    counts = {"middle": (400, 1.0), "deviation": (4000, 0.8), "detail": (4000, 0.2)}
    return {
        kind: (source.normal(size=(count, 32)) @ directions * scale + source.normal(size=(count, 384)) * 0.5).astype(
            np.float32
        )
        for kind, (count, scale) in counts.items()
    }


async def read_questions(database: Database) -> dict[str, Vector]:
    """Return questions with their vectors."""
    source = random.Random(7)
    async with database.connection() as connection:
        vectors = await connection.fetch(_SQL["asked_vectors"], ROUNDS + 50)
    return {
        " ".join(_word(int(np.exp(source.random() * np.log(30000)))) for _ in range(6)): np.array(
            vector[0].strip("[]").split(","), dtype=np.float32
        )
        for vector in vectors
    }


def _word(number: int) -> str:
    """Return a word of letters for a number, as `rows` in search.sql makes it."""
    return "w" + str(number).translate(str.maketrans("0123456789", "bcdfghjklm"))


async def _fill(database: Database, first: int, last: int, max_rows: int, has_index: bool) -> None:
    print_progress(f"search: storing {last - first:,} rows ...")
    async with database.connection() as connection:
        await connection.execute("SET maintenance_work_mem = '2GB'")
        await connection.execute("DROP INDEX IF EXISTS rem.passages_embedding_1")
        if first < max_rows:
            await _store_rows(connection, first, min(last, max_rows))
        await _store_further_passages(connection, max(first, max_rows), last)
        if has_index:
            print_progress("search: making the index of the vectors ...")
            await connection.execute("SELECT rem.rem_index_passages(1::smallint, 384)")
        await connection.execute("SELECT rem.rem_fold_statistics()")
        await connection.execute(
            "INSERT INTO rem.embedding_means SELECT tenant_id, owner, 1, avg(embedding), count(*) "
            "FROM rem.passages GROUP BY tenant_id, owner ON CONFLICT DO NOTHING"
        )
        for table in ("resources", "kv_store", "passages", "term_counts", "passage_totals"):
            await connection.execute(f"VACUUM ANALYZE rem.{table}")
        await connection.execute("CHECKPOINT")


async def _store_rows(connection: Connection, first: int, last: int) -> None:
    """Store rows with one passage each, for the measured owners at first, then for 100 others."""
    start = first
    owners = _OWNERS if first == 0 else ()
    others = (last - first - sum(rows for _, rows in owners)) // 100
    for owner, rows in (*owners, *((f"user-{number}", others) for number in range(100))):
        end = min(start + rows, last)
        await connection.execute(_SQL["rows"], _TENANT, owner, start, end - 1)
        start = end
    # The passages are made here, with vectors that no model has to compute.
    await connection.execute("DELETE FROM rem.search_queue")
    await connection.execute(_SQL["passages"], _TENANT, 1)


async def _store_further_passages(connection: Connection, first: int, last: int) -> None:
    """Store passages without rows, for the 100 others."""
    if first >= last:
        return
    words_index = await connection.fetchval("SELECT pg_get_indexdef('rem.passages_words'::regclass)")
    await connection.execute("DROP INDEX rem.passages_words")
    for start in range(first, last, _CHUNK):
        await connection.execute(_SQL["further_passages"], _TENANT, 1, min(_CHUNK, last - start))
        await connection.execute("SELECT rem.rem_fold_statistics()")
        print_progress(f"search: {min(start + _CHUNK, last):,} passages stored")
    print_progress("search: making the index of the words ...")
    await connection.execute(words_index)


def _first_number(owner: str) -> int:
    """Return the number of the first row of an owner."""
    return sum(rows for _, rows in itertools.takewhile(lambda item: item[0] != owner, _OWNERS))


async def _measure(
    result: Result,
    rem: Rem,
    searcher: Searcher,
    questions: dict[str, Vector],
    size: int,
    owner: str,
    rounds: int,
    has_index: bool,
) -> None:
    store = rem.for_user(owner, tenant=_TENANT).store
    texts = list(questions)
    literals = [f"[{','.join(map(str, questions[text].tolist()))}]" for text in texts]

    async def rem_search(turn: int) -> None:
        found = await searcher.search(store, Search(texts[turn], limit=_LIMIT, min_similarity=0))
        assert found.count == _LIMIT, f"{found.count} rows"

    async def rem_search_identifier(turn: int) -> None:
        number = _first_number(owner) + turn % _OWNERS[0][1]
        query = Search(f"{texts[turn]}{_IDENTIFIER}{number}", limit=_LIMIT, min_similarity=0)
        found = await searcher.search(store, query)
        assert found.hits[0].record["name"] == f"Row {number}"

    async def bare(statement: str, query: str) -> Any:
        async with rem.database.connection() as connection, connection.transaction():
            # The settings of SEARCH itself: with pgvector's default of 40, the recall is too low.
            await connection.execute("SET LOCAL hnsw.ef_search = 100; SET LOCAL hnsw.iterative_scan = 'relaxed_order'")
            return await connection.fetch(statement, _TENANT, owner, query, _LIMIT)

    async def bare_exact(turn: int) -> None:
        await bare(_SQL["bare_exact"], literals[turn])

    async def bare_hnsw(turn: int) -> None:
        await bare(_SQL["bare_hnsw"], literals[turn])

    async def bare_words_scan(turn: int) -> None:
        await bare(_SQL["bare_words_scan"], texts[turn])

    async def bare_words_index(turn: int) -> None:
        await bare(_SQL["bare_words_index"], texts[turn])

    calls: dict[str, Call] = {
        "rem_search": rem_search,
        "rem_search_identifier": rem_search_identifier,
        "bare_exact": bare_exact,
        "bare_hnsw": bare_hnsw,
        "bare_words_scan": bare_words_scan,
        "bare_words_index": bare_words_index,
    }
    if not has_index:
        del calls["bare_hnsw"]
    times = await measure_in_turns(calls, rounds, warm_up=20)
    result.figures[f"{size} {owner}"] = times
    print_progress(f"search at {size:,} for the owner of {owner}: {times}")
    faster = min(times["bare_exact"], times.get("bare_hnsw", times["bare_exact"]))
    result.check(f"SEARCH p50 against the faster bare query at {size:,}, {owner}", times["rem_search"] / faster, 2.0)
    # SEARCH asks by meaning and by words. One bare query of each kind, without a ranking, is the least that it costs.
    floor = faster + min(times["bare_words_scan"], times["bare_words_index"])
    result.check(f"SEARCH p50 against both bare queries at {size:,}, {owner}", times["rem_search"] / floor, 1.6)
    slower = times["rem_search_identifier"] / times["rem_search"]
    result.check(f"SEARCH with an identifier against SEARCH without at {size:,}, {owner}", slower, 2.0)
    found = await _recall(rem, searcher, store.scope.user_id or "", questions)
    result.figures[f"recall {size} {owner}"] = found
    result.check(f"missed of the vector leg's ten best at {size:,}, {owner}", 1 - found, 0.02)


async def _recall(rem: Rem, searcher: Searcher, owner: str, questions: dict[str, Vector]) -> float:
    """Return the share of the ten exact nearest neighbours that MODE vector finds."""
    store = rem.for_user(owner, tenant=_TENANT).store
    hits = wanted = 0
    for text in list(questions)[:50]:
        found = await searcher.search(store, Search(text, limit=_LIMIT, min_similarity=0, mode="vector"))
        literal = f"[{','.join(map(str, questions[text].tolist()))}]"
        async with rem.database.connection() as connection:
            exact = {
                str(row["id"]) for row in await connection.fetch(_SQL["bare_exact"], _TENANT, owner, literal, _LIMIT)
            }
        hits += len(exact & {hit.id for hit in found.hits})
        wanted += len(exact)
    return round(hits / wanted, 4)
