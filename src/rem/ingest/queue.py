"""The ingest queue: files that were uploaded, or named by a URI, and are read later by a worker.

The row in `files`, the bytes in `uploads` and the job are written in one transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

from pydantic import BaseModel, Field

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
from rem.ingest.models import FetchedFile, FileOutcome, FileSource, Form, IngestOptions, Source
from rem.ingest.sources.policy import FetchPolicy
from rem.jobs.queue import JobQueue
from rem.models import File
from rem.models.field_types import utc_now
from rem.models.file import ProcessingStatus
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.db.database import Connection, Database, Executor
    from rem.db.store import Store

JOB_KIND = "ingest"
"""The kind of the jobs. Their payload is `{"tenant_id", "user_id", "file_id"}`."""
PERMANENT_ERRORS = (InvalidInputError, NotFoundError, ConflictError, FetchRefusedError, MissingExtraError)
"""Errors that a retry cannot fix."""
STRANDED_MESSAGE = "It was never read, and it has no job: upload it again."
MAX_WAIT_FOR_SERVER = timedelta(hours=1)
"""Time in which a server that may read the source of a file must take its job."""
MAX_ERROR_CHARS = 2000
IngesterFactory: TypeAlias = Callable[[Scope], Ingester]


class IngestRequest(BaseModel, frozen=True):
    """What was asked of a queued file. It is stored as `wanted` in the metadata of its row."""

    name: str
    """The original name: its extension tells the format."""
    category: str | None = None
    tags: tuple[str, ...] = ()
    form: Form = "resource"
    asked_at: datetime = Field(default_factory=utc_now)
    """A worker that reads the file right now notices by this that it was queued again."""
    policy: str | None = None
    """The fingerprint of the policy that allowed to fetch it."""

    @property
    def options(self) -> IngestOptions:
        # What was uploaded or named again is stored, also if it was forgotten.
        return IngestOptions(self.category, self.tags or None, self.form, with_forgotten=True)

    def is_for_another_server(self, policy: FetchPolicy) -> bool:
        """Return whether a server with other INGEST settings queued the file, and may still come to read it."""
        if self.policy in (None, policy.fingerprint):
            return False
        return utc_now() - self.asked_at < MAX_WAIT_FOR_SERVER


@dataclass(frozen=True, slots=True)
class _PendingFile:
    """The row of a queued file, as it was when its processing began."""

    tenant_id: str
    user_id: str | None
    id: UUID
    source: Source
    status: ProcessingStatus
    is_deleted: bool
    request: IngestRequest

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant_id, self.user_id)

    @property
    def upload(self) -> bytes | None:
        return self.source.data if isinstance(self.source, FetchedFile) else None

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to read. The bytes of a deleted file stay: restoring the file queues it again."""
        return self.is_deleted or (self.upload is None and self.status == ProcessingStatus.COMPLETED)


async def enqueue_files(
    store: Store, files: Sequence[Source], options: IngestOptions, policy: FetchPolicy | None = None
) -> list[File]:
    """Queue all files or none of them, and return their rows.

    A file that is stored with the same bytes is not queued again. `policy` is the one that allowed to fetch the files:
    a worker with another one leaves them to others. Raise a DeletedError for a deleted file, and a QueueFullError if
    too many jobs of the owner wait.
    """
    if len(files) > (limit := store.executor.max_waiting_jobs):
        raise InvalidInputError(f"Send at most {limit:,} files at once: no more jobs may wait (WORKER__MAX_WAITING).")
    async with store.transaction() as transaction:
        async with transaction.executor.connection() as connection:
            file_store = FileStore(connection, store.scope)
            await file_store.lock()
            ids = [await _enqueue_file(transaction, connection, file_store, file, options, policy) for file in files]
        return [await transaction.get(File, file_id) for file_id in ids]


