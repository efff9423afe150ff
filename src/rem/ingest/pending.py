"""Files that were handed over or named and are read later, by whichever worker comes first."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

from rem.context import Scope
from rem.db.sql import query
from rem.errors import (
    ConflictError,
    DatabaseError,
    DeletedError,
    ExtraNeededError,
    FetchRefusedError,
    InvalidInputError,
    NotFoundError,
    RemError,
)
from rem.ingest.content import FetchedFile
from rem.ingest.fetch import fetch
from rem.ingest.ingester import Ingester, Wish, checksum_of
from rem.ingest.naming import names_of
from rem.ingest.plain import storable
from rem.ingest.reach import Reach
from rem.ingest.report import FileOutcome
from rem.ingest.shelf import ORIGIN, NameWish, Shelf, StoredFile, form_of
from rem.jobs.queue import Jobs
from rem.models import File
from rem.models.file import ProcessingStatus
from rem.models.values import now

if TYPE_CHECKING:
    from rem.db.database import Connection, Database
    from rem.db.store import Store
    from rem.settings import Settings

JOB = "ingest"
"""The kind of the jobs; their payload is `{"tenant_id", "user_id", "file_id"}`."""
FOR_GOOD = (InvalidInputError, NotFoundError, ConflictError, FetchRefusedError, ExtraNeededError)
"""What trying again does not mend."""
_STRANDED = "It was never read, and nothing waits to read it: hand it over again."
IngesterOf: TypeAlias = Callable[[Scope], Ingester]


@dataclass(frozen=True, slots=True)
class Handed:
    """A file that is to be read later: with its bytes, or to be fetched from its address."""

    name: str
    uri: str
    data: bytes | None = None
    mime_type: str | None = None


async def accept(store: Store, files: Sequence[Handed], wish: Wish) -> list[File]:
    """Put files in line, all or none of them: their rows, bytes and jobs are one transaction. The rows as they are now.

    What is stored already with the same bytes stays as it is, and a file that was deleted is refused.
    """
    async with store.transaction() as transaction:
        async with transaction.executor.connection() as connection:
            shelf = Shelf(connection, store.scope)
            await shelf.lock()
            ids = [await _accept(transaction, connection, shelf, file, wish) for file in files]
        return [await transaction.get(File, file_id) for file_id in ids]


async def _accept(store: Store, connection: Connection, shelf: Shelf, file: Handed, wish: Wish) -> UUID:
    stored = (await shelf.at([file.uri], lock=True)).get(file.uri)
    if stored is not None and stored.is_deleted:
        raise DeletedError(f"{stored.name} was deleted, and stays so: restore it (files/{stored.id}) first.")
    if stored is not None and _is_stored(stored, file, wish):
        return stored.id
    file_id = await _put_row(store, shelf, file, wish, stored)
    if file.data is not None:
        await connection.execute(query("ingest", "put_upload"), store.scope.tenant_id, file_id, file.data)
    payload = {"tenant_id": store.scope.tenant_id, "user_id": store.scope.user_id, "file_id": str(file_id)}
    await Jobs(store.executor).enqueue(JOB, payload, dedupe=str(file_id), connection=connection)
    return file_id


def _is_stored(stored: StoredFile, file: Handed, wish: Wish) -> bool:
    if file.data is None or stored.processing_status != ProcessingStatus.COMPLETED:
        return False
    same = stored.checksum == hashlib.sha256(file.data).hexdigest()
    same = same and stored.making.get("form") in (wish.form or form_of(stored.metadata), "schema")
    return same and wish.category in (None, stored.making.get("category")) and set(wish.tags or ()) <= set(stored.tags)


async def _put_row(store: Store, shelf: Shelf, file: Handed, wish: Wish, stored: StoredFile | None) -> UUID:
    fetched = FetchedFile(file.name, file.uri, b"")
    file_id = uuid4() if stored is None else stored.id
    names = [*([stored.name] if stored else []), *names_of(fetched)]
    place = (await shelf.places([NameWish(file_id, names, 1)]))[0]
    metadata = dict(stored.metadata) if stored else {}
    if file.data is not None or (stored and stored.processing_status != ProcessingStatus.PENDING):
        # A place that did not answer is still to be tried again, and not sooner for being named again.
        metadata.pop("error", None)
    # What is asked for is kept where the worker finds it; how the file was made is not touched until it is made anew.
    metadata["wanted"] = {
        "name": storable(file.name),
        "category": wish.category,
        "tags": list(wish.tags or ()),
        "form": wish.form or form_of(metadata),
        # Who reads it just now sees by this that it was handed over or named once more.
        "asked_at": now().isoformat(),
    }
    fields: dict[str, Any] = {} if file.data is None else {"size_bytes": len(file.data)}
    if file.mime_type:
        fields["mime_type"] = storable(file.mime_type)
    await store.upsert_many(
        [
            File(
                id=file_id,
                name=place.name if place else str(file_id),
                uri=file.uri,
                processing_status=ProcessingStatus.PENDING,
                metadata=metadata,
                origin=ORIGIN,
                **fields,
            )
        ]
    )
    return file_id


async def work_off(
    database: Database, settings: Settings, ingester_of: IngesterOf, tenant_id: str, file_id: UUID
) -> FileOutcome | None:
    """Read and store a file that waits; None if there is nothing to do any more.

    What cannot be mended by trying again is written into the file's row. Any other error is raised, so that the job is
    tried again.
    """
    while True:
        async with database.connection() as connection:
            row = await connection.fetchrow(query("ingest", "pending_file"), tenant_id, file_id)
        is_done = row is not None and row["content"] is None and row["processing_status"] == ProcessingStatus.COMPLETED
        if row is not None and row["is_deleted"]:
            # Its bytes are kept as long as its row: it is read when it is restored.
            return None
        if row is None or is_done:
            await _drop_upload(database, tenant_id, file_id)
            return None
        waiting = _Waiting(tenant_id, file_id, dict(row))
        outcome = await _work_off(database, settings, ingester_of(waiting.scope), waiting)
        async with database.connection() as connection:
            # It may have been handed over or named once more meanwhile.
            if not await connection.fetchval(query("ingest", "waits_again"), tenant_id, file_id):
                return outcome


@dataclass(frozen=True, slots=True)
class _Waiting:
    tenant_id: str
    file_id: UUID
    row: Mapping[str, Any]

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant_id, self.row["user_id"])

    @property
    def wanted(self) -> dict[str, Any] | None:
        wanted: dict[str, Any] | None = self.row["metadata"].get("wanted")
        return wanted

    @property
    def wish(self) -> Wish:
        wanted = self.wanted or {}
        form = form_of(self.row["metadata"])
        return Wish(wanted.get("category"), tuple(wanted.get("tags") or ()) or None, form)

    async def file(self, settings: Settings) -> FetchedFile:
        # What it is called in the memory may differ; the ending of its own name tells what it is.
        name = (self.wanted or {}).get("name") or self.row["name"]
        if self.row["content"] is not None:
            return FetchedFile(name, self.row["uri"], self.row["content"], self.row["mime_type"])
        return await fetch(self.row["uri"], Reach.of_settings(settings.ingest), settings.ingest)


async def _work_off(database: Database, settings: Settings, ingester: Ingester, waiting: _Waiting) -> FileOutcome:
    try:
        file = await waiting.file(settings)
        ready = await ingester.read(file, waiting.wish)

        return await ingester.store(ready, within=lambda store: _taken(store, waiting, file))
    except FOR_GOOD as error:
        await _fail(ingester.target, waiting, str(error))
        return FileOutcome("failed", waiting.row["uri"], waiting.row["name"], error=str(error))
    except DatabaseError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, RemError) else f"REM failed to read it: {type(error).__name__}."
        await _note(ingester.target, waiting, f"{reason} It will be tried again.")
        raise


@asynccontextmanager
async def _taken(store: Store, waiting: _Waiting, file: FetchedFile) -> AsyncIterator[None]:
    """Remove the bytes that are being stored, in the same transaction; and let the file wait again if it was handed
    over or named once more meanwhile."""
    place = waiting.tenant_id, waiting.file_id
    async with store.executor.connection() as connection:
        await Shelf(connection, store.scope).lock()
        wanted = await connection.fetchval(query("ingest", "wanted"), *place)
        waits = wanted is not None and wanted != waiting.wanted
        if not waits:
            await _drop_read(connection, waiting, bytes.fromhex(checksum_of(file)))
        yield
        waits = waits or await connection.fetchval(query("ingest", "has_upload"), *place)

    def wait_again(row: File) -> None:
        row.processing_status = ProcessingStatus.PENDING
        row.metadata = {**row.metadata, "wanted": wanted or waiting.wanted}

    if waits:
        await store.modify(File, waiting.file_id, wait_again)


async def _drop_read(connection: Connection, waiting: _Waiting, digest: bytes) -> None:
    await connection.execute(query("ingest", "drop_upload_if_same"), waiting.tenant_id, waiting.file_id, digest)


async def _fail(store: Store, waiting: _Waiting, reason: str) -> None:
    """Nothing of a failed file is left but its row, which says why; of an older version, what there was."""

    def change(row: File) -> None:
        row.processing_status = ProcessingStatus.FAILED
        row.metadata = {**row.metadata, "error": storable(reason)[:2000]}

    async with store.transaction() as transaction:
        await transaction.modify(File, waiting.file_id, change)
        async with transaction.executor.connection() as connection:
            if waiting.row["content"] is not None:
                await _drop_read(connection, waiting, hashlib.sha256(waiting.row["content"]).digest())


async def _note(store: Store, waiting: _Waiting, reason: str) -> None:
    def change(row: File) -> None:
        row.metadata = {**row.metadata, "error": storable(reason)[:2000]}

    await store.modify(File, waiting.file_id, change)


async def fail_stranded(database: Database) -> int:
    """Let files say so that wait although nothing will read them any more, whatever became of their jobs; how many."""
    async with database.connection() as connection:
        rows = await connection.fetch(query("ingest", "fail_stranded"), _STRANDED)
    return len(rows)


async def _drop_upload(database: Database, tenant_id: str, file_id: UUID) -> None:
    async with database.connection() as connection:
        await connection.execute(query("ingest", "drop_upload"), tenant_id, file_id)
