"""SEARCH: find entities by the meaning and the words of their texts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, get_args

from loguru import logger

from rem.db.conditions import Condition, ConditionCompiler, UnknownFieldError
from rem.db.sql import fill, identifier
from rem.db.sql import query as sql
from rem.db.table import get_table
from rem.errors import EmbeddingDisabledError, EmbeddingError, InvalidInputError, RemError
from rem.models.field_types import check_text
from rem.models.results import Hit, JsonRow, Note, Passage, Result, Step, Steps
from rem.query.read_time import DEFAULT_MAX_SECONDS, ReadTimeLimit
from rem.query.tree import Mode, to_json
from rem.search.embedding_model import EmbeddingModel, require_same_model
from rem.search.embedding_validation import is_blank
from rem.search.identifiers import find_exact_items, find_identifier_words
from rem.search.indexer import Indexer
from rem.search.models.files import MODEL as BUNDLED_MODEL
from rem.search.models.files import load_assistant_question_weights
from rem.search.passages import MAX_PASSAGE_CHARS, split_message
from rem.search.reranker import RowReranker
from rem.search.searchable_rows import SearchableType, load_searchable_types, visible_owners
from rem.search.synonyms import find_synonyms
from rem.search.time_words import asks_for_time, find_relative_time_words
from rem.text import STOP_WORDS, split_words

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Database
    from rem.db.store import Store
    from rem.models import Entity
    from rem.query.tree import Search
    from rem.search.embedder import Embedder, Vector

MAX_INDEXED_ROWS = 256
"""A search indexes at most this many new rows itself, to stay fast. A note tells when more rows are not indexed yet."""
MAX_NEWEST_ROWS = 16
MAX_INDEXING_SECONDS = 1.0
MAX_EMBEDDING_SECONDS = 0.5
"""What is not embedded in this time is found by its words."""
WAITING_NOTE = Note("waiting", "Some rows are not indexed yet and were not searched: `rem db index` indexes them now.")
MAX_REREAD_CHARS = 50_000
"""Longer messages show the part that the index found."""
MAX_QUERY_CHARS = 10_000
"""The rest of a longer text is ignored: no passage is that long, and it would only take time."""
MAX_LIMIT_ROWS = 2**31 - 1


@dataclass(slots=True)
class _Report:
    """The notes and steps of one search."""

    notes: list[Note] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the database returns for a search."""

    hits: list[Hit]
    is_waiting: bool
    """Rows or passages of the scope are not indexed yet."""