async def process_queued_file(
    database: Database, ingester_for: IngesterFactory, seconds: float, tenant_id: str, file_id: UUID
) -> FileOutcome | None:
    """Read and store a queued file in at most `seconds`, and return its outcome; None if there is nothing left to do.

    A permanent error is written to the row of the file. Any other error is raised, so the job is retried.
    """
    while True:
        pending = await _find_pending(database, tenant_id, file_id)
        if pending is None or pending.is_done:
            return None
        outcome = await _process(ingester_for(pending.scope), pending, seconds)
        async with database.connection() as connection:
            if not await connection.fetchval(query("ingest/ingest", "is_queued_again"), tenant_id, file_id):
                return outcome


async def get_upload_size(database: Database, tenant_id: str, file_id: UUID) -> int | None:
    """Return the number of bytes that were uploaded for a file; None if it is fetched from its URI."""
    async with database.connection() as connection:
        size: int | None = await connection.fetchval(query("ingest/ingest", "upload_size"), tenant_id, file_id)
    return size


async def fail_stranded_files(database: Database) -> int:
    """Mark pending files without a job as failed, and return their number."""
    async with database.connection() as connection:
        rows = await connection.fetch(query("ingest/ingest", "fail_stranded"), STRANDED_MESSAGE)
    return len(rows)


async def _find_pending(database: Database, tenant_id: str, file_id: UUID) -> _PendingFile | None:
    async with database.connection() as connection:
        row = await connection.fetchrow(query("ingest/ingest", "pending_file"), tenant_id, file_id)
    if row is None:
        return None
    wanted = row["metadata"].get("wanted")
    request = IngestRequest.model_validate(wanted or {"name": row["name"], "form": current_form(row["metadata"])})
    source: Source = FileSource(row["uri"], request.name)
    if row["content"] is not None:
        source = FetchedFile(request.name, row["uri"], row["content"], row["mime_type"])
    status = ProcessingStatus(row["processing_status"])
    return _PendingFile(tenant_id, row["user_id"], file_id, source, status, row["is_deleted"], request)


async def _enqueue_file(
    store: Store,
    connection: Connection,
    file_store: FileStore,
    file: Source,
    options: IngestOptions,
    policy: FetchPolicy | None,
) -> UUID:
    stored = (await file_store.find_by_uri([file.uri], lock=True)).get(file.uri)
    if stored is not None and stored.is_deleted:
        raise DeletedError(f"{stored.name} was deleted and stays deleted: restore it (files/{stored.id}) first.")
    if stored is not None and isinstance(file, FetchedFile) and stored.has(file, options):
        return stored.id
    request = IngestRequest(
        name=clean_text(file.name),
        category=options.category,
        tags=options.tags or (),
        form=options.form or current_form(stored.metadata if stored else {}),
        policy=None if policy is None else policy.fingerprint,
    )
    file_id = await _write_pending_row(store, file_store, file, request, stored)
    if isinstance(file, FetchedFile):
        data = _seal_upload(store.executor, store.scope.tenant_id, file_id, file.data)
        await connection.execute(query("ingest/ingest", "put_upload"), store.scope.tenant_id, file_id, data)
    payload = {"tenant_id": store.scope.tenant_id, "user_id": store.scope.user_id, "file_id": str(file_id)}
    await JobQueue(store.executor).enqueue(JOB_KIND, payload, dedupe=str(file_id), connection=connection)
    return file_id


async def _write_pending_row(
    store: Store, file_store: FileStore, file: Source, request: IngestRequest, stored: StoredFile | None
) -> UUID:
    """Write the row of a queued file, and return its id."""
    file_id = uuid4() if stored is None else stored.id
    names = [*([stored.name] if stored else []), *propose_names(file)]
    assigned = (await file_store.assign_names([NameRequest(file_id, names, 1)]))[0]
    # `metadata.ingest` describes the stored chunks until they change.
    metadata = {**(stored.metadata if stored else {}), "wanted": request.model_dump(mode="json")}
    fields: dict[str, Any] = {}
    if isinstance(file, FetchedFile):
        fields["size_bytes"] = len(file.data)
        if file.mime_type:
            fields["mime_type"] = clean_text(file.mime_type)
    if isinstance(file, FetchedFile) or (stored and stored.processing_status != ProcessingStatus.PENDING):
        # A URI that could not be fetched keeps its error: queueing it again does not bring the retry forward.
        metadata.pop("error", None)
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


