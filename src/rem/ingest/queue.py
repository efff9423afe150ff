"""The ingest queue: files that were uploaded, or named by a URI, and are read later by a worker.

The row in `files`, the bytes in `uploads` and the job are written in one transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

from rem.context import Scope
from rem.db.sql import query
from rem.encryption.sealed_values import Place
from rem.errors import (
    ConflictError,
    DatabaseError,
    DeletedError,
    FetchForbiddenError,
    FetchRefusedError,
    FileUnreadableError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    RemError,
)
from rem.ingest.file_store import ORIGIN, FileStore, NameRequest, StoredFile, current_form, propose_names
from rem.ingest.ingester import Ingester
from rem.ingest.models import FetchedFile, FileOutcome, IngestOptions
from rem.ingest.sources.fetch import fetch_file
from rem.ingest.sources.policy import FetchPolicy
from rem.jobs.queue import JobQueue
from rem.models import File
from rem.models.field_types import utc_now
from rem.models.file import ProcessingStatus
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.db.database import Connection, Database, Executor
    from rem.db.store import Store
    from rem.settings import Settings

JOB_KIND = "ingest"
"""The kind of the jobs. Their payload is `{"tenant_id", "user_id", "file_id"}`."""
PERMANENT_ERRORS = (InvalidInputError, NotFoundError, ConflictError, FetchRefusedError, MissingExtraError)
"""Errors that a retry cannot fix."""
STRANDED_MESSAGE = "It was never read, and it has no job: upload it again."
MAX_WAIT_FOR_SERVER = timedelta(hours=1)
"""Time in which a server that may read the source of a file must take its job."""
MAX_ERROR_CHARS = 2000
IngesterFactory: TypeAlias = Callable[[Scope], Ingester]


@dataclass(frozen=True, slots=True)
class QueuedFile:
    """A file to read later: with its bytes, or to be fetched from its URI."""

    name: str
    uri: str
    data: bytes | None = None
    mime_type: str | None = None


@dataclass(frozen=True, slots=True)
class _PendingFile:
    """The row of a queued file, as it was when its processing began."""

    tenant_id: str
    file_id: UUID
    row: Mapping[str, Any]

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant_id, self.row["user_id"])

    @property
    def request(self) -> dict[str, Any] | None:
        """The options that the file was queued with."""
        request: dict[str, Any] | None = self.row["metadata"].get("wanted")
        return request

    @property
    def options(self) -> IngestOptions:
        request = self.request or {}
        tags = tuple(request.get("tags") or ())
        return IngestOptions(request.get("category"), tags or None, current_form(self.row["metadata"]))

    def is_for_another_server(self, settings: Settings) -> bool:
        """Return whether a server with other INGEST settings queued the file, and may still come to read it."""
        request = self.request or {}
        own = FetchPolicy.from_settings(settings.ingest).fingerprint
        if request.get("policy") in (None, own):
            return False
        return utc_now() - datetime.fromisoformat(request["asked_at"]) < MAX_WAIT_FOR_SERVER

    async def fetch(self, settings: Settings) -> FetchedFile:
        # The stored name may be another one; the extension of the original name tells the format.
        name = (self.request or {}).get("name") or self.row["name"]
        if self.row["content"] is not None:
            return FetchedFile(name, self.row["uri"], self.row["content"], self.row["mime_type"])
        return await fetch_file(self.row["uri"], FetchPolicy.from_settings(settings.ingest), settings.ingest)


async def enqueue_files(
    store: Store, files: Sequence[QueuedFile], options: IngestOptions, policy: FetchPolicy | None = None
) -> list[File]:
    """Queue all files or none of them, and return their rows.

    A file that is stored with the same bytes is not queued again. `policy` is the one that allowed to fetch the files:
    a worker with another one leaves them to others. Raise a DeletedError for a deleted file.
    """
    fingerprint = None if policy is None else policy.fingerprint
    async with store.transaction() as transaction:
        async with transaction.executor.connection() as connection:
            file_store = FileStore(connection, store.scope)
            await file_store.lock()
            ids = [
                await _enqueue_file(transaction, connection, file_store, file, options, fingerprint) for file in files
            ]
        return [await transaction.get(File, file_id) for file_id in ids]


async def process_queued_file(
    database: Database, settings: Settings, ingester_for: IngesterFactory, tenant_id: str, file_id: UUID
) -> FileOutcome | None:
    """Read and store a queued file, and return its outcome; None if there is nothing left to do.

    A permanent error is written to the row of the file. Any other error is raised, so the job is retried.
    """
    while True:
        async with database.connection() as connection:
            row = await connection.fetchrow(query("ingest", "pending_file"), tenant_id, file_id)
        if row is None:
            return None
        is_done = row["content"] is None and row["processing_status"] == ProcessingStatus.COMPLETED
        # The bytes of a deleted file are kept with its row: restoring the file queues it again.
        if row["is_deleted"] or is_done:
            return None
        pending = _PendingFile(tenant_id, file_id, dict(row))
        outcome = await _process(settings, ingester_for(pending.scope), pending)
        async with database.connection() as connection:
            if not await connection.fetchval(query("ingest", "is_queued_again"), tenant_id, file_id):
                return outcome


async def get_upload_size(database: Database, tenant_id: str, file_id: UUID) -> int | None:
    """Return the number of bytes that were uploaded for a file; None if it is fetched from its URI."""
    async with database.connection() as connection:
        size: int | None = await connection.fetchval(query("ingest", "upload_size"), tenant_id, file_id)
    return size


async def fail_stranded_files(database: Database) -> int:
    """Mark pending files without a job as failed, and return their number."""
    async with database.connection() as connection:
        rows = await connection.fetch(query("ingest", "fail_stranded"), STRANDED_MESSAGE)
    return len(rows)


async def _enqueue_file(
    store: Store,
    connection: Connection,
    file_store: FileStore,
    file: QueuedFile,
    options: IngestOptions,
    fingerprint: str | None,
) -> UUID:
    stored = (await file_store.find_by_uri([file.uri], lock=True)).get(file.uri)
    if stored is not None and stored.is_deleted:
        raise DeletedError(f"{stored.name} was deleted and stays deleted: restore it (files/{stored.id}) first.")
    if stored is not None and _is_stored(stored, file, options):
        return stored.id
    file_id = await _write_pending_row(store, file_store, file, options, fingerprint, stored)
    if file.data is not None:
        data = _seal_upload(store.executor, store.scope.tenant_id, file_id, file.data)
        await connection.execute(query("ingest", "put_upload"), store.scope.tenant_id, file_id, data)
    payload = {"tenant_id": store.scope.tenant_id, "user_id": store.scope.user_id, "file_id": str(file_id)}
    await JobQueue(store.executor).enqueue(JOB_KIND, payload, dedupe=str(file_id), connection=connection)
    return file_id


def _is_stored(stored: StoredFile, file: QueuedFile, options: IngestOptions) -> bool:
    """Return whether a file with the same bytes and options is stored already."""
    if file.data is None or stored.processing_status != ProcessingStatus.COMPLETED:
        return False
    info = stored.ingest_info
    return (
        stored.checksum == hashlib.sha256(file.data).hexdigest()
        and info.get("form") in (options.form or current_form(stored.metadata), "schema")
        and options.category in (None, info.get("category"))
        and set(options.tags or ()) <= set(stored.tags)
    )


async def _write_pending_row(
    store: Store,
    file_store: FileStore,
    file: QueuedFile,
    options: IngestOptions,
    fingerprint: str | None,
    stored: StoredFile | None,
) -> UUID:
    """Write the row of a queued file, and return its id."""
    file_id = uuid4() if stored is None else stored.id
    names = [*([stored.name] if stored else []), *propose_names(FetchedFile(file.name, file.uri, b""))]
    assigned = (await file_store.assign_names([NameRequest(file_id, names, 1)]))[0]
    metadata = dict(stored.metadata) if stored else {}
    if file.data is not None or (stored and stored.processing_status != ProcessingStatus.PENDING):
        # A URI that could not be fetched keeps its error: queueing it again does not bring the retry forward.
        metadata.pop("error", None)
    # The request is stored where the worker finds it. `metadata.ingest` describes the stored chunks until they change.
    metadata["wanted"] = {
        "name": clean_text(file.name),
        "category": options.category,
        "tags": list(options.tags or ()),
        "form": options.form or current_form(metadata),
        # A worker that reads the file right now notices by this that it was queued again.
        "asked_at": utc_now().isoformat(),
        "policy": fingerprint,
    }
    fields: dict[str, Any] = {} if file.data is None else {"size_bytes": len(file.data)}
    if file.mime_type:
        fields["mime_type"] = clean_text(file.mime_type)
    await store.upsert_many(
        [
            File(
                id=file_id,
                name=assigned.name if assigned else str(file_id),
                uri=file.uri,
                processing_status=ProcessingStatus.PENDING,
                metadata=metadata,
                origin=ORIGIN,
                **fields,
            )
        ]
    )
    return file_id


async def _process(settings: Settings, ingester: Ingester, pending: _PendingFile) -> FileOutcome:
    try:
        async with _limit_time(pending, settings.ingest.process_seconds):
            file = await pending.fetch(settings)
            prepared = await ingester.prepare(file, pending.options)
            return await ingester.store(prepared, within=lambda store: _finish_upload(store, pending, file))
    except PERMANENT_ERRORS as error:
        if isinstance(error, FetchForbiddenError) and pending.is_for_another_server(settings):
            await _store_error(ingester.target_store, pending, f"{error} REM waits for a server that may read it.")
            raise
        await _mark_failed(ingester.target_store, pending, str(error))
        return FileOutcome("failed", pending.row["uri"], pending.row["name"], error=str(error))
    except DatabaseError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, RemError) else f"REM failed to read it: {type(error).__name__}."
        await _store_error(ingester.target_store, pending, f"{reason} REM will retry.")
        raise


@asynccontextmanager
async def _limit_time(pending: _PendingFile, seconds: float) -> AsyncIterator[None]:
    """Raise a FileUnreadableError if the block takes longer: a retry would take as long."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise FileUnreadableError(
            f"{pending.row['name']} was not stored within {seconds:g} s (INGEST__PROCESS_SECONDS): split it."
        ) from error


