"""FUZZY: find entities with a key or summary like a text, such as a misspelt name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rem.db.sql import query as sql
from rem.errors import InvalidInputError
from rem.models.field_types import check_text
from rem.models.message import MessageKind
from rem.models.results import FuzzyMatch, Hit, JsonRow, Note, Result, Steps
from rem.query.verbs.lookup import require_table

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.tree import Fuzzy

MAX_TEXT_CHARS = 250
"""Summaries have 200 characters, and keys hardly more. A longer text would match nothing and take seconds."""


async def run_fuzzy(store: Store, query: Fuzzy) -> Result:
    """Return one hit for each entity, best first: matches of a key before matches of a summary.

    What an assistant said comes last.
    """
    await require_table(store, query.table)
    text = _cut_text(query.text)
    steps = Steps()
    with steps.measure("fuzzy") as step:
        found = await store.executor.read(
            lambda connection: connection.fetch(
                sql("query/query", "fuzzy"),
                store.scope.tenant_id,
                store.scope.user_id,
                text,
                query.threshold,
                query.limit,
                query.table,
            )
        )
        matches: list[tuple[str, str, float, Literal["key", "summary"], JsonRow]] = [row["match"] for row in found]
        step.rows = len(matches)
    models = store.types.models
    hits = [
        Hit(
            table,
            record["key"],
            record,
            score,
            fuzzy=_describe_match(matched, key),
            said_by="assistant" if _is_answer(table, record) else None,
            models=models,
        )
        for table, key, score, matched, record in matches
    ]
    notes: tuple[Note, ...] = ()
    if len(query.text) > MAX_TEXT_CHARS:
        notes = (Note("query_cut", f"Only the first {MAX_TEXT_CHARS:,} characters of the text were compared."),)
    return Result("FUZZY", hits, notes=notes, steps=tuple(steps)).put_assistant_last()


def _is_answer(table: str, record: JsonRow) -> bool:
    return table == "messages" and record["kind"] == MessageKind.ANSWER


def _describe_match(matched: Literal["key", "summary"], key: str) -> FuzzyMatch:
    return FuzzyMatch(matched, key if matched == "key" else None)


def _cut_text(text: str) -> str:
    try:
        return check_text(text)[:MAX_TEXT_CHARS]
    except ValueError as error:
        raise InvalidInputError(f"The text of FUZZY {error}.") from error
