"""QueryExecutor: from a query to its answer, whatever the verb."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from rem.errors import InvalidInputError
from rem.query.parser import parse, quoted_form
from rem.query.result import QueryResult
from rem.query.run_fuzzy import run_fuzzy
from rem.query.run_lookup import run_lookup
from rem.query.run_traverse import run_traverse
from rem.query.steps import Steps
from rem.query.tree import Fuzzy, Lookup, Query, Search, Sql, Traverse

if TYPE_CHECKING:
    from rem.db.store import Store

SearchRunner: TypeAlias = "Callable[[Store, Search], Awaitable[QueryResult]]"
SqlRunner: TypeAlias = "Callable[[Store, Sql], Awaitable[QueryResult]]"


class QueryExecutor:
    """Answers queries in the scope of one store."""

    def __init__(self, store: Store, search: SearchRunner, sql: SqlRunner) -> None:
        self._store = store
        self._search = search
        self._sql = sql

    async def run(self, query: str | Query) -> QueryResult:
        """The answer to a query, given as text or as its tree. A QuerySyntaxError says where the text is wrong."""
        steps = Steps()
        if not isinstance(query, str):
            return await self._answer(query)
        with steps.timed("parse"):
            tree = parse(query)
        try:
            result = await self._answer(tree)
        except InvalidInputError as error:
            quoted = self._meant(error, query, tree)
            if quoted is None:
                raise
            raise InvalidInputError(f"{error}\nDid you mean: {quoted}") from error
        return replace(result, steps=(*steps, *result.steps))

    def _meant(self, error: InvalidInputError, text: str, query: Query) -> str | None:
        """What may be meant where a word of the text was taken for a clause: "what comes from May"."""
        table = None if isinstance(query, Sql | Traverse) else query.table
        is_told = table is None or table in self._store.types.models or "Did you mean" in str(error)
        return None if is_told else quoted_form(text)

    async def _answer(self, query: Query) -> QueryResult:
        match query:
            case Lookup():
                return await run_lookup(self._store, query)
            case Fuzzy():
                return await run_fuzzy(self._store, query)
            case Search():
                return await self._search(self._store, query)
            case Sql():
                return await self._sql(self._store, query)
            case Traverse():
                return await run_traverse(self._store, query, await self._answer(query.start))