async def _process(ingester: Ingester, pending: _PendingFile, seconds: float) -> FileOutcome:
    source, store = pending.source, ingester.store
    try:
        async with _limit_time(pending, seconds):
            result = await ingester.read(source, pending.request.options)
            if isinstance(result, FileOutcome) and result.status == "deleted":
                return result
            return (await ingester.store_many([result], within=lambda inside: _finish_upload(inside, pending)))[0]
    except PERMANENT_ERRORS as error:
        if isinstance(error, FetchForbiddenError) and pending.request.is_for_another_server(ingester.policy):
            await _store_error(store, pending, f"{error} REM waits for a server that may read it.")
            raise
        await _mark_failed(store, pending, str(error))
        return FileOutcome("failed", source.uri, source.name, error=str(error))
    except DatabaseError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, RemError) else f"REM failed to read it: {type(error).__name__}."
        await _store_error(store, pending, f"{reason} REM will retry.")
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
            f"{pending.source.name} was not stored within {seconds:g} s (INGEST__PROCESS_SECONDS): split it."
        ) from error


@asynccontextmanager
async def _finish_upload(store: Store, pending: _PendingFile) -> AsyncIterator[None]:
    """Delete the uploaded bytes in the transaction that stores the file.

    If the file was uploaded or queued again in the meantime, set it back to pending.
    """
    ids = pending.tenant_id, pending.id
    async with store.executor.connection() as connection:
        await FileStore(connection, store.scope).lock()
        wanted = await connection.fetchval(query("ingest/ingest", "requested_options"), *ids)
        request = IngestRequest.model_validate(wanted) if wanted else pending.request
        is_queued_again = request.asked_at != pending.request.asked_at
        if not is_queued_again:
            await _delete_upload(store.executor, connection, pending)
        yield
        is_queued_again = is_queued_again or await connection.fetchval(query("ingest/ingest", "has_upload"), *ids)

    def set_pending(row: File) -> None:
        row.processing_status = ProcessingStatus.PENDING
        row.metadata = {**row.metadata, "wanted": request.model_dump(mode="json")}

    if is_queued_again:
        await store.modify(File, pending.id, set_pending)


async def _mark_failed(store: Store, pending: _PendingFile, reason: str) -> None:
    """Write the reason to the row of a file and delete its upload. Chunks of an older version stay."""

    def change(row: File) -> None:
        row.processing_status = ProcessingStatus.FAILED
        row.metadata = {**row.metadata, "error": clean_text(reason)[:MAX_ERROR_CHARS]}

    async with store.transaction() as transaction:
        await transaction.modify(File, pending.id, change)
        async with transaction.executor.connection() as connection:
            await _delete_upload(transaction.executor, connection, pending)


async def _store_error(store: Store, pending: _PendingFile, reason: str) -> None:
    """Write the reason to the row of a file that stays pending."""

    def change(row: File) -> None:
        row.metadata = {**row.metadata, "error": clean_text(reason)[:MAX_ERROR_CHARS]}

    await store.modify(File, pending.id, change)


async def _delete_upload(executor: Executor, connection: Connection, pending: _PendingFile) -> None:
    """Delete the bytes that were read, unless others were uploaded since."""
    if pending.upload is not None:
        stored = _seal_upload(executor, pending.tenant_id, pending.id, pending.upload)
        digest = hashlib.sha256(stored).digest()
        await connection.execute(query("ingest/ingest", "delete_upload_if_same"), pending.tenant_id, pending.id, digest)


def _seal_upload(executor: Executor, tenant_id: str, file_id: UUID, data: bytes) -> bytes:
    """Return the bytes of an upload as they are stored."""
    if executor.sealer is None:
        return data
    return executor.sealer.seal_bytes(data, Place(tenant_id, file_id, "upload"))
