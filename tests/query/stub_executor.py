"""An executor whose SEARCH and SQL return given rows, for tests of the other verbs."""

from __future__ import annotations

from typing import Any

from rem.context import Scope
from rem.db.sandbox import SelectResult, SqlSandbox
from rem.db.store import Store
from rem.models.results import Hit, Note, Result
from rem.query.executor import QueryExecutor
from rem.query.tree import Query, Search
from rem.query.verbs.search import Searcher

Rows = list[dict[str, Any]]


class StubSearcher(Searcher):
    """Returns the given rows for every SEARCH. Without rows, a SEARCH fails the test."""

    def __init__(self, rows: Rows | None) -> None:
        self._rows = rows

    async def search(self, _store: Store, _query: Search) -> Result:
        assert self._rows is not None, "this query must not search"
        notes = (Note("words_only", "Searched by words alone."),)
        return Result("SEARCH", [Hit(row["table"], row["key"], row["record"]) for row in self._rows], notes=notes)


class StubSandbox(SqlSandbox):
    """Returns the given rows for every SELECT. Without rows, a SELECT fails the test."""

    def __init__(self, rows: Rows | None) -> None:
        self._rows = rows

    async def select(self, _scope: Scope, _statement: str, *, limit: int | None = None) -> SelectResult:
        assert self._rows is not None, "this query must not run SQL"
        return SelectResult(self._rows[:limit], is_cut_off=False, milliseconds=0)


async def run_query(store: Store, query: str | Query, *, stub_rows: Rows | None = None) -> Result:
    """Run a query in the scope of a store. SEARCH and SQL return `stub_rows`."""
    return await QueryExecutor(store, StubSearcher(stub_rows), StubSandbox(stub_rows)).run(query)


async def query_keys(store: Store, query: str | Query, *, stub_rows: Rows | None = None) -> list[str]:
    """Run a query and return the keys of its rows, in their order."""
    return [row["key"] for row in (await run_query(store, query, stub_rows=stub_rows)).list_rows()]
