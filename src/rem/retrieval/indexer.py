"""Indexer: brings the passages up to date with the rows, and the embeddings with the passages."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
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
    row_mentions_time,
    split_row,
)
from rem.retrieval.searchable_rows import (
    SearchableRow,
    SearchableType,
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
"""Called with what was done ("indexed", "embedded") and how many more of it are done now."""

_ROWS_AT_ONCE = 256
_EMBED_AT_ONCE = 256
_EMBED_IN_TURN = 8 * _EMBED_AT_ONCE
_LOOK_AGAIN_SECONDS = 0.2
_LARGEST_PORTION = 4_000_000
"""In bytes: so much text is split and weighed in one transaction, while its writers wait."""


@dataclass(frozen=True, slots=True)
class IndexBacklog:
    """What is not indexed yet."""

    rows: int
    passages: int

    def __bool__(self) -> bool:
        return bool(self.rows or self.passages)


@dataclass(frozen=True, slots=True)
class IndexState:
    """How much is indexed."""

    passages: int
    embedded: int
    forgotten: int
    model: str | None
    waiting: IndexBacklog


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What an indexing did."""

    rows: int
    passages: int
    embedded: int


class Indexer:
    """Works off what waits. Any number may run at the same time, in any number of processes."""

    def __init__(self, database: Database, embedder: Embedder, language: str) -> None:
        self._database = database
        self._embedder = embedder
        self._language = language
        self._languages: frozenset[str] = frozenset()

    async def load_backlog(self, scope: Scope | None = None) -> IndexBacklog:
        """What waits, of everyone or of what one scope sees."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(query("passages", "waiting"), *_of(scope))
        return IndexBacklog(*row) if row else IndexBacklog(0, 0)

    async def enqueue_all(self) -> None:
        """Let every row wait to be indexed anew; until then the passages that it has are searched."""
        async with self._database.connection() as connection:
            await connection.execute("SELECT rem.rem_enqueue_all_rows()")

    async def check(self) -> IndexState:
        """How much is indexed, by which model, and whether something was forgotten; an error if the models differ."""
        async with self._database.connection() as connection:
            model = await load_current_model(connection)
            passages, embedded = await connection.fetchrow(query("passages", "count_passages")) or (0, 0)
            forgotten = await connection.fetchval(query("passages", "count_forgotten"))
        if model is not None and not isinstance(self._embedder, UnavailableEmbedder):
            require_same_model(model, self._embedder)
        return IndexState(passages, embedded, forgotten, model.name if model else None, await self.load_backlog())

    async def run(self, scope: Scope | None = None, on_progress: IndexProgress | None = None) -> IndexReport:
        """Index all that waits, of everyone or of what one scope sees; without an embedder, for words alone."""
        rows = passages = embedded = 0
        making = self._making(scope, on_progress)
        try:
            while True:
                is_made = making.done()
                done = await self._embed_turn(scope, on_progress)
                embedded += done
                if is_made:
                    made = await making
                    rows, passages = rows + made[0], passages + made[1]
                    if done < _EMBED_IN_TURN:
                        await self._fold_statistics()
                        return IndexReport(rows, passages, embedded)
                    # What was just written must not wait for its words until a backlog is embedded.
                    making = self._making(scope, on_progress)
                elif done < _EMBED_IN_TURN:
                    await asyncio.wait([making], timeout=_LOOK_AGAIN_SECONDS)
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    def _making(self, scope: Scope | None, on_progress: IndexProgress | None) -> asyncio.Task[tuple[int, int]]:
        """Passages are made while others are embedded: the database works on the one, the processor on the other."""
        return asyncio.create_task(self.make_passages(scope, on_progress=on_progress))

    async def _embed_turn(self, scope: Scope | None, on_progress: IndexProgress | None) -> int:
        try:
            return await self.embed(scope, at_most=_EMBED_IN_TURN, on_progress=on_progress)
        except EmbeddingDisabledError:
            return 0

    async def make_passages(
        self,
        scope: Scope | None = None,
        at_most: int | None = None,
        seconds: float = math.inf,
        on_progress: IndexProgress | None = None,
    ) -> tuple[int, int]:
        """Make the passages of rows that wait; how many rows and passages it were."""
        rows = passages = 0
        postponed: list[int] = []
        ends = monotonic() + seconds
        while (at_most is None or rows < at_most) and monotonic() < ends:
            done = await self._index_portion(scope, postponed)
            if done is None:
                break
            rows += done[0]
            passages += done[1]
            if on_progress:
                on_progress("indexed", done[0])
        return rows, passages

    async def _index_portion(self, scope: Scope | None, postponed: list[int]) -> tuple[int, int] | None:
        async with self._database.connection() as connection, connection.transaction():
            taken = await connection.fetchrow(query("passages", "take_from_queue"), *_of(scope), postponed)
            if taken is None:
                return None
            tenant_id, entity_type, ids = taken["tenant_id"], taken["entity_type"], taken["entity_ids"]
            if len(ids) > _ROWS_AT_ONCE:
                split = query("passages", "split")
                await connection.execute(split, tenant_id, taken["owner"], entity_type, ids, _ROWS_AT_ONCE)
                return 0, 0
            kind = (await load_searchable_types(connection)).get(entity_type)
            if kind is None:
                return len(ids), 0
            self._languages = self._languages or await load_languages(connection, self._language)
            portion = await limit_ids_by_size(connection, kind, tenant_id, ids, _LARGEST_PORTION)
            rows = await load_rows(connection, kind, tenant_id, portion, lock=True)
            put_back = fill(query("passages", "put_back"), table=kind.table)
            await connection.fetch(put_back, tenant_id, list(set(ids) - set(portion)), entity_type)
            # Those that someone is just writing wait for another run.
            missed = set(portion) - {row.id for row in rows}
            postponed += [row[0] for row in await connection.fetch(put_back, tenant_id, list(missed), entity_type)]
            stored = await connection.fetchval(
                query("passages", "store_passages"),
                tenant_id,
                entity_type,
                [row.id for row in rows],
                [self._as_json(row, passage) for row in rows for passage in split_row(row)],
            )
            return len(rows), stored

    def _as_json(self, row: SearchableRow, passage: Passage) -> dict[str, Any]:
        weighed = list(collect_weighted_texts(row, passage))
        return {
            "owner": row.user_id or "",
            "entity_id": str(row.id),
            "field": passage.field,
            "starts": passage.start,
            "ends": passage.end,
            "group_id": row.group_id and str(row.group_id),
            "position": row.position,
            "expires_at": row.expires_at,
            "language": row.language if row.language in self._languages else self._language,
            "prior": compute_prior(row),
            "speaker": next(iter((row.speaker or "").lower().split()), None),
            "tells_time": row_mentions_time(row),
            "texts": [text for text, _ in weighed],
            "shares": [share for _, share in weighed],
        }

    async def _fold_statistics(self) -> None:
        async with self._database.connection() as connection:
            await connection.execute(query("passages", "fold_statistics"))

    async def embed(
        self, scope: Scope | None = None, at_most: int | None = None, on_progress: IndexProgress | None = None
    ) -> int:
        """Embed passages that wait; how many it were."""
        if isinstance(self._embedder, UnavailableEmbedder):
            raise self._embedder.error
        embedded = 0
        skipped: list[int] = []
        portion = await self._next_portion(scope, skipped)
        # While one portion is embedded, the one before is stored and the next one is read.
        async with _Background() as storing:
            while portion is not None and (at_most is None or embedded < at_most):
                vectors = asyncio.create_task(self._vectors_of(portion))
                try:
                    following = await self._next_portion(scope, [*skipped, *portion.ids, *storing.ids])
                except BaseException:
                    vectors.cancel()
                    raise
                await storing.next(portion.ids, self._store_vectors(portion, await vectors))
                skipped += portion.blank
                embedded += len(portion.known)
                if on_progress:
                    on_progress("embedded", len(portion.known))
                portion = following
        return embedded

    async def _next_portion(self, scope: Scope | None, excluded: Sequence[int]) -> _Portion | None:
        async with self._database.connection() as connection:
            waiting = await connection.fetch(
                query("passages", "without_embedding"), *_of(scope), list(excluded), _EMBED_AT_ONCE
            )
            if not waiting:
                return None
            return _Portion(
                await load_or_record_model(connection, self._embedder), waiting, await _texts_of(connection, waiting)
            )

    async def switch_model(self) -> int:
        """Make the embedder's model the one of this database; how many passages another model embedded."""
        # A model that cannot embed anything must not take the place of one that could.
        await self._embedder.embed_one("a text to try it")
        async with self._database.connection() as connection:
            model = await set_current_model(connection, self._embedder)
            return int(await connection.fetchval(query("passages", "count_of_other_models"), model.id))

    async def reembed_outdated(self, on_progress: IndexProgress | None = None) -> int:
        """Embed anew what another model embedded; how many passages it were. Can be stopped and resumed at any time."""
        async with self._database.connection() as connection:
            model = await load_current_model(connection)
            if model is None or isinstance(self._embedder, UnavailableEmbedder):
                return 0
            require_same_model(model, self._embedder)
        embedded, last = 0, 0
        while True:
            async with self._database.connection() as connection:
                others = await connection.fetch(query("passages", "of_other_model"), model.id, last, _EMBED_AT_ONCE)
                texts = await _texts_of(connection, others)
            if not others:
                return embedded
            last = others[-1]["id"]
            portion = _Portion(model, others, texts)
            await self._store_vectors(portion, await self._vectors_of(portion))
            embedded += len(portion.known)
            if on_progress:
                on_progress("embedded", len(portion.known))

    async def _vectors_of(self, portion: _Portion) -> Sequence[Vector]:
        texts = [portion.texts[passage["id"]] for passage in portion.known]
        return list(await self._embedder.embed(texts)) if texts else []

    async def _store_vectors(self, portion: _Portion, vectors: Sequence[Vector]) -> None:
        known = portion.known
        if not known:
            return
        async with self._database.connection() as connection:
            await connection.execute(
                query("passages", "store_embeddings"),
                [passage["tenant_id"] for passage in known],
                [passage["id"] for passage in known],
                [vector_to_text(vector) for vector in vectors],
                portion.model.id,
            )
            for tenant_id, owner in sorted({(passage["tenant_id"], passage["owner"]) for passage in known}):
                await connection.execute(query("passages", "refresh_mean"), tenant_id, owner, portion.model.id)