@asynccontextmanager
async def _finish_upload(store: Store, pending: _PendingFile, file: FetchedFile) -> AsyncIterator[None]:
    """Delete the uploaded bytes in the transaction that stores the file.

    If the file was uploaded or queued again in the meantime, set it back to pending.
    """
    ids = pending.tenant_id, pending.file_id
    async with store.executor.connection() as connection:
        await FileStore(connection, store.scope).lock()
        request = await connection.fetchval(query("ingest", "requested_options"), *ids)
        is_queued_again = request is not None and request != pending.request
        if not is_queued_again:
            await _delete_upload_if_same(store.executor, connection, pending, file.data)
        yield
        is_queued_again = is_queued_again or await connection.fetchval(query("ingest", "has_upload"), *ids)

    def set_pending(row: File) -> None:
        row.processing_status = ProcessingStatus.PENDING
        row.metadata = {**row.metadata, "wanted": request or pending.request}

    if is_queued_again:
        await store.modify(File, pending.file_id, set_pending)


async def _mark_failed(store: Store, pending: _PendingFile, reason: str) -> None:
    """Write the reason to the row of a file and delete its upload. Chunks of an older version stay."""

    def change(row: File) -> None:
        row.processing_status = ProcessingStatus.FAILED
        row.metadata = {**row.metadata, "error": clean_text(reason)[:MAX_ERROR_CHARS]}

    async with store.transaction() as transaction:
        await transaction.modify(File, pending.file_id, change)
        async with transaction.executor.connection() as connection:
            if pending.row["content"] is not None:
                await _delete_upload_if_same(transaction.executor, connection, pending, pending.row["content"])


async def _store_error(store: Store, pending: _PendingFile, reason: str) -> None:
    """Write the reason to the row of a file that stays pending."""

    def change(row: File) -> None:
        row.metadata = {**row.metadata, "error": clean_text(reason)[:MAX_ERROR_CHARS]}

    await store.modify(File, pending.file_id, change)


async def _delete_upload_if_same(
    executor: Executor, connection: Connection, pending: _PendingFile, data: bytes
) -> None:
    stored = _seal_upload(executor, pending.tenant_id, pending.file_id, data)
    digest = hashlib.sha256(stored).digest()
    await connection.execute(query("ingest", "delete_upload_if_same"), pending.tenant_id, pending.file_id, digest)


def _seal_upload(executor: Executor, tenant_id: str, file_id: UUID, data: bytes) -> bytes:
    """Return the bytes of an upload as they are stored."""
    if executor.sealer is None:
        return data
    return executor.sealer.seal_bytes(data, Place(tenant_id, file_id, "upload"))
