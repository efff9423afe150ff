"""SQL: run a SELECT of a user in the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rem.query.result import QueryResult, Step

if TYPE_CHECKING:
    from rem.db.sandbox import SqlSandbox
    from rem.db.store import Store
    from rem.query.syntax_tree import Sql


async def run_sql(sandbox: SqlSandbox, store: Store, query: Sql, *, limit: int | None = None) -> QueryResult:
    """Return the rows of a SELECT in the scope of a store. It does not see an open transaction of the store."""
    selection = await sandbox.select(store.scope, query.statement, limit=limit)
    notes = []
    if selection.is_cut_off:
        notes.append(
            f"Only the first {len(selection.rows)} rows are here: narrow with WHERE, or page with LIMIT and OFFSET."
        )
    step = Step("select", selection.milliseconds, len(selection.rows))
    return QueryResult("SQL", selection.rows, tuple(notes), (step,))
