"""Indexer: brings the passages up to date with the rows, and the embeddings with the passages."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg
import orjson
from loguru import logger

from rem.context import Scope
from rem.db.retry import BUSY_ERRORS
from rem.db.sql import fill, query
from rem.errors import EmbeddingDisabledError, EmbeddingError, RemError
from rem.search.embedder_factory import UnavailableEmbedder
from rem.search.embedding_model import (
    EmbeddingModel,
    load_current_model,
    load_or_record_model,
    require_same_model,
    set_current_model,
)
from rem.search.embedding_validation import is_blank
from rem.search.passages import (
    PassageSpan,
    build_embedding_text,
    collect_weighted_texts,
    compute_prior,
    get_passage_kind,
    row_mentions_time,
    split_row,
)
from rem.search.searchable_rows import (
    SearchableRow,
    limit_ids_by_size,
    load_languages,
    load_rows,
    load_searchable_types,
    visible_owners,
)

if TYPE_CHECKING:
    from rem.db.database import Connection, Database
    from rem.search.embedder import Embedder, Vector

IndexProgress: TypeAlias = Callable[[str, int], None]
"""Called with "indexed" or "embedded", and the number of rows or passages done since the last call."""

MAX_ROWS_PER_TRANSACTION = 256
EMBED_BATCH_PASSAGES = 256
SHORT_BATCH_PASSAGES = 32
MAX_EMBEDDED_BEFORE_INDEXING = 8 * EMBED_BATCH_PASSAGES
"""After this many passages, new rows are indexed before the embedding continues."""
TRIAL_TEXT = "a text to try it"
POLL_SECONDS = 0.2
LOCK_POLL_SECONDS = 0.01
MAX_BYTES_PER_TRANSACTION = 4_000_000
"""The texts of one transaction, which blocks their writers, are at most this large."""
ERRORS_OF_ROWS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.InternalServerError,
    asyncpg.PLPGSQLError,
)
"""Errors of the database that come from the text of a row, so that another try will most likely fail, too."""


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
    set_aside: IndexBacklog
    """What failed several times and is not tried again until `retry_failed`."""


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
            row = await connection.fetchrow(query("search/passages", "backlog"), *_scope_parameters(scope))
        return IndexBacklog(*row) if row else IndexBacklog(0, 0)

    async def enqueue_all(self) -> None:
        """Put all rows into the queue to index them again. Until then, SEARCH uses their old passages."""
        async with self._database.connection() as connection:
            await connection.execute("SELECT rem.rem_enqueue_all_rows()")

    async def check(self) -> IndexState:
        """Return the state of the index. Raise EmbeddingMismatchError if another model made the vectors."""
        async with self._database.connection() as connection:
            model = await load_current_model(connection)
            passages, embedded = await connection.fetchrow(query("search/passages", "count_passages")) or (0, 0)
            unindexed_rows = await connection.fetchval(query("search/passages", "count_unindexed_rows"))
            set_aside = await connection.fetchrow(query("search/passages", "count_set_aside")) or (0, 0)
        if model is not None and not isinstance(self._embedder, UnavailableEmbedder):
            require_same_model(model, self._embedder)
        name = model.name if model else None
        backlog = await self.load_backlog()
        return IndexState(passages, embedded, unindexed_rows, name, backlog, IndexBacklog(*set_aside))

    async def retry_failed(self, scope: Scope | None = None) -> None:
        """Let the next run try what was set aside after failures, of everyone or of what one scope sees."""
        async with self._database.connection() as connection:
            for name in ("retry_failed_rows", "retry_failed_passages"):
                await connection.execute(query("search/passages", name), *_scope_parameters(scope))

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
        except EmbeddingError:
            # Rows are found by their words, however long the embedder is away.
            await self.make_passages(scope, on_progress=on_progress)
            raise

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
            # A search tries the same row several times in a second: its failures say nothing about the next minute.
            counts = await self._index_queue_entry(scope, postponed, is_counting=math.isinf(seconds))
            if counts is None:
                break
            rows += counts[0]
            passages += counts[1]
            if on_progress:
                on_progress("indexed", counts[0])
        return rows, passages

    async def _index_queue_entry(
        self, scope: Scope | None, postponed: list[int], *, is_counting: bool
    ) -> tuple[int, int] | None:
        """Index the next entry of the queue in one transaction. Return the number of rows and passages.

        Return None if the queue has no entry but the postponed ones. Rows that are locked are put back into the queue,
        and their entries are added to `postponed`. So is an entry with a row that cannot be indexed: the others go on.
        """
        entry = None
        try:
            async with self._database.connection() as connection, connection.transaction():
                parameters = (*_scope_parameters(scope), postponed)
                entry = await connection.fetchrow(_fill_order("take_from_queue", scope), *parameters)
                return None if entry is None else await self._index_rows(connection, entry, postponed)
        except Exception as error:
            if entry is None or not (_is_busy(error) or _is_fault_of_row(error)):
                raise
            postponed.append(entry["id"])
            if not _is_busy(error):
                await self._record_failure(entry, error, is_counting=is_counting)
            return 0, 0

    async def _index_rows(self, connection: Connection, entry: Any, postponed: list[int]) -> tuple[int, int]:
        """Index the rows of an entry of the queue. Return the number of rows and passages."""
        tenant_id, entity_type, ids = entry["tenant_id"], entry["entity_type"], entry["entity_ids"]
        if len(ids) > MAX_ROWS_PER_TRANSACTION:
            split = query("search/passages", "split_queue_entry")
            await connection.execute(split, tenant_id, entry["owner"], entity_type, ids, MAX_ROWS_PER_TRANSACTION)
            return 0, 0
        searchable_type = (await load_searchable_types(connection)).get(entity_type)
        if searchable_type is None:
            return len(ids), 0
        requeue = fill(query("search/passages", "requeue"), table=searchable_type.table)
        if not entry["is_locked"]:
            postponed += [row[0] for row in await connection.fetch(requeue, tenant_id, ids, entity_type)]
            return 0, 0
        self._languages = self._languages or await load_languages(connection, self._language)
        portion = await limit_ids_by_size(connection, searchable_type, tenant_id, ids, MAX_BYTES_PER_TRANSACTION)
        rows = await load_rows(connection, searchable_type, tenant_id, portion, lock=True)
        await connection.fetch(requeue, tenant_id, list(set(ids) - set(portion)), entity_type)
        busy = await connection.fetch(query("search/passages", "locked_entities"), tenant_id, portion, entity_type)
        rows = [row for row in rows if row.id not in {record["entity_id"] for record in busy}]
        # Rows that are being written at this moment are indexed in another run.
        locked = set(portion) - {row.id for row in rows}
        postponed += [row[0] for row in await connection.fetch(requeue, tenant_id, list(locked), entity_type)]
        stored = await connection.fetchval(
            query("search/passages", "store_passages"),
            tenant_id,
            entity_type,
            [row.id for row in rows],
            # Rows can have megabytes of text, and requests must not wait for them.
            await asyncio.to_thread(lambda: [passage for row in rows for passage in self._passages_to_json(row)]),
        )
        return len(rows), stored

    async def _record_failure(self, entry: Any, error: Exception, *, is_counting: bool) -> None:
        """Count a failure of an entry with one row, which sets it aside in the end. Halve a larger entry."""
        is_single, is_set_aside = len(entry["entity_ids"]) == 1, False
        if is_counting or not is_single:
            name = "count_failure" if is_single else "split_failed_entry"
            async with self._database.connection() as connection:
                is_set_aside = await connection.fetchval(
                    query("search/passages", name), entry["tenant_id"], entry["id"]
                )
        if is_single:
            _log_failure("indexed", entry["entity_type"], entry["entity_ids"][0], error, is_set_aside=is_set_aside)

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
            "kind": get_passage_kind(row),
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
            await connection.execute(query("search/passages", "fold_statistics"))

    async def embed(
        self,
        scope: Scope | None = None,
        at_most: int | None = None,
        seconds: float = math.inf,
        on_progress: IndexProgress | None = None,
    ) -> int:
        """Embed passages that have no embedding yet, up to `at_most` or for `seconds`, at least one batch.

        Return how many. Passages that another process is writing are left to it; with `seconds`, its work is awaited.
        """
        if isinstance(self._embedder, UnavailableEmbedder):
            raise self._embedder.error
        embedded = 0
        deadline = monotonic() + seconds
        # The time is checked between two batches.
        size = EMBED_BATCH_PASSAGES if math.isinf(seconds) else SHORT_BATCH_PASSAGES
        skipped: list[int] = []
        locked: list[Any] = []
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
                    excluded = [*skipped, *batch.ids, *storing.ids, *(passage["id"] for passage in locked)]
                    following = await self._load_next_batch(scope, excluded, size)
                except BaseException:
                    vectors.cancel()
                    raise
                skipped += batch.blank
                try:
                    await storing.start_next(batch.ids, self._store_batch(batch, await vectors, locked))
                    embedded_now = len(batch.embeddable)
                except EmbeddingError as error:
                    if not math.isinf(seconds):
                        raise
                    embedded_now = await self._embed_separately(batch, error, locked)
                    skipped += batch.ids
                embedded += embedded_now
                if on_progress:
                    on_progress("embedded", embedded_now)
                batch = following
        if not math.isinf(seconds):
            await self._wait_for_others(locked, deadline)
        return embedded

    async def _embed_separately(self, batch: _Batch, error: EmbeddingError, locked: list[Any]) -> int:
        """Embed a batch that failed in ever smaller parts, and count a failure of the passages that fail alone.

        Return how many were embedded. Raise the error again if the embedder fails with any text.
        """
        await self._embedder.embed([TRIAL_TEXT])
        if len(batch.embeddable) == 1:
            await self._record_embedding_failure(batch.embeddable[0], error)
            return 0
        embedded = 0
        for part in batch.halves():
            try:
                await self._store_batch(part, await self._embed_batch(part), locked)
                embedded += len(part.embeddable)
            except EmbeddingError as next_error:
                embedded += await self._embed_separately(part, next_error, locked)
        return embedded

    async def _record_embedding_failure(self, passage: Any, error: EmbeddingError) -> None:
        parameters = passage["tenant_id"], passage["id"]
        async with self._database.connection() as connection:
            is_set_aside = await connection.fetchval(query("search/passages", "count_embedding_failure"), *parameters)
        _log_failure("embedded", passage["entity_type"], passage["entity_id"], error, is_set_aside=is_set_aside)

    async def _wait_for_others(self, passages: Sequence[Any], deadline: float) -> None:
        """Wait until other processes have stored the vectors of passages, or until the deadline."""
        parameters = [passage["tenant_id"] for passage in passages], [passage["id"] for passage in passages]
        while passages and monotonic() < deadline:
            async with self._database.connection() as connection:
                if not await connection.fetchval(query("search/passages", "has_unembedded"), *parameters):
                    return
            await asyncio.sleep(LOCK_POLL_SECONDS)

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
        await self._embedder.embed_one(TRIAL_TEXT)
        async with self._database.connection() as connection:
            model = await set_current_model(connection, self._embedder)
            return int(await connection.fetchval(query("search/passages", "count_passages_of_other_models"), model.id))

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
                statement = query("search/passages", "passages_of_other_models")
                passages = await connection.fetch(statement, model.id, last_id, EMBED_BATCH_PASSAGES)
                texts = await _load_embedding_texts(connection, passages)
            if not passages:
                return embedded
            last_id = passages[-1]["id"]
            batch = _Batch(model, passages, texts)
            await self._store_batch(batch, await self._embed_batch(batch), [])
            embedded += len(batch.embeddable)
            if on_progress:
                on_progress("embedded", len(batch.embeddable))

    async def _embed_batch(self, batch: _Batch) -> Sequence[Vector]:
        texts = [batch.texts[passage["id"]] for passage in batch.embeddable]
        return list(await self._embedder.embed(texts)) if texts else []

    async def _store_batch(self, batch: _Batch, vectors: Sequence[Vector], locked: list[Any]) -> None:
        """Store vectors. Append the passages that others are writing at this moment to `locked`."""
        passages = batch.embeddable
        if not passages:
            return
        async with self._database.connection() as connection:
            stored = await connection.fetch(
                query("search/passages", "store_embeddings"),
                [passage["tenant_id"] for passage in passages],
                [passage["id"] for passage in passages],
                [vector_to_text(vector) for vector in vectors],
                batch.model.id,
            )
            stored_ids = {record["id"] for record in stored}
            locked += [passage for passage in passages if passage["id"] not in stored_ids]
            for tenant_id, owner in sorted({(passage["tenant_id"], passage["owner"]) for passage in passages}):
                await connection.execute(
                    query("search/passages", "refresh_embedding_mean"), tenant_id, owner, batch.model.id
                )


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

    def halves(self) -> Iterable[_Batch]:
        middle = len(self.embeddable) // 2
        return [_Batch(self.model, part, self.texts) for part in (self.embeddable[:middle], self.embeddable[middle:])]


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
            offsets = PassageSpan(passage["field"], passage["starts"], passage["ends"])
            texts[passage["id"]] = build_embedding_text(source_row, offsets)
    return texts


def vector_to_text(vector: Vector) -> str:
    """Return a vector in the text format of pgvector."""
    return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _log_failure(what: str, table: str, row_id: UUID, error: Exception, *, is_set_aside: bool) -> None:
    outcome = "It is set aside until `rem db index` tries it again" if is_set_aside else "It will be tried again"
    logger.warning("The row {} of {} cannot be {}. {}: {}", row_id, table, what, outcome, error)


def _is_busy(error: Exception) -> bool:
    """Return whether another transaction was in the way."""
    return isinstance(error, RemError) and isinstance(error.__cause__, BUSY_ERRORS)


def _is_fault_of_row(error: Exception) -> bool:
    """Return whether a row failed because of its text, and not because of the database or the settings."""
    if isinstance(error, RemError):
        return isinstance(error.__cause__, ERRORS_OF_ROWS)
    return not isinstance(error, OSError)


def _scope_parameters(scope: Scope | None) -> tuple[str | None, list[str]]:
    return (scope.tenant_id, visible_owners(scope)) if scope else (None, [])


def _fill_order(name: str, scope: Scope | None) -> str:
    """Return a statement that reads the queue: the newest entries of one scope first, or the oldest of everyone."""
    return fill(query("search/passages", name), order="DESC" if scope else "ASC")
