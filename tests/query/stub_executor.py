"""Asking a store queries without SEARCH and SQL, or with made-up ones."""

from __future__ import annotations

from typing import Any

from rem.db.store import Store
from rem.query.executor import QueryExecutor
from rem.query.result import QueryResult
from rem.query.tree import Query, Search, Sql


async def ask(
    store: Store,
    query: str | Query,
    *,
    found: list[dict[str, Any]] | None = None,
) -> QueryResult:
    """The answer in the scope of a store; SEARCH and SQL find the given rows."""

    async def search(_store: Store, _query: Search) -> QueryResult:
        assert found is not None, "this query must not search"
        return QueryResult("SEARCH", found, ("words only",))

    async def sql(_store: Store, _query: Sql) -> QueryResult:
        assert found is not None, "this query must not run SQL"
        return QueryResult("SQL", found)

    return await QueryExecutor(store, search, sql).run(query)


async def keys(store: Store, query: str | Query, *, found: list[dict[str, Any]] | None = None) -> list[str]:
    """The keys of an answer, in their order."""
    return [row["key"] for row in (await ask(store, query, found=found)).results]
