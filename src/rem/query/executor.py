"""QueryExecutor: from a query to its answer, whatever the verb."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from rem.errors import InvalidInputError
from rem.query.language.parser import parse_query, suggest_quoted_text
from rem.query.result import QueryResult, Steps
from rem.query.tree import Fuzzy, Lookup, Query, Search, Sql, Traverse
from rem.query.verbs.fuzzy import run_fuzzy
from rem.query.verbs.lookup import run_lookup
from rem.query.verbs.traverse import run_traverse

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
        with steps.measure("parse"):
            tree = parse_query(query)
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
        return None if is_told else suggest_quoted_text(text)

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


RecordResult: TypeAlias = Callable[[str, int], None]


@contextmanager
def query_span(name: str) -> Iterator[RecordResult]:
    """A span around a query; what is yielded takes the verb and the number of rows of the answer."""
    # Without the SDK a span goes nowhere, and a lookup is too short to make one for nothing.
    if "opentelemetry.sdk.trace" not in sys.modules:
        yield _nobody_asks
        return
    from opentelemetry.trace import Status, StatusCode, get_tracer

    # The message of an error may quote the query, so the span has only its type.
    with get_tracer("rem.query").start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    ) as span:

        def answered(query_type: str, count: int) -> None:
            span.set_attributes({"rem.query.type": query_type, "rem.query.rows": count})

        try:
            yield answered
        except Exception as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def _nobody_asks(_query_type: str, _count: int) -> None:
    return None
