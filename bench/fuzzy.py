"""Compare FUZZY with the bare trigram queries that find the same rows, at growing sizes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import orjson

from bench.measure import Result, measure_in_turns, median, print_progress
from rem import Rem, Settings
from rem.db.database import Database
from rem.query.tree import Fuzzy

SIZES = (10_000, 100_000, 1_000_000)
_USERS = 100
_ROUNDS = 60
_THRESHOLD = 0.5
_LIMIT = 5
_WORDS = 5_000
_COLUMNS = ["user_id", "name", "content"]
_BARE = """
SELECT k.entity_type, k.entity_key, k.record,
       greatest(similarity($1, rem.rem_trigram_text(k.{column})),
                word_similarity($1, rem.rem_trigram_text(k.{column}))) AS score
FROM rem.kv_store k
WHERE rem.rem_owner(k.tenant_id, k.user_id) && (rem.rem_owner('default', $2) || rem.rem_owner('default', NULL))
  AND $1 <% rem.rem_trigram_text(k.{column}) AND k.tenant_id = 'default' AND (k.user_id = $2 OR k.user_id IS NULL)
ORDER BY score DESC LIMIT $3
"""


async def run(settings: Settings, sizes: tuple[int, ...] = SIZES, rounds: int = _ROUNDS) -> Result:
    """Measure at each size. A user's rows grow with the size, so the growth is reported but has no limit."""
    result = Result("fuzzy")
    async with Rem.open(settings) as rem:
        stored = 0
        for size in sizes:
            await _fill(rem.database, stored, size)
            stored = size
            times = await _measure(rem, size, rounds)
            result.figures[f"{size}"] = times
            print_progress(f"fuzzy at {size:,}: {times}")
            ratio = times["rem_fuzzy"] / times["bare_trigrams"]
            result.check(f"FUZZY p50 against bare trigram queries at {size:,}", ratio, 1.5)
    growth = result.figures[f"{sizes[-1]}"]["rem_fuzzy"] / result.figures[f"{sizes[0]}"]["rem_fuzzy"]
    result.figures[f"growth from {sizes[0]:,} to {sizes[-1]:,}"] = round(growth, 2)
    return result


def _words() -> list[str]:
    source = random.Random(7)
    syllables = [a + b for a in "bcdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "is", "ol", "um")]
    return ["".join(source.choices(syllables, k=source.randint(2, 4))) for _ in range(_WORDS)]


def _row(number: int, words: list[str]) -> tuple[str | None, str, str]:
    """Return owner, name and content of a row. One row in a hundred is shared; the others belong to users in turn."""
    source = random.Random(number)
    owner = None if number % _USERS == 0 else f"user-{number % _USERS}"
    name = " ".join(source.choices(words, k=source.choice((2, 2, 3)))).title()
    return owner, f"{name} {number}", " ".join(source.choices(words, k=40))


async def _fill(database: Database, first: int, last: int) -> None:
    print_progress(f"storing {last - first:,} entities ...")
    words = _words()
    async with database.connection() as connection:
        for start in range(first, last, 50_000):
            rows: Iterator[Any] = (_row(number, words) for number in range(start, min(start + 50_000, last)))
            await connection.copy_records_to_table("resources", schema_name="rem", records=rows, columns=_COLUMNS)
        for table in ("resources", "kv_store"):
            await connection.execute(f"VACUUM ANALYZE rem.{table}")
        await connection.execute("CHECKPOINT")


async def _measure(rem: Rem, size: int, rounds: int) -> dict[str, float]:
    words = _words()
    numbers = [random.Random(turn).randrange(size) for turn in range(rounds + 50)]
    texts = [_misspelt(_row(number, words)[1], turn) for turn, number in enumerate(numbers)]
    users = [f"user-{number % _USERS or 1}" for number in numbers]
    row_counts: list[int] = []

    async def rem_fuzzy(turn: int) -> None:
        result = await rem.for_user(users[turn]).query(Fuzzy(texts[turn], _THRESHOLD, _LIMIT))
        row_counts.append(result.count)

    async def bare(turn: int) -> None:
        async with rem.database.pool.acquire() as connection, connection.transaction():
            await connection.execute(f"SET LOCAL pg_trgm.word_similarity_threshold = {_THRESHOLD}")
            rows = await connection.fetch(_BARE.format(column="entity_key"), texts[turn], users[turn], _LIMIT)
            if len(rows) < _LIMIT:
                rows += await connection.fetch(_BARE.format(column="content_summary"), texts[turn], users[turn], _LIMIT)
            for row in rows[:_LIMIT]:
                orjson.loads(row["record"])

    times = await measure_in_turns({"bare_trigrams": bare, "rem_fuzzy": rem_fuzzy}, rounds, warm_up=10)
    return {**times, "rows_found": median(row_counts)}


def _misspelt(name: str, turn: int) -> str:
    """Return one word of a name, or all but its number, with a letter left out."""
    parts = name.lower().split()[:-1]
    text = parts[0] if turn % 2 else " ".join(parts)
    return text[:2] + text[3:]
