"""LOOKUP: what answers to some keys, the user's own rows before the shared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rem.query.language.syntax_errors import quote
from rem.query.result import QueryResult, Steps

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.tree import Lookup


async def require_table(store: Store, table: str | None) -> None:
    """An error with the nearest name if there is no such table; one that another process made meanwhile is learnt."""
    if table is None or table in store.types.models:
        return
    async with store.executor.connection() as connection:
        await store.types.refresh(connection)
    store.types.get_model(table)


_SHOWN_KEYS = 5
_LONGEST_SHOWN = 80


async def run_lookup(store: Store, query: Lookup) -> QueryResult:
    """One row for each answer to each key, in the order of the keys; a note names the keys without one."""
    await require_table(store, query.table)
    steps = Steps()
    with steps.measure("lookup") as step:
        answers = await store.find_matches(query.keys, query.table)
        step.rows = len(answers)
    rows = [
        {"table": answer.table, "key": answer.record["key"], "asked": answer.key, "record": answer.record}
        for answer in answers
    ]
    answered = {answer.key for answer in answers}
    return QueryResult("LOOKUP", rows, _notes([key for key in query.keys if key not in answered]), tuple(steps))


def _notes(missing: list[str]) -> tuple[str, ...]:
    if not missing:
        return ()
    shown = [key if len(key) <= _LONGEST_SHOWN else f"{key[:_LONGEST_SHOWN]}…" for key in missing[:_SHOWN_KEYS]]
    more = f" and {len(missing) - _SHOWN_KEYS} more" if len(missing) > _SHOWN_KEYS else ""
    return (f"Nothing answers to {', '.join(shown)}{more}. FUZZY {quote(shown[0])} finds what is written nearly so.",)
