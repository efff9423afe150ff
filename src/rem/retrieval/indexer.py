"""Indexer: brings the passages up to date with the rows, and the embeddings with the passages."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import orjson

from rem.context import Scope
from rem.db.sql import fill, query
from rem.embeddings import UnavailableEmbedder, is_blank
from rem.errors import EmbeddingDisabledError
from rem.retrieval.embedding_model import (
    EmbeddingModel,
    load_current_model,
    load_or_record_model,
    require_same_model,
    set_current_model,
)
from rem.retrieval.passages import (
    Passage,
    build_embedding_text,
    collect_weighted_texts,
    compute_prior,
    row_is_statement,
    row_mentions_time,
    split_row,
)
from rem.retrieval.searchable_rows import (
    SearchableRow,
    limit_ids_by_size,
    load_languages,
    load_rows,
    load_searchable_types,
    visible_owners,
)

if TYPE_CHECKING:
    from rem.db.database import Connection, Database
    from rem.embeddings import Embedder, Vector

IndexProgress: TypeAlias = Callable[[str, int], None]
"""Called with "indexed" or "embedded", and the number of rows or passages done since the last call."""

MAX_ROWS_PER_TRANSACTION = 256
EMBED_BATCH_PASSAGES = 256
SHORT_BATCH_PASSAGES = 32
MAX_EMBEDDED_BEFORE_INDEXING = 8 * EMBED_BATCH_PASSAGES
"""After this many passages, new rows are indexed before the embedding continues."""
POLL_SECONDS = 0.2
MAX_BYTES_PER_TRANSACTION = 4_000_000
"""The texts of one transaction, which blocks their writers, are at most this large."""


@dataclass(frozen=True, slots=True)
class IndexBacklog:
    """The number of rows without passages, and of passages without an embedding."""

    rows: int
    passages: int

    def __bool__(self) -> bool:
        return bool(self.rows or self.passages)


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of the index."""

    passages: int
    embedded: int
    unindexed_rows: int
    """Rows with a text that are neither indexed nor in the queue. There should be none."""
    model: str | None
    backlog: IndexBacklog


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The number of rows indexed, of passages made and of passages embedded."""

    rows: int
    passages: int
    embedded: int


class Indexer:
    """Indexes the rows in the queue. Any number of indexers may run at the same time, in any number of processes."""

    def __init__(self, database: Database, embedder: Embedder, language: str) -> None:
        self._database = database
        self._embedder = embedder
        self._language = language
        self._languages: frozenset[str] = frozenset()

    async def load_backlog(self, scope: Scope | None = None) -> IndexBacklog:
        """Return what is not indexed yet, for everyone or for what one scope sees."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("passages", "backlog"), *_scope_parameters(scope))
        return IndexBacklog(*row) if row else IndexBacklog(0, 0)

    async def enqueue_all(self) -> None:
        """Put all rows into the queue to index them again. Until then, SEARCH uses their old passages."""
        async with self._database.connection() as connection:
            await connection.execute("SELECT rem.rem_enqueue_all_rows()")

    async def check(self) -> IndexState:
        """Return the state of the index. Raise EmbeddingMismatchError if another model made the vectors."""
        async with self._database.connection() as connection:
            model = await load_current_model(connection)
            passages, embedded = await connection.fetchrow(query("passages", "count_passages")) or (0, 0)
            unindexed_rows = await connection.fetchval(query("passages", "count_unindexed_rows"))
        if model is not None and not isinstance(self._embedder, UnavailableEmbedder):
            require_same_model(model, self._embedder)
        return IndexState(passages, embedded, unindexed_rows, model.name if model else None, await self.load_backlog())

    async def run(self, scope: Scope | None = None, on_progress: IndexProgress | None = None) -> IndexReport:
        """Index all rows in the queue, of everyone or of what one scope sees. Without an embedder, index words only."""
        rows = passages = embedded = 0
        passage_task = self._start_indexing(scope, on_progress)
        try:
            while True:
                is_indexed = passage_task.done()
                embedded_now = await self._embed_batches(scope, on_progress)
                embedded += embedded_now
                if is_indexed:
                    new_rows, new_passages = await passage_task
                    rows, passages = rows + new_rows, passages + new_passages
                    if embedded_now < MAX_EMBEDDED_BEFORE_INDEXING:
                        await self._fold_statistics()
                        return IndexReport(rows, passages, embedded)
                    # New rows must be found by their words before a long backlog is embedded.
                    passage_task = self._start_indexing(scope, on_progress)
                elif embedded_now < MAX_EMBEDDED_BEFORE_INDEXING:
                    await asyncio.wait([passage_task], timeout=POLL_SECONDS)
        finally:
            passage_task.cancel()
            await asyncio.gather(passage_task, return_exceptions=True)

    def _start_indexing(self, scope: Scope | None, on_progress: IndexProgress | None) -> asyncio.Task[tuple[int, int]]:
        """Make passages in the background while others are embedded: one needs the database, the other the CPU."""
        return asyncio.create_task(self.make_passages(scope, on_progress=on_progress))

    async def _embed_batches(self, scope: Scope | None, on_progress: IndexProgress | None) -> int:
        try:
            return await self.embed(scope, at_most=MAX_EMBEDDED_BEFORE_INDEXING, on_progress=on_progress)
        except EmbeddingDisabledError:
            return 0

    async def make_passages(
        self,
        scope: Scope | None = None,
        at_most: int | None = None,
        seconds: float = math.inf,
        on_progress: IndexProgress | None = None,
    ) -> tuple[int, int]:
        """Make the passages of rows in the queue. Return the number of rows and of passages.

        Stop after `at_most` rows or `seconds`.
        """
        rows = passages = 0
        postponed: list[int] = []
        deadline = monotonic() + seconds
        while (at_most is None or rows < at_most) and monotonic() < deadline:
            counts = await self._index_queue_entry(scope, postponed)
            if counts is None:
                break
            rows += counts[0]
            passages += counts[1]
            if on_progress:
                on_progress("indexed", counts[0])
        return rows, passages

    async def _index_queue_entry(self, scope: Scope | None, postponed: list[int]) -> tuple[int, int] | None:
        """Index the next entry of the queue in one transaction. Return the number of rows and passages.

        Return None if the queue has no entry but the postponed ones. Rows that are locked are put back into the queue,
        and their entries are added to `postponed`.
        """
        async with self._database.connection() as connection, connection.transaction():
            parameters = (*_scope_parameters(scope), postponed)
            entry = await connection.fetchrow(_fill_order("take_from_queue", scope), *parameters)
            if entry is None:
                return None
            tenant_id, entity_type, ids = entry["tenant_id"], entry["entity_type"], entry["entity_ids"]
            if len(ids) > MAX_ROWS_PER_TRANSACTION:
                split = query("passages", "split_queue_entry")
                await connection.execute(split, tenant_id, entry["owner"], entity_type, ids, MAX_ROWS_PER_TRANSACTION)
                return 0, 0
            searchable_type = (await load_searchable_types(connection)).get(entity_type)
            if searchable_type is None:
                return len(ids), 0
            requeue = fill(query("passages", "requeue"), table=searchable_type.table)
            if not entry["is_locked"]:
                postponed += [row[0] for row in await connection.fetch(requeue, tenant_id, ids, entity_type)]
                return 0, 0
            self._languages = self._languages or await load_languages(connection, self._language)
            portion = await limit_ids_by_size(connection, searchable_type, tenant_id, ids, MAX_BYTES_PER_TRANSACTION)
            rows = await load_rows(connection, searchable_type, tenant_id, portion, lock=True)
            await connection.fetch(requeue, tenant_id, list(set(ids) - set(portion)), entity_type)
            # Rows that are being written at this moment are indexed in another run.
            locked = set(portion) - {row.id for row in rows}
            postponed += [row[0] for row in await connection.fetch(requeue, tenant_id, list(locked), entity_type)]
            stored = await connection.fetchval(
                query("passages", "store_passages"),
                tenant_id,
                entity_type,
                [row.id for row in rows],
                # Rows can have megabytes of text, and requests must not wait for them.
                await asyncio.to_thread(lambda: [passage for row in rows for passage in self._passages_to_json(row)]),
            )
            return len(rows), stored

    def _passages_to_json(self, row: SearchableRow) -> Iterator[dict[str, Any]]:
        # The same for all passages, and slow to find out for a long row.
        of_row = {
            "owner": row.user_id or "",
            "entity_id": str(row.id),
            "group_id": row.group_id and str(row.group_id),
            "position": row.position,
            "expires_at": row.expires_at,
            "language": row.language if row.language in self._languages else self._language,
            "prior": compute_prior(row),
            "speaker": next(iter((row.speaker or "").lower().split()), None),
            "tells_time": row_mentions_time(row),
            "happened_at": row.range_time,
            "is_statement": row_is_statement(row),
        }
        for passage in split_row(row):
            weighed = list(collect_weighted_texts(row, passage))
            yield {
                **of_row,
                "field": passage.field,
                "starts": passage.start,
                "ends": passage.end,
                "texts": [text for text, _ in weighed],
                "shares": [share for _, share in weighed],
            }

    async def _fold_statistics(self) -> None:
        async with self._database.connection() as connection:
            await connection.execute(query("passages", "fold_statistics"))

    async def embed(
        self,
        scope: Scope | None = None,
        at_most: int | None = None,
        seconds: float = math.inf,
        on_progress: IndexProgress | None = None,
    ) -> int:
        """Embed passages that have no embedding yet, up to `at_most` or for `seconds`, at least one batch.

        Return how many.
        """
        if isinstance(self._embedder, UnavailableEmbedder):
            raise self._embedder.error
        embedded = 0
        deadline = monotonic() + seconds
        # The time is checked between two batches.
        size = EMBED_BATCH_PASSAGES if math.isinf(seconds) else SHORT_BATCH_PASSAGES
        skipped: list[int] = []
        batch = await self._load_next_batch(scope, skipped, size)
        # While one batch is embedded, the previous one is stored and the next one is loaded.
        async with _BackgroundTask() as storing:
            # On a busy machine, loading the first batch can take all of the time. What was just said must be found.
            while (
                batch is not None
                and (at_most is None or embedded < at_most)
                and (not embedded or monotonic() < deadline)
            ):
                vectors = asyncio.create_task(self._embed_batch(batch))
                try:
                    following = await self._load_next_batch(scope, [*skipped, *batch.ids, *storing.ids], size)
                except BaseException:
                    vectors.cancel()
                    raise
                await storing.start_next(batch.ids, self._store_batch(batch, await vectors))
                skipped += batch.blank
                embedded += len(batch.embeddable)
                if on_progress:
                    on_progress("embedded", len(batch.embeddable))
                batch = following
        return embedded

    async def _load_next_batch(self, scope: Scope | None, excluded: Sequence[int], size: int) -> _Batch | None:
        async with self._database.connection() as connection:
            parameters = (*_scope_parameters(scope), list(excluded), size)
            passages = await connection.fetch(_fill_order("passages_without_embedding", scope), *parameters)
            if not passages:
                return None
            model = await load_or_record_model(connection, self._embedder)
            return _Batch(model, passages, await _load_embedding_texts(connection, passages))

    async def switch_model(self) -> int:
        """Make the embedder's model the current one. Return the number of passages that another model embedded."""
        # A model that cannot embed must not replace one that can.
        await self._embedder.embed_one("a text to try it")
        async with self._database.connection() as connection:
            model = await set_current_model(connection, self._embedder)
            return int(await connection.fetchval(query("passages", "count_passages_of_other_models"), model.id))

    async def reembed_outdated(self, on_progress: IndexProgress | None = None) -> int:
        """Embed the passages of other models again. Return how many. It can be stopped and resumed at any time."""
        async with self._database.connection() as connection:
            model = await load_current_model(connection)
            if model is None or isinstance(self._embedder, UnavailableEmbedder):
                return 0
            require_same_model(model, self._embedder)
        embedded, last_id = 0, 0
        while True:
            async with self._database.connection() as connection:
                statement = query("passages", "passages_of_other_models")
                passages = await connection.fetch(statement, model.id, last_id, EMBED_BATCH_PASSAGES)
                texts = await _load_embedding_texts(connection, passages)
            if not passages:
                return embedded
            last_id = passages[-1]["id"]
            batch = _Batch(model, passages, texts)
            await self._store_batch(batch, await self._embed_batch(batch))
            embedded += len(batch.embeddable)
            if on_progress:
                on_progress("embedded", len(batch.embeddable))

    async def _embed_batch(self, batch: _Batch) -> Sequence[Vector]:
        texts = [batch.texts[passage["id"]] for passage in batch.embeddable]
        return list(await self._embedder.embed(texts)) if texts else []

    async def _store_batch(self, batch: _Batch, vectors: Sequence[Vector]) -> None:
        passages = batch.embeddable
        if not passages:
            return
        async with self._database.connection() as connection:
            await connection.execute(
                query("passages", "store_embeddings"),
                [passage["tenant_id"] for passage in passages],
                [passage["id"] for passage in passages],
                [vector_to_text(vector) for vector in vectors],
                batch.model.id,
            )
            for tenant_id, owner in sorted({(passage["tenant_id"], passage["owner"]) for passage in passages}):
                await connection.execute(query("passages", "refresh_embedding_mean"), tenant_id, owner, batch.model.id)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Passages that are embedded together, and their texts by passage id."""

    model: EmbeddingModel
    passages: Sequence[Any]
    texts: dict[int, str]

    @property
    def ids(self) -> list[int]:
        return [passage["id"] for passage in self.passages]

    @property
    def embeddable(self) -> list[Any]:
        """The passages with a text. The row of a passage without one was just changed or deleted."""
        return [passage for passage in self.passages if not is_blank(self.texts.get(passage["id"], ""))]

    @property
    def blank(self) -> set[int]:
        return set(self.ids) - {passage["id"] for passage in self.embeddable}


class _BackgroundTask:
    """One background task at a time. At the end of the block it is awaited, or cancelled after an error."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _BackgroundTask:
        return self

    async def start_next(self, ids: list[int], work: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine after the previous one is done."""
        try:
            await self._finish()
        except BaseException:
            work.close()
            raise
        self.ids, self._task = ids, asyncio.create_task(work)

    async def _finish(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await task

    async def __aexit__(self, error_type: type[BaseException] | None, *_rest: object) -> None:
        if error_type is not None and self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            return
        await self._finish()


async def _load_embedding_texts(connection: Connection, passages: Sequence[Any]) -> dict[int, str]:
    """Return the text to embed for each passage, by passage id."""
    if not passages:
        return {}
    types = await load_searchable_types(connection)
    ids_by_table: dict[tuple[str, str], set[UUID]] = defaultdict(set)
    for passage in passages:
        ids_by_table[passage["tenant_id"], passage["entity_type"]].add(passage["entity_id"])
    rows: dict[tuple[str, str, UUID], SearchableRow] = {}
    for (tenant_id, entity_type), ids in ids_by_table.items():
        searchable_type = types.get(entity_type)
        if searchable_type is not None:
            for row in await load_rows(connection, searchable_type, tenant_id, list(ids)):
                rows[tenant_id, entity_type, row.id] = row
    texts = {}
    for passage in passages:
        source_row = rows.get((passage["tenant_id"], passage["entity_type"], passage["entity_id"]))
        if source_row and passage["field"] in source_row.bodies:
            offsets = Passage(passage["field"], passage["starts"], passage["ends"])
            texts[passage["id"]] = build_embedding_text(source_row, offsets)
    return texts


def vector_to_text(vector: Vector) -> str:
    """Return a vector in the text format of pgvector."""
    return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _scope_parameters(scope: Scope | None) -> tuple[str | None, list[str]]:
    return (scope.tenant_id, visible_owners(scope)) if scope else (None, [])


def _fill_order(name: str, scope: Scope | None) -> str:
    """Return a statement that reads the queue: the newest entries of one scope first, or the oldest of everyone."""
    return fill(query("passages", name), order="DESC" if scope else "ASC")
