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
    FetchRefusedError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    RemError,
)
from rem.ingest.file_store import ORIGIN, FileStore, NameRequest, StoredFile, current_form, propose_names
from rem.ingest.ingester import Ingester, IngestOptions, compute_checksum
from rem.ingest.json_values import replace_unstorable
from rem.ingest.models import FetchedFile, FileOutcome
from rem.ingest.sources.fetch import fetch_file
from rem.ingest.sources.policy import FetchPolicy
from rem.jobs.queue import JobQueue
from rem.models import File
from rem.models.field_types import utc_now
from rem.models.file import ProcessingStatus

if TYPE_CHECKING:
    from rem.db.database import Connection, Database
    from rem.db.store import Store
    from rem.settings import Settings

JOB_KIND = "ingest"
"""The kind of the jobs; their payload is `{"tenant_id", "user_id", "file_id"}`."""
PERMANENT_ERRORS = (InvalidInputError, NotFoundError, ConflictError, FetchRefusedError, MissingExtraError)
"""What trying again does not mend."""
_STRANDED = "It was never read, and nothing waits to read it: hand it over again."
IngesterFactory: TypeAlias = Callable[[Scope], Ingester]


@dataclass(frozen=True, slots=True)
class QueuedFile:
    """A file that is to be read later: with its bytes, or to be fetched from its address."""

    name: str
    uri: str
    data: bytes | None = None
    mime_type: str | None = None


async def enqueue_files(store: Store, files: Sequence[QueuedFile], wish: IngestOptions) -> list[File]:
    """Put files in line, all or none of them: their rows, bytes and jobs are one transaction. The rows as they are now.

    What is stored already with the same bytes stays as it is, and a file that was deleted is refused.
    """
    async with store.transaction() as transaction:
        async with transaction.executor.connection() as connection:
            shelf = FileStore(connection, store.scope)
            await shelf.lock()
            ids = [await _enqueue_file(transaction, connection, shelf, file, wish) for file in files]
        return [await transaction.get(File, file_id) for file_id in ids]


async def _enqueue_file(
    store: Store, connection: Connection, shelf: FileStore, file: QueuedFile, wish: IngestOptions
) -> UUID:
    stored = (await shelf.find_by_uri([file.uri], lock=True)).get(file.uri)
    if stored is not None and stored.is_deleted:
        raise DeletedError(f"{stored.name} was deleted, and stays so: restore it (files/{stored.id}) first.")
    if stored is not None and _is_stored(stored, file, wish):
        return stored.id
    file_id = await _put_row(store, shelf, file, wish, stored)
    if file.data is not None:
        await connection.execute(query("ingest", "put_upload"), store.scope.tenant_id, file_id, file.data)
    payload = {"tenant_id": store.scope.tenant_id, "user_id": store.scope.user_id, "file_id": str(file_id)}
    await JobQueue(store.executor).enqueue(JOB_KIND, payload, dedupe=str(file_id), connection=connection)
    return file_id


def _is_stored(stored: StoredFile, file: QueuedFile, wish: IngestOptions) -> bool:
    if file.data is None or stored.processing_status != ProcessingStatus.COMPLETED:
        return False
    same = stored.checksum == hashlib.sha256(file.data).hexdigest()
    same = same and stored.ingest_info.get("form") in (wish.form or current_form(stored.metadata), "schema")
    return (
        same
        and wish.category in (None, stored.ingest_info.get("category"))
        and set(wish.tags or ()) <= set(stored.tags)
    )


async def _put_row(
    store: Store, shelf: FileStore, file: QueuedFile, wish: IngestOptions, stored: StoredFile | None
) -> UUID:
    fetched = FetchedFile(file.name, file.uri, b"")
    file_id = uuid4() if stored is None else stored.id
    names = [*([stored.name] if stored else []), *propose_names(fetched)]
    place = (await shelf.assign_names([NameRequest(file_id, names, 1)]))[0]
    metadata = dict(stored.metadata) if stored else {}
    if file.data is not None or (stored and stored.processing_status != ProcessingStatus.PENDING):
        # A place that did not answer is still to be tried again, and not sooner for being named again.
        metadata.pop("error", None)
    # What is asked for is kept where the worker finds it; how the file was made is not touched until it is made anew.
    metadata["wanted"] = {
        "name": replace_unstorable(file.name),
        "category": wish.category,
        "tags": list(wish.tags or ()),
        "form": wish.form or current_form(metadata),
        # Who reads it just now sees by this that it was handed over or named once more.
        "asked_at": utc_now().isoformat(),
    }
    fields: dict[str, Any] = {} if file.data is None else {"size_bytes": len(file.data)}
    if file.mime_type:
        fields["mime_type"] = replace_unstorable(file.mime_type)
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


