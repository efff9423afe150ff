"""Run queries: QueryExecutor parses a query and calls the code of its verb."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from rem.db.type_registry import UnknownTableError
from rem.errors import InvalidInputError
from rem.models.results import Note, Result, Steps
from rem.query.parser import parse_query, suggest_clause, suggest_quoted_text
from rem.query.read_time import DEFAULT_MAX_SECONDS, ReadTimeLimit
from rem.query.tree import Fuzzy, Lookup, Query, Search, Sql, Traverse
from rem.query.verbs.fuzzy import run_fuzzy
from rem.query.verbs.lookup import require_table, run_lookup
from rem.query.verbs.sql import run_sql
from rem.query.verbs.traverse import run_traverse

if TYPE_CHECKING:
    from rem.db.sandbox import SqlSandbox
    from rem.db.store import Store
    from rem.query.verbs.search import Searcher


class QueryExecutor:
    """Runs queries in the scope of one store."""

    def __init__(
        self,
        store: Store,
        searcher: Searcher,
        sandbox: SqlSandbox,
        now: datetime | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> None:
        """Resolve words such as "yesterday" on the day of `now` and in its time zone (default: the clock, in UTC).

        After `max_seconds`, LOOKUP, FUZZY and TRAVERSE raise QueryTimeoutError; `searcher` and `sandbox` have their own
        limits.
        """
        self._store = store
        self._searcher = searcher
        self._sandbox = sandbox
        self._now = now
        self.max_seconds = max_seconds

    @property
    def now(self) -> datetime:
        """The time at which the queries are asked."""
        return self._now or datetime.now(UTC)

    async def run(self, query: str | Query, text: str | None = None) -> Result:
        """Run a query, given as text or as its tree. Raise QuerySyntaxError if the text is not a valid query.

        `text` is the text of a tree that was parsed from it. Messages about mistakes quote it.
        """
        steps = Steps()
        if isinstance(query, str):
            text = query
            with steps.measure("parse"):
                query = parse_query(text)
        if text is None:
            return await self._complete(await self._run_tree(query))
        try:
            result = await self._run_tree(query)
        except InvalidInputError as error:
            suggestion = _suggest_quotes(error, text, query)
            if suggestion is None:
                raise
            raise InvalidInputError(f"{error}\nDid you mean: {suggestion}") from error
        notes = (*result.notes, *note_misspelt_clause(text))
        return await self._complete(replace(result, steps=(*steps, *result.steps), notes=notes))

    async def _complete(self, result: Result) -> Result:
        """Return the result with the classes of its tables, and its times in the zone of the caller."""
        models = self._store.types.models
        for hit in result.hits:
            if hit.table not in models:
                await require_table(self._store, hit.table)
        zone = self.now.tzinfo
        if zone is None or zone is UTC:
            return result
        return replace(result, hits=[replace(hit, zone=zone) for hit in result.hits])

    async def _run_tree(self, query: Query) -> Result:
        match query:
            case Lookup():
                async with ReadTimeLimit(self.max_seconds):
                    return await run_lookup(self._store, query)
            case Fuzzy():
                async with ReadTimeLimit(self.max_seconds):
                    return await run_fuzzy(self._store, query)
            case Search():
                return await self._searcher.search(self._store, _resolve_times(query, self.now))
            case Sql():
                return await run_sql(self._sandbox, self._store, query)
            case Traverse():
                start = await self._run_start(query.start)
                async with ReadTimeLimit(self.max_seconds):
                    return await run_traverse(self._store, query, start)
        raise InvalidInputError(f"A query is a text or a query tree, not {type(query).__name__}.")

    async def _run_start(self, query: Query) -> Result:
        """Run the query that gives the start nodes of TRAVERSE. It needs no texts of files."""
        if isinstance(query, Lookup):
            async with ReadTimeLimit(self.max_seconds):
                return await run_lookup(self._store, query, with_texts=False)
        return await self._run_tree(query)


def _suggest_quotes(error: InvalidInputError, text: str, query: Query) -> str | None:
    """Return the query with its text in quotes, if a word of the text may have been parsed as a clause.

    In "SEARCH what comes from May" there is no table May.
    """
    is_word = isinstance(error, UnknownTableError) and error.nearest is None and not isinstance(query, Sql | Traverse)
    return suggest_quoted_text(text) if is_word else None


def note_misspelt_clause(query: str) -> tuple[Note, ...]:
    """Return a note if a word of the query's text is probably a misspelt clause."""
    suggestion = suggest_clause(query)
    return () if suggestion is None else (Note("misspelt", f"Did you mean: {suggestion}"),)


def _resolve_times(query: Search, now: datetime) -> Search:
    """Return the query with its times as ISO 8601. Raise InvalidInputError if they are no times."""
    times = [_resolve(name, text, now) for name, text in (("SINCE", query.since), ("UNTIL", query.until))]
    return replace(query, since=times[0], until=times[1])


def _resolve(clause: str, text: str | None, now: datetime) -> str | None:
    if text is None:
        return None
    from rem.query.time_phrases import resolve_time

    moment = resolve_time(text, now) if isinstance(text, str) else None
    if moment is None:
        raise InvalidInputError(f"{clause} must be a time such as 2026-07-01, yesterday or last week, not {text!r}.")
    return moment.isoformat()


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