@dataclass(frozen=True, slots=True)
class _Portion:
    """Passages that are embedded together."""

    model: EmbeddingModel
    passages: Sequence[Any]
    texts: dict[int, str]

    @property
    def ids(self) -> list[int]:
        return [passage["id"] for passage in self.passages]

    @property
    def known(self) -> list[Any]:
        """Those that have a text; one without belongs to a row that was changed or deleted a moment ago."""
        return [passage for passage in self.passages if not is_blank(self.texts.get(passage["id"], ""))]

    @property
    def blank(self) -> set[int]:
        return set(self.ids) - {passage["id"] for passage in self.known}


class _Background:
    """One piece of work at a time that goes on beside the rest; it is done, or cancelled by an error, at the end."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _Background:
        return self

    async def next(self, ids: list[int], work: Coroutine[Any, Any, None]) -> None:
        """Begin some work, once the work before is done."""
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

    async def __aexit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is not None and self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            return
        await self._finish()


async def _texts_of(connection: Connection, passages: Sequence[Any]) -> dict[int, str]:
    """What the embedder reads of each passage, by the passage's id."""
    if not passages:
        return {}
    kinds = await load_searchable_types(connection)
    by_origin: dict[tuple[str, str], set[UUID]] = defaultdict(set)
    for passage in passages:
        by_origin[passage["tenant_id"], passage["entity_type"]].add(passage["entity_id"])
    rows: dict[tuple[str, str, UUID], tuple[SearchableType, SearchableRow]] = {}
    for (tenant_id, entity_type), ids in by_origin.items():
        kind = kinds.get(entity_type)
        if kind is not None:
            for row in await load_rows(connection, kind, tenant_id, list(ids)):
                rows[tenant_id, entity_type, row.id] = kind, row
    texts = {}
    for passage in passages:
        found = rows.get((passage["tenant_id"], passage["entity_type"], passage["entity_id"]))
        if found and passage["field"] in found[1].bodies:
            stretch = Passage(passage["field"], passage["starts"], passage["ends"])
            texts[passage["id"]] = build_embedding_text(found[1], stretch)
    return texts


def vector_to_text(vector: Vector) -> str:
    """A vector as pgvector reads it."""
    return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _of(scope: Scope | None) -> tuple[str | None, list[str]]:
    return (scope.tenant_id, visible_owners(scope)) if scope else (None, [])