async def process_queued_file(
    database: Database, settings: Settings, ingester_of: IngesterFactory, tenant_id: str, file_id: UUID
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
        waiting = _PendingFile(tenant_id, file_id, dict(row))
        outcome = await _process(database, settings, ingester_of(waiting.scope), waiting)
        async with database.connection() as connection:
            # It may have been handed over or named once more meanwhile.
            if not await connection.fetchval(query("ingest", "waits_again"), tenant_id, file_id):
                return outcome


@dataclass(frozen=True, slots=True)
class _PendingFile:
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
    def wish(self) -> IngestOptions:
        wanted = self.wanted or {}
        form = current_form(self.row["metadata"])
        return IngestOptions(wanted.get("category"), tuple(wanted.get("tags") or ()) or None, form)

    async def file(self, settings: Settings) -> FetchedFile:
        # What it is called in the memory may differ; the ending of its own name tells what it is.
        name = (self.wanted or {}).get("name") or self.row["name"]
        if self.row["content"] is not None:
            return FetchedFile(name, self.row["uri"], self.row["content"], self.row["mime_type"])
        return await fetch_file(self.row["uri"], FetchPolicy.from_settings(settings.ingest), settings.ingest)


async def _process(database: Database, settings: Settings, ingester: Ingester, waiting: _PendingFile) -> FileOutcome:
    try:
        file = await waiting.file(settings)
        ready = await ingester.prepare(file, waiting.wish)

        return await ingester.store(ready, within=lambda store: _taken(store, waiting, file))
    except PERMANENT_ERRORS as error:
        await _fail(ingester.target_store, waiting, str(error))
        return FileOutcome("failed", waiting.row["uri"], waiting.row["name"], error=str(error))
    except DatabaseError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, RemError) else f"REM failed to read it: {type(error).__name__}."
        await _note(ingester.target_store, waiting, f"{reason} It will be tried again.")
        raise


@asynccontextmanager
async def _taken(store: Store, waiting: _PendingFile, file: FetchedFile) -> AsyncIterator[None]:
    """Remove the bytes that are being stored, in the same transaction; and let the file wait again if it was handed
    over or named once more meanwhile."""
    place = waiting.tenant_id, waiting.file_id
    async with store.executor.connection() as connection:
        await FileStore(connection, store.scope).lock()
        wanted = await connection.fetchval(query("ingest", "wanted"), *place)
        waits = wanted is not None and wanted != waiting.wanted
        if not waits:
            await _drop_read(connection, waiting, bytes.fromhex(compute_checksum(file)))
        yield
        waits = waits or await connection.fetchval(query("ingest", "has_upload"), *place)

    def wait_again(row: File) -> None:
        row.processing_status = ProcessingStatus.PENDING
        row.metadata = {**row.metadata, "wanted": wanted or waiting.wanted}

    if waits:
        await store.modify(File, waiting.file_id, wait_again)


async def _drop_read(connection: Connection, waiting: _PendingFile, digest: bytes) -> None:
    await connection.execute(query("ingest", "drop_upload_if_same"), waiting.tenant_id, waiting.file_id, digest)


async def _fail(store: Store, waiting: _PendingFile, reason: str) -> None:
    """Nothing of a failed file is left but its row, which says why; of an older version, what there was."""

    def change(row: File) -> None:
        row.processing_status = ProcessingStatus.FAILED
        row.metadata = {**row.metadata, "error": replace_unstorable(reason)[:2000]}

    async with store.transaction() as transaction:
        await transaction.modify(File, waiting.file_id, change)
        async with transaction.executor.connection() as connection:
            if waiting.row["content"] is not None:
                await _drop_read(connection, waiting, hashlib.sha256(waiting.row["content"]).digest())


async def _note(store: Store, waiting: _PendingFile, reason: str) -> None:
    def change(row: File) -> None:
        row.metadata = {**row.metadata, "error": replace_unstorable(reason)[:2000]}

    await store.modify(File, waiting.file_id, change)


async def fail_stranded_files(database: Database) -> int:
    """Let files say so that wait although nothing will read them any more, whatever became of their jobs; how many."""
    async with database.connection() as connection:
        rows = await connection.fetch(query("ingest", "fail_stranded"), _STRANDED)
    return len(rows)


async def _drop_upload(database: Database, tenant_id: str, file_id: UUID) -> None:
    async with database.connection() as connection:
        await connection.execute(query("ingest", "drop_upload"), tenant_id, file_id)
