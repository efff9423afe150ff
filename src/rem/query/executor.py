"""Run queries: QueryExecutor parses a query and calls the code of its verb."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from rem.errors import InvalidInputError
from rem.query.language.parser import parse_query, suggest_quoted_text
from rem.query.result import QueryResult, Steps
from rem.query.syntax_tree import Fuzzy, Lookup, Query, Search, Sql, Traverse
from rem.query.verbs.fuzzy import run_fuzzy
from rem.query.verbs.lookup import run_lookup
from rem.query.verbs.sql import run_sql
from rem.query.verbs.traverse import run_traverse

if TYPE_CHECKING:
    from rem.db.sandbox import SqlSandbox
    from rem.db.store import Store
    from rem.query.verbs.search import Searcher


class QueryExecutor:
    """Runs queries in the scope of one store."""

    def __init__(self, store: Store, searcher: Searcher, sandbox: SqlSandbox) -> None:
        self._store = store
        self._searcher = searcher
        self._sandbox = sandbox

    async def run(self, query: str | Query) -> QueryResult:
        """Run a query, given as text or as its tree. Raise QuerySyntaxError if the text is not a valid query."""
        if not isinstance(query, str):
            return await self._run_tree(query)
        steps = Steps()
        with steps.measure("parse"):
            tree = parse_query(query)
        try:
            result = await self._run_tree(tree)
        except InvalidInputError as error:
            suggestion = self._suggest_quotes(error, query, tree)
            if suggestion is None:
                raise
            raise InvalidInputError(f"{error}\nDid you mean: {suggestion}") from error
        return replace(result, steps=(*steps, *result.steps))

    async def _run_tree(self, query: Query) -> QueryResult:
        match query:
            case Lookup():
                return await run_lookup(self._store, query)
            case Fuzzy():
                return await run_fuzzy(self._store, query)
            case Search():
                return await self._searcher.search(self._store, query)
            case Sql():
                return await run_sql(self._sandbox, self._store, query)
            case Traverse():
                return await run_traverse(self._store, query, await self._run_tree(query.start))

    def _suggest_quotes(self, error: InvalidInputError, text: str, query: Query) -> str | None:
        """Return the query with its text in quotes, if a word of the text may have been parsed as a clause.

        In "SEARCH what comes from May" there is no table May. Return None if the table exists.
        """
        table = None if isinstance(query, Sql | Traverse) else query.table
        has_other_cause = table is None or table in self._store.types.models or "Did you mean" in str(error)
        return None if has_other_cause else suggest_quoted_text(text)


RecordResult: TypeAlias = Callable[[str, int], None]
"""Takes the verb of a query and the number of rows in its result."""


@contextmanager
def query_span(name: str) -> Iterator[RecordResult]:
    """Wrap a query in an OpenTelemetry span, and yield a function that records its result in the span.

    The span holds the verb and the number of rows, never the text of the query.
    """
    # Without the SDK a span goes nowhere, and a lookup is too short to create one for nothing.
    if "opentelemetry.sdk.trace" not in sys.modules:
        yield _ignore_result
        return
    from opentelemetry.trace import Status, StatusCode, get_tracer

    # The message of an error may quote the query, so the span has only its type.
    with get_tracer("rem.query").start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    ) as span:

        def record_result(query_type: str, count: int) -> None:
            span.set_attributes({"rem.query.type": query_type, "rem.query.rows": count})

        try:
            yield record_result
        except Exception as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


def _ignore_result(_query_type: str, _count: int) -> None:
    return None
