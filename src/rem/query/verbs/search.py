"""Searcher: SEARCH over the passages that a scope sees, by meaning and by words."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loguru import logger

from rem.db.conditions import Condition, ConditionCompiler
from rem.db.sql import fill, identifier, query
from rem.db.table import get_table
from rem.embeddings import is_blank
from rem.errors import DatabaseError, EmbeddingDisabledError, EmbeddingError, InvalidInputError, RerankerError
from rem.query.result import QueryResult, Step
from rem.retrieval.embedding_model import EmbeddingModel, require_same_model
from rem.retrieval.indexer import Indexer
from rem.retrieval.reranker import Reranker, rank_candidates
from rem.retrieval.searchable_rows import SearchableType, load_searchable_types, visible_owners
from rem.retrieval.time_words import asks_for_time, find_relative_time_words
from rem.settings import RerankerSettings

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection, Database
    from rem.db.store import Store
    from rem.embeddings import Embedder, Vector
    from rem.query.tree import Search


Mode: TypeAlias = Literal["hybrid", "vector", "text"]
_INDEX_AT_ONCE = 256
"""So many rows a search indexes itself before it answers; more are left to the indexer, and the answer says so."""
_INDEX_SECONDS = 2.0
_LONGEST_QUESTION = 10_000


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is searched, where and how."""

    text: str
    table: str | None = None
    where: Condition | None = None
    field: str | None = None
    min_similarity: float = 0.3
    mode: Mode = "hybrid"
    limit: int = 10


@dataclass(frozen=True, slots=True)
class Hit:
    """An entity that was found, with the passage that fits best."""

    entity_type: str
    record: dict[str, Any]
    score: float
    similarity: float | None
    """The cosine of the passage's and the question's vectors."""
    weight: float
    """How much of the question's words the passage has, by their rarity: from 0 to 1, to two digits."""
    passage: dict[str, Any]


@dataclass(slots=True)
class Found:
    """What a search found, best first, with what the caller should know of it."""

    hits: list[Hit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: list[tuple[str, float, int | None]] = field(default_factory=list)
    """What was done, how many milliseconds it took, and how many rows it gave."""


class Searcher:
    """Answers searches. Rows that were written a moment ago are indexed first, if they are few."""

    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        indexer: Indexer,
        reranker: Reranker | None = None,
        settings: RerankerSettings | None = None,
    ) -> None:
        self._database = database
        self._embedder = embedder
        self._indexer = indexer
        self._reranker = reranker
        self._settings = settings or RerankerSettings()
        self._kinds: dict[str, SearchableType] = {}

    async def search(self, store: Store, request: SearchRequest) -> Found:
        """What the store's scope sees that fits the text, best first."""
        if is_blank(request.text):
            raise InvalidInputError("SEARCH needs words to look for, and the text has none.")
        found = Found()
        if len(request.text) > _LONGEST_QUESTION:
            request = replace(request, text=request.text[:_LONGEST_QUESTION])
            found.notes.append(f"Only the first {_LONGEST_QUESTION} characters of the text were searched for.")
        vector = await self._embed(request, found)
        async with store.executor.connection() as connection:
            asked = replace(request, limit=self._candidates(request))
            statement, parameters = _statement(await self._known(connection, request.table), store, asked, vector)
            answer = await self._ask(connection, statement, parameters, found)
        if answer["waiting"] and not self._database.server_info.is_replica:
            await self._catch_up(store, found)
            async with store.executor.connection() as connection:
                answer = await self._ask(connection, statement, parameters, found)
        if answer["waiting"]:
            found.notes.append("Some rows are not indexed yet and were not searched: `rem db index` indexes them now.")
        found.hits = await self._reread(request, [Hit(**hit) for hit in answer["hits"]], found)
        return found

    async def _reread(self, request: SearchRequest, hits: list[Hit], found: Found) -> list[Hit]:
        """The hits in the order of the reranker, if there is one; as they are if it fails."""
        if self._reranker is None or not hits:
            return hits
        started = perf_counter()
        first, rest = hits[: self._settings.candidates], hits[self._settings.candidates :]
        try:
            scores = await self._reranker.scores(request.text, [hit.passage["text"] for hit in first])
        except RerankerError as error:
            logger.warning("The reranker failed, so its order is not used: {}", error)
            found.notes.append(f"Not reread: {error}")
            return hits[: request.limit]
        found.steps.append(("rerank", _since(started), len(first)))
        order = rank_candidates([hit.score for hit in first], scores, self._settings.weight)
        return [*(first[place] for place in order), *rest][: request.limit]

    def _candidates(self, request: SearchRequest) -> int:
        """How many hits the database is asked for."""
        return max(request.limit, self._settings.candidates) if self._reranker else request.limit

    async def _known(self, connection: Connection, table: str | None) -> dict[str, SearchableType]:
        """The searchable types; asked for anew only when one is missing, because types do not go away."""
        if not self._kinds or (table is not None and table not in self._kinds):
            self._kinds = await load_searchable_types(connection)
        return self._kinds

    async def _embed(self, request: SearchRequest, found: Found) -> Vector | None:
        """The text's vector; None where the search goes by words alone."""
        if request.mode == "text":
            return None
        started = perf_counter()
        try:
            vector = await self._embedder.embed_one(request.text)
        except EmbeddingError as error:
            if request.mode == "vector":
                raise
            if not isinstance(error, EmbeddingDisabledError):
                logger.warning("The embedder failed, so the search goes by words alone: {}", error)
            found.notes.append(f"Searched by words alone: {error}")
            return None
        found.steps.append(("embed", _since(started), None))
        return vector

    async def _ask(self, connection: Connection, statement: str, parameters: list[Any], found: Found) -> dict[str, Any]:
        started = perf_counter()
        answer: dict[str, Any] = await connection.fetchval(statement, *parameters)
        if answer["model"] is not None and parameters[_VECTOR] is not None:
            require_same_model(EmbeddingModel(**answer["model"]), self._embedder)
        found.steps += [(name, round(milliseconds, 3), rows) for name, milliseconds, rows in answer["steps"]]
        found.steps.append(("database", _since(started), len(answer["hits"])))
        return answer

    async def _catch_up(self, store: Store, found: Found) -> None:
        started = perf_counter()
        rows = 0
        try:
            rows = await self._index(store.scope)
            await self._indexer.embed(store.scope, at_most=_INDEX_AT_ONCE)
        except EmbeddingDisabledError:
            pass  # the answer says so already, because the question could not be embedded either
        except EmbeddingError as error:
            found.notes.append(f"What was stored last was searched by words alone: {error}")
        except DatabaseError as error:
            # A connection that may not write finds what is indexed.
            found.notes.append(f"What was stored last was not indexed: {error}")
        found.steps.append(("index", _since(started), rows))

    async def _index(self, scope: Scope) -> int:
        """Make passages until nothing waits, or for long enough; how many rows it were."""
        rows = 0
        ends = perf_counter() + _INDEX_SECONDS
        while True:
            rows += (await self._indexer.make_passages(scope, _INDEX_AT_ONCE, _INDEX_SECONDS))[0]
            if rows >= _INDEX_AT_ONCE or perf_counter() > ends or not (await self._indexer.load_backlog(scope)).rows:
                return rows
            # Another search is just indexing them.
            await asyncio.sleep(0.01)