class Searcher:
    """Runs SEARCH queries. New rows are indexed first, if they are few."""

    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        indexer: Indexer,
        reranker: RowReranker | None = None,
        max_seconds: float = DEFAULT_MAX_SECONDS,
    ) -> None:
        """Raise QueryTimeoutError if the database works on a search for more than `max_seconds`."""
        self._database = database
        self._embedder = embedder
        self._indexer = indexer
        self._reranker = reranker
        self._max_seconds = max_seconds
        self._types: dict[str, SearchableType] = {}
        self._assistant_weights: Vector | None = None

    async def search(self, store: Store, query: Search) -> Result:
        """Return the entities in the store's scope that fit the query, best first, each with its best passage."""
        report = _Report()
        _check_options(query)
        query = replace(query, text=_check_text(query.text, report))
        vector = await self._embed(query, report)
        types = await self._load_types(store, query.table)
        statement, parameters = _compile(types, store, query, vector, self._max_hits(query))
        parameters[2]["asks_assistant"] = is_about_assistant = await self._asks_assistant(vector)
        parameters[2]["synonyms"] = find_synonyms(query.text) if query.table is None else ""
        found = await self._fetch(store, statement, parameters, vector, report)
        if found.is_waiting and not self._database.server_info.is_replica:
            await self._index_new_rows(store.scope, report)
            found = await self._fetch(store, statement, parameters, vector, report)
        if found.is_waiting:
            report.notes.append(WAITING_NOTE)
        asked = _list_content_words(query.text)
        hits = await self._rerank(query, [_show_part_with_words(hit, asked) for hit in found.hits], report)
        result = Result(
            "SEARCH",
            hits,
            notes=tuple(report.notes),
            steps=tuple(report.steps),
            asks_assistant=is_about_assistant,
        )
        return result.put_assistant_last().keep_best(query.limit)

    async def _asks_assistant(self, vector: Vector | None) -> bool:
        """Return whether a query asks for what an assistant said. Without the bundled embedder nothing tells it."""
        if vector is None or self._embedder.model != BUNDLED_MODEL:
            return False
        if self._assistant_weights is None:
            # The first call reads a file.
            self._assistant_weights = await asyncio.to_thread(load_assistant_question_weights)
        weights = self._assistant_weights
        return float(vector @ weights[:-1] + weights[-1]) > 0

    def _max_hits(self, query: Search) -> int:
        """Return how many hits the database should return: with a reranker, at least all that it reorders."""
        return max(query.limit, self._reranker.candidates) if self._reranker else query.limit

    async def _load_types(self, store: Store, table: str | None) -> dict[str, SearchableType]:
        """Return the searchable types by name. Read them again only for an unknown table: types are never removed."""
        if not self._types or (table is not None and table not in self._types):
            self._types = await store.executor.read(load_searchable_types)
        return self._types

    async def _embed(self, query: Search, report: _Report) -> Vector | None:
        """Return the vector of the query's text, or None if the search goes by words alone."""
        if query.mode == "text":
            return None
        try:
            with report.steps.measure("embed"):
                return await self._embedder.embed_one(query.text)
        except EmbeddingError as error:
            if query.mode == "vector":
                raise
            if not isinstance(error, EmbeddingDisabledError):
                logger.warning("The embedder failed, so the search goes by words alone: {}", error)
            report.notes.append(Note("words_only", f"Searched by words alone: {error}"))
            return None

    async def _fetch(
        self, store: Store, statement: str, parameters: list[Any], vector: Vector | None, report: _Report
    ) -> _Found:
        """Run the search. Raise EmbeddingMismatchError if another model made the stored vectors."""
        with report.steps.measure("database") as step:
            async with ReadTimeLimit(self._max_seconds):
                response: JsonRow = await store.executor.read(
                    lambda connection: connection.fetchval(statement, *parameters)
                )
            if response["model"] is not None and vector is not None:
                require_same_model(EmbeddingModel(**response["model"]), self._embedder)
            report.steps += [Step(name, round(milliseconds, 3), rows) for name, milliseconds, rows in response["steps"]]
            step.rows = len(response["hits"])
        models = store.types.models
        return _Found([_parse_hit(hit, models) for hit in response["hits"]], response["waiting"])

    async def _index_new_rows(self, scope: Scope, report: _Report) -> None:
        """Index the rows that are waiting. A failure becomes a note: the search then covers what is indexed."""
        with report.steps.measure("index") as step:
            step.rows = 0
            try:
                # The newest rows become passages first, and these are embedded before others are made.
                step.rows = (await self._indexer.make_passages(scope, MAX_NEWEST_ROWS, MAX_INDEXING_SECONDS))[0]
                await self._embed_new_rows(scope, MAX_NEWEST_ROWS, report)
                if (await self._indexer.load_backlog(scope)).rows:
                    step.rows += await self._make_passages(scope)
                    await self._embed_new_rows(scope, MAX_INDEXED_ROWS, report)
            except Exception as error:  # noqa: BLE001  # whatever fails here, a search answers from what is indexed
                # For example, the connection may be read-only.
                logger.opt(exception=None if isinstance(error, RemError) else error).warning(
                    "A search could not index the newest rows: {}", error
                )
                report.notes.append(Note("not_indexed", f"The newest rows were not indexed: {_describe(error)}"))

    async def _embed_new_rows(self, scope: Scope, max_passages: int, report: _Report) -> None:
        try:
            await self._indexer.embed(scope, max_passages, MAX_EMBEDDING_SECONDS)
        except EmbeddingDisabledError:
            pass  # the notes say so already, because the query could not be embedded either
        except EmbeddingError as error:
            logger.warning("A search could not embed the newest rows: {}", error)
            note = Note("words_only", f"The newest rows were searched by words alone: {error}")
            report.notes += [note] if note not in report.notes else []

    async def _make_passages(self, scope: Scope) -> int:
        """Make passages until no row is waiting or a limit is reached. Return the number of rows."""
        rows = 0
        deadline = perf_counter() + MAX_INDEXING_SECONDS
        while True:
            rows += (await self._indexer.make_passages(scope, MAX_INDEXED_ROWS, MAX_INDEXING_SECONDS))[0]
            is_done = rows >= MAX_INDEXED_ROWS or perf_counter() > deadline
            if is_done or not (await self._indexer.load_backlog(scope)).rows:
                return rows
            # Another search is indexing the rest at this moment.
            await asyncio.sleep(0.01)

    async def _rerank(self, query: Search, hits: list[Hit], report: _Report) -> list[Hit]:
        """Return all hits in the reranker's order, if there is one. If it fails, keep the order and add a note."""
        if self._reranker is None or not hits:
            return hits
        texts, scores = [hit.shown_text for hit in hits], [hit.score or 0.0 for hit in hits]
        with report.steps.measure("rerank") as step:
            order = await self._reranker.order(query.text, texts, scores, report.notes)
            step.rows = min(len(hits), self._reranker.candidates)
        return [hits[place] for place in order]


