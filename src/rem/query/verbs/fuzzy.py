"""FUZZY: find entities with a key or summary like a text, such as a misspelt name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rem.db.sql import query as sql
from rem.errors import InvalidInputError
from rem.models.field_types import check_text
from rem.query.result import QueryResult, Steps
from rem.query.verbs.lookup import require_table

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.syntax_tree import Fuzzy

MAX_TEXT_CHARS = 250
"""Summaries have 200 characters, and keys hardly more. A longer text would match nothing and take seconds."""


async def run_fuzzy(store: Store, query: Fuzzy) -> QueryResult:
    """Return one row for each entity, best first: matches of a key before matches of a summary."""
    await require_table(store, query.table)
    text = _cut_text(query.text)
    steps = Steps()
    with steps.measure("fuzzy") as step:
        found = await store.executor.read(
            lambda connection: connection.fetch(
                sql("query", "fuzzy"),
                store.scope.tenant_id,
                store.scope.user_id,
                text,
                query.threshold,
                query.limit,
                query.table,
            )
        )
        matches: list[tuple[str, str, float, str, dict[str, Any]]] = [row["match"] for row in found]
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
    notes = [f"Only the first {MAX_TEXT_CHARS:,} characters of the text were compared."]
    return QueryResult("FUZZY", rows, tuple(notes) if len(query.text) > MAX_TEXT_CHARS else (), tuple(steps))


def _cut_text(text: str) -> str:
    try:
        return check_text(text)[:MAX_TEXT_CHARS]
    except ValueError as error:
        raise InvalidInputError(f"The text of FUZZY {error}.") from error
