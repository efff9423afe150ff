"""Shelf: where one owner's files stand. What there is of a file, and what takes its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID, uuid4

from rem.db.sql import fill, query
from rem.db.write_plan import owned_by
from rem.ingest.naming import names_of
from rem.models import File
from rem.models.file import ProcessingStatus

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store
    from rem.ingest.content import FetchedFile

Form: TypeAlias = Literal["resource", "ontology", "schema"]
"""What a file becomes: pieces of text, entries of the knowledge base, or an agent."""
ORIGIN = "ingest"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """What is stored of a file."""

    id: UUID
    name: str
    key: str
    checksum: str | None
    processing_status: str
    is_deleted: bool
    metadata: Mapping[str, Any]
    tags: Sequence[str]

    @property
    def making(self) -> Mapping[str, Any]:
        """How its pieces were made."""
        made = self.metadata.get("ingest")
        return made if isinstance(made, dict) else {}


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a file is put: under which id and name, and what its chunks go by."""

    id: UUID
    name: str
    key: str
    chunk_keys: Sequence[str]


@dataclass(slots=True)
class StoredChunks:
    """What there is of a file's chunks."""

    live: dict[int, tuple[UUID, str]] = field(default_factory=dict)
    """By number: the id, and a digest of the text."""
    deleted: dict[int, str] = field(default_factory=dict)
    """What the owner deleted, by number: a digest of the text."""


class Shelf:
    """The files of the owner of a store. Its calls belong into one transaction, which `lock` begins."""

    def __init__(self, store: Store) -> None:
        self._store = store
        scope = store.scope
        self._scope = (scope.tenant_id, scope.user_id)
        self._is_shared = scope.user_id is None

    async def lock(self) -> None:
        """Let nobody else write files of this owner until the transaction ends."""
        async with self._store.executor.connection() as connection:
            await connection.execute(query("repository", "take_turns"), *self._scope)

    async def at(self, uri: str, *, lock: bool = False) -> StoredFile | None:
        """What there is of a place."""
        statement = self._owned("file_at", "f", lock="FOR UPDATE" if lock else "")
        async with self._store.executor.connection() as connection:
            row = await connection.fetchrow(statement, *self._scope, uri)
        return StoredFile(*row) if row else None

    async def place(self, file: FetchedFile, stored: StoredFile | None, chunks: int) -> FilePlace:
        """Where a file with so many chunks is put; a name that it has stays, unless it is in another's way."""
        names = [*([stored.name] if stored else []), *names_of(file)]
        file_id = stored.id if stored else uuid4()
        statement = fill(
            query("ingest", "free_name"),
            owner_of_f=owned_by("f", self._is_shared),
            owner_of_r=owned_by("r", self._is_shared),
        )
        async with self._store.executor.connection() as connection:
            row = await connection.fetchrow(statement, *self._scope, names, file_id, chunks)
        if row is None:
            # Even the name with the whole fingerprint of the place is taken, so by intent.
            return FilePlace(file_id, str(file_id), str(file_id), [f"{file_id}#{n}" for n in range(1, chunks + 1)])
        return FilePlace(file_id, row["name"], row["key"], row["chunk_keys"])

    async def put(self, place: FilePlace, file: FetchedFile, **fields: Any) -> None:
        """Store what is known of a file."""
        row = File(id=place.id, name=place.name, uri=file.uri, origin=ORIGIN, **fields)
        await self._store.upsert_many([row])

    async def chunks(self, file_id: UUID) -> StoredChunks:
        """The chunks of a file."""
        found = StoredChunks()
        async with self._store.executor.connection() as connection:
            rows = await connection.fetch(self._owned("chunks", "r"), *self._scope, str(file_id))
        for chunk_id, number, is_deleted, digest in rows:
            if is_deleted:
                found.deleted[number] = digest
            else:
                found.live[number] = chunk_id, digest
        return found

    async def entries(self, file_id: UUID) -> dict[str, tuple[UUID, bool]]:
        """The entries of a file by their keys: the id, and whether the owner deleted it."""
        async with self._store.executor.connection() as connection:
            rows = await connection.fetch(self._owned("entries", "o"), *self._scope, file_id)
        return {key: (entry_id, is_deleted) for entry_id, key, is_deleted in rows}

    async def entry_keys(self, names: Sequence[str], file_id: UUID) -> list[tuple[str, bool]]:
        """The key of each name, and whether an entry has it that is not of this file."""
        async with self._store.executor.connection() as connection:
            rows = await connection.fetch(self._owned("entry_keys", "o"), *self._scope, list(names), file_id)
        return [(key, is_taken) for key, is_taken in rows]

    async def erase(self, table: Literal["chunks", "entries"], ids: Sequence[UUID]) -> None:
        """Remove chunks or entries for good: a tombstone would stand in the way of a file that grows again."""
        if ids:
            statement = self._owned(f"erase_{table}", "r" if table == "chunks" else "o")
            async with self._store.executor.connection() as connection:
                await connection.execute(statement, *self._scope, list(ids))

    def _owned(self, name: str, alias: str, **parts: str) -> str:
        return fill(query("ingest", name), owner=owned_by(alias, self._is_shared), **parts)


async def count_chunks(connection: Connection, tenant_id: str, ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many pieces of each file are remembered."""
    rows = await connection.fetch(query("ingest", "count_chunks"), tenant_id, list(ids))
    return {file_id: chunks for file_id, chunks in rows}


COMPLETED = ProcessingStatus.COMPLETED