def _describe(error: Exception) -> str:
    """Return the message of an error of REM. That of another error is for the log alone."""
    return str(error) if isinstance(error, RemError) else type(error).__name__


def _parse_hit(values: JsonRow, models: Mapping[str, type[Entity]]) -> Hit:
    passage = values["passage"]
    start, end, text = passage["start"], passage["end"], passage["text"] or ""
    if len(text) > end - start:
        # The database cuts a text to the place of the passage, except for encrypted texts.
        text = text[start:end]
    return Hit(
        values["table"],
        values["key"],
        values["record"],
        values["score"],
        Passage(passage["table"], passage["key"], passage["field"], start, end, text),
        values["similarity"],
        values["weight"],
        said_by=values["said_by"],
        models=models,
    )


def _show_part_with_words(hit: Hit, asked: frozenset[str]) -> Hit:
    """Show the part of a long message with most words of the query: its words are indexed with the first part."""
    passage = hit.passage
    if passage is None or not hit.table == passage.table == "messages":
        return hit
    text = hit.record.get(passage.field)
    if not isinstance(text, str) or not MAX_PASSAGE_CHARS < len(text) <= MAX_REREAD_CHARS:
        return hit
    parts = {(part.start, part.end) for part in split_message(passage.field, text)}
    shown = passage.start, passage.end

    def count_words(part: tuple[int, int]) -> tuple[int, bool, int]:
        return len(asked & _list_content_words(text[part[0] : part[1]])), part == shown, -part[0]

    start, end = max((*parts, shown), key=count_words)
    return replace(hit, passage=replace(passage, start=start, end=end, text=text[start:end]))


def _list_content_words(text: str) -> frozenset[str]:
    return frozenset(split_words(text)) - STOP_WORDS


def _check_options(query: Search) -> None:
    """Raise InvalidInputError if a tree that was built in Python has a value that no parsed query can have."""
    if type(query.limit) is not int or not 0 <= query.limit <= MAX_LIMIT_ROWS:
        raise InvalidInputError(f"LIMIT must be a whole number from 0 to {MAX_LIMIT_ROWS}, not {query.limit!r}.")
    if type(query.min_similarity) not in (int, float) or not math.isfinite(query.min_similarity):
        raise InvalidInputError(f"MIN_SIMILARITY must be a number, not {query.min_similarity!r}.")
    if query.mode not in get_args(Mode):
        raise InvalidInputError(f"MODE must be one of {', '.join(get_args(Mode))}, not {query.mode!r}.")
    since, until = (_check_time(text) for text in (query.since, query.until))
    if since is not None and until is not None and since >= until:
        raise InvalidInputError(f"SINCE must be earlier than UNTIL, and {query.since} is not before {query.until}.")


