"""FUZZY: what has a key much like a text, then what has something like it in its summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rem.db.sql import query as sql
from rem.errors import InvalidInputError
from rem.models.field_types import check_text
from rem.query.result import QueryResult, Steps
from rem.query.verbs.lookup import require_table

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.tree import Fuzzy

_LONGEST_TEXT = 250
"""A summary has 200 characters, and hardly a key has more: what is longer is like none of them, and takes seconds."""


async def run_fuzzy(store: Store, query: Fuzzy) -> QueryResult:
    """One row for each entity, the best first; those whose key matches before those whose summary does."""
    await require_table(store, query.table)
    text = _comparable(query.text)
    steps = Steps()
    with steps.measure("fuzzy") as step:
        async with store.executor.connection() as connection:
            answer = await connection.fetchval(
                sql("query", "fuzzy"),
                store.scope.tenant_id,
                store.scope.user_id,
                text,
                query.threshold,
                query.limit,
                query.table,
            )
        matches: list[tuple[str, str, float, str, dict[str, Any]]] = orjson.loads(answer)
        step.rows = len(matches)
    rows = [
        {
            "table": table,
            "key": record["key"],
            "score": score,
            "matched": matched,
            "matched_key": key if matched == "key" else None,
            "record": record,
        }
        for table, key, score, matched, record in matches
    ]
    cut = f"Only the first {_LONGEST_TEXT:,} characters of the text were compared."
    return QueryResult("FUZZY", rows, (cut,) if len(query.text) > _LONGEST_TEXT else (), tuple(steps))


def _comparable(text: str) -> str:
    try:
        return check_text(text)[:_LONGEST_TEXT]
    except ValueError as error:
        raise InvalidInputError(f"The text of FUZZY {error}.") from error