def _statement(
    kinds: dict[str, SearchableType], store: Store, request: SearchRequest, vector: Vector | None
) -> tuple[str, list[Any]]:
    """The statement that answers a request, and its parameters."""
    types = _types(kinds, store, request)
    parameters: list[Any] = [
        store.scope.tenant_id,
        visible_owners(store.scope),
        request.text,
        find_relative_time_words(request.text),
        asks_for_time(request.text),
        None if vector is None else vector.tolist(),
        None if vector is None else len(vector),
        types if request.table else None,
        request.field,
        request.mode,
        request.min_similarity,
        request.limit,
        request.table == "sessions",
    ]
    # A condition on conversations is one on the sessions themselves.
    filtered = ["sessions"] if request.table == "sessions" else types
    allowed = "NULL" if request.where is None else _allowed(store, filtered, request.where, parameters)
    return fill(query("passages", "search"), allowed=allowed), parameters


_VECTOR = 5


def _types(kinds: dict[str, SearchableType], store: Store, request: SearchRequest) -> list[str]:
    """The types that are searched."""
    if request.table is None:
        chosen = list(kinds.values())
    elif request.table in kinds:
        # A session is found by what was said in it.
        names = ("messages", "sessions") if request.table == "sessions" else (request.table,)
        chosen = [kinds[name] for name in names]
    else:
        store.types.get_model(request.table)
        raise InvalidInputError(
            f"{request.table} has no text that is searched. SEARCH goes over {', '.join(sorted(kinds))}; "
            f"for {request.table} use FUZZY or SQL."
        )
    if request.field is not None:
        fields = sorted({field for kind in chosen for field in kind.fields})
        chosen = [kind for kind in chosen if request.field in kind.fields]
        if not chosen:
            where = request.table or "the tables"
            raise InvalidInputError(f"The text of {where} is in {', '.join(fields)}, not in {request.field!r}.")
    return sorted(kind.name for kind in chosen)


def _allowed(store: Store, types: list[str], where: Condition, parameters: list[Any]) -> str:
    """SQL for the ids of the rows that fulfil a condition, over all types that have its fields."""
    queries, failures = [], []
    for name in types:
        added = len(parameters)
        table = get_table(store.types.get_model(name))
        try:
            condition = ConditionCompiler(table, parameters).compile(where)
        except InvalidInputError as error:
            del parameters[added:]
            failures.append(error)
            continue
        queries.append(fill(query("passages", "allowed"), table=f"rem.{identifier(name)}", condition=condition))
    if not queries:
        # The table whose fields fit has the reason that helps.
        raise next((error for error in failures if "has no field" not in str(error)), _nowhere(failures, types))
    return f"ARRAY({' UNION ALL '.join(queries)})"


def _nowhere(failures: list[InvalidInputError], types: list[str]) -> InvalidInputError:
    if len(failures) == 1:
        return failures[0]
    field = str(failures[0]).partition("has no field ")[2].partition(".")[0]
    return InvalidInputError(f"None of the searched tables ({', '.join(types)}) has the field {field}.")


def _since(started: float) -> float:
    return round((perf_counter() - started) * 1000, 3)


async def run_search(searcher: Searcher, store: Store, query: Search) -> QueryResult:
    """The entities that fit best, with how well, and the passage that shows it."""
    request = SearchRequest(
        text=query.text,
        table=query.table,
        where=query.where.condition if query.where else None,
        field=query.field,
        min_similarity=query.min_similarity,
        mode=query.mode,
        limit=query.limit,
    )
    found = await searcher.search(store, request)
    steps = tuple(Step(name, milliseconds, rows) for name, milliseconds, rows in found.steps)
    return QueryResult("SEARCH", [_row(hit) for hit in found.hits], tuple(found.notes), steps)


def _row(hit: Hit) -> dict[str, Any]:
    return {
        "table": hit.entity_type,
        "key": hit.record["key"],
        "score": hit.score,
        "similarity": hit.similarity,
        "weight": hit.weight,
        "passage": hit.passage,
        "record": hit.record,
    }