def _check_time(text: str | None) -> datetime | None:
    """Return the time of SINCE or UNTIL, which the executor has resolved to ISO 8601 with a time zone."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"SINCE and UNTIL must be times in ISO 8601, not {text!r}.") from error
    if moment.tzinfo is None:
        raise InvalidInputError(f"SINCE and UNTIL must have a time zone, and {text!r} has none.")
    return moment


def _check_text(text: str, report: _Report) -> str:
    """Return the text to search for, cut if it is too long. Raise InvalidInputError if it cannot be searched."""
    if is_blank(text):
        raise InvalidInputError("SEARCH needs words to look for, and the text has none.")
    if len(text) > MAX_QUERY_CHARS:
        report.notes.append(
            Note("query_cut", f"Only the first {MAX_QUERY_CHARS} characters of the text were searched for.")
        )
    try:
        return check_text(text[:MAX_QUERY_CHARS])
    except ValueError as error:
        raise InvalidInputError(f"The text of SEARCH {error}.") from error


def _compile(
    types: dict[str, SearchableType], store: Store, query: Search, vector: Vector | None, max_hits: int
) -> tuple[str, list[Any]]:
    """Return the statement for a query, and its parameters. The tree goes to `rem_search` as it is, as JSON."""
    names = _select_types(types, store, query)
    request = {
        **to_json(replace(query, where=None, limit=max_hits)),
        "types": names if query.table else None,
        "relative_time_words": find_relative_time_words(query.text),
        "asks_for_time": asks_for_time(query.text),
        "identifier_words": find_identifier_words(query.text),
        "exact_items": find_exact_items(query.text),
    }
    parameters: list[Any] = [
        store.scope.tenant_id,
        visible_owners(store.scope),
        request,
        None if vector is None else vector.tolist(),
    ]
    allowed = "NULL"
    if query.where is not None:
        # SEARCH … FROM sessions searches messages, but its WHERE is about the sessions.
        filtered = ["sessions"] if query.table == "sessions" else names
        allowed = _compile_where(store, filtered, query.where.condition, parameters)
    return fill(sql("query/query", "search"), allowed=allowed), parameters


def _select_types(types: dict[str, SearchableType], store: Store, query: Search) -> list[str]:
    """Return the names of the types to search, sorted. Raise InvalidInputError if FROM or FIELD names none."""
    if query.table is None:
        selected = list(types.values())
    elif query.table in types:
        # A session is found by its messages.
        names = ("messages", "sessions") if query.table == "sessions" else (query.table,)
        selected = [types[name] for name in names]
    else:
        store.types.get_model(query.table)
        raise InvalidInputError(
            f"{query.table} has no text that is searched. SEARCH goes over {', '.join(sorted(types))}; "
            f"for {query.table} use FUZZY or SQL."
        )
    if query.field is not None:
        fields = sorted({field for searchable in selected for field in searchable.fields})
        selected = [searchable for searchable in selected if query.field in searchable.fields]
        if not selected:
            tables = query.table or "the tables"
            raise InvalidInputError(f"The text of {tables} is in {', '.join(fields)}, not in {query.field!r}.")
    return sorted(searchable.name for searchable in selected)


def _compile_where(store: Store, types: list[str], condition: Condition, parameters: list[Any]) -> str:
    """Return SQL for the ids of the rows that fulfil a condition, in all types that have its fields.

    Append its values to the parameters. Raise InvalidInputError if no type has the fields.
    """
    selects: list[str] = []
    unknown: list[UnknownFieldError] = []
    others: list[InvalidInputError] = []
    for name in types:
        known_parameters = len(parameters)
        table = get_table(store.types.get_model(name))
        try:
            compiled = ConditionCompiler(table, parameters).compile(condition)
        except InvalidInputError as error:
            del parameters[known_parameters:]
            if isinstance(error, UnknownFieldError):
                unknown.append(error)
            else:
                others.append(error)
            continue
        selects.append(fill(sql("query/query", "allowed_ids"), table=f"rem.{identifier(name)}", condition=compiled))
    if not selects:
        # An error about a value is more helpful than one about a field that only other tables have.
        raise others[0] if others else _no_such_field(unknown, types)
    return f"ARRAY({' UNION ALL '.join(selects)})"


def _no_such_field(errors: list[UnknownFieldError], types: list[str]) -> InvalidInputError:
    if len(errors) == 1:
        return errors[0]
    return InvalidInputError(f"None of the searched tables ({', '.join(types)}) has the field {errors[0].field!r}.")
