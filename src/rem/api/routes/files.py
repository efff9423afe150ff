"""`/files`: upload files or name their addresses, and follow their processing."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from time import monotonic
from typing import Annotated, Any, Literal
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Form, HTTPException, Path, Query, Request, Response, UploadFile
from fastapi import File as Upload
from pydantic import BaseModel, ConfigDict, Field

from rem.api.dependencies import JsonBody, RemDep, ScopeDep, SettingsDep
from rem.api.disconnect import cancel_on_disconnect
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page, WindowDep
from rem.api.row_lookup import EraseOption, delete_row
from rem.app import Rem
from rem.context import Scope
from rem.errors import InvalidInputError, NotFoundError
from rem.ingest.file_store import count_chunks
from rem.ingest.models import FetchedFile, IngestOptions
from rem.ingest.queue import enqueue_files
from rem.ingest.sources.fetch import list_sources
from rem.ingest.sources.policy import FetchPolicy
from rem.models import File
from rem.models.file import ProcessingStatus
from rem.settings import Settings
from rem.text import clean_text

router = APIRouter(prefix="/files", tags=["files"])

POLL_SECONDS = 0.1
MAX_WAIT_SECONDS = 60
"""Shorter than the timeouts of most HTTP clients and proxies."""
UNFINISHED = (ProcessingStatus.PENDING, ProcessingStatus.PROCESSING)
FORM_DESCRIPTION = "`ontology`: wikis and API docs. Default: a known file keeps its form, a new one is `resource`."
EXAMPLE: dict[str, Any] = {
    "id": "0198f6c2-7b7a-7cc0-8d1e-3c2f5b1e9a10",
    "key": "handbook.pdf",
    "name": "handbook.pdf",
    "uri": "upload:///handbook.pdf",
    "status": "completed",
    "error": None,
    "chunks": 42,
    "mime_type": "application/pdf",
    "size_bytes": 183220,
    "checksum": None,
    "title": "Handbook",
    "tags": ["hr"],
    "created_at": "2026-11-15T09:30:00Z",
    "updated_at": "2026-11-15T09:30:02Z",
}


class FileView(BaseModel):
    """A file and its processing status."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    id: UUID
    key: str | None
    name: str
    uri: str | None
    status: ProcessingStatus = Field(
        description="`pending` until a worker has processed it; if `failed`, `error` has the reason."
    )
    error: str | None = None
    chunks: int = Field(description="The number of stored chunks; their keys are `{key}#1`, `{key}#2`, ….")
    mime_type: str | None
    size_bytes: int | None
    checksum: str | None = Field(description="SHA-256 of the stored version.")
    title: str | None = None
    tags: list[str]
    created_at: datetime
    updated_at: datetime


class FetchFileRequest(BaseModel):
    """The address of a file that the server fetches."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"uri": "https://example.com/guide.md"}})

    uri: str = Field(
        min_length=1, max_length=8000, description="`https://…`, `s3://…`, or a path that the server may read."
    )
    category: str | None = Field(default=None, min_length=1, max_length=255)
    tags: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(default_factory=list, max_length=50)
    form: Literal["resource", "ontology"] | None = Field(default=None, description=FORM_DESCRIPTION)


WaitSeconds = Annotated[
    float, Query(ge=0, le=MAX_WAIT_SECONDS, description="Wait up to this many seconds until the files are processed.")
]
FileId = Annotated[UUID, Path(description="The file's id. `/entities/files/{key}` finds it by key.")]


@router.post(
    "", status_code=202, summary="Upload files", responses={200: {"model": Page[FileView]}, **error_responses(409, 413)}
)
async def upload_files(
    request: Request,
    rem: RemDep,
    scope: ScopeDep,
    settings: SettingsDep,
    response: Response,
    files: Annotated[
        list[UploadFile],
        Upload(
            description="One or several files, with or without paths. A file with a known name replaces the old one."
        ),
    ],
    category: Annotated[str | None, Form(min_length=1, max_length=255)] = None,
    tags: Annotated[
        list[Annotated[str, Field(max_length=5000)]] | None,
        Form(max_length=50, description="Topics: one in each field, or several separated by commas."),
    ] = None,
    form: Annotated[Literal["resource", "ontology"] | None, Form(description=FORM_DESCRIPTION)] = None,
    wait: WaitSeconds = 0,
) -> Page[FileView]:
    """Upload files, all or none. A worker processes them in the background; the status is 200 if it has finished."""
    topics = tuple(clean_text(tag.strip()) for field in tags or () for tag in field.split(",") if tag.strip())
    options = IngestOptions(_to_storable(category), topics or None, form)
    uploads = [await _read_upload(file, settings) for file in files]
    _refuse_duplicates(uploads)
    ids = [row.id for row in await enqueue_files(rem.for_user(scope).store, uploads, options)]
    return await cancel_on_disconnect(request, _wait_for_files(rem, scope, ids, wait, response))


@router.post(
    "/uri",
    status_code=202,
    summary="Fetch a file by its address",
    responses={200: {"model": FileView}, **error_responses(403, 404, 409, 413)},
    dependencies=[JsonBody],
)
async def add_uri(
    request: Request,
    rem: RemDep,
    scope: ScopeDep,
    settings: SettingsDep,
    response: Response,
    address: FetchFileRequest,
    wait: WaitSeconds = 0,
) -> FileView:
    """Fetch a file in the background, from a path or address that the server may read for callers."""
    # Refuse forbidden addresses now, and not later in a worker.
    policy = FetchPolicy.from_settings(settings.ingest)
    listing = await list_sources(_to_storable(address.uri) or "", policy, settings.ingest)
    if len(listing.sources) != 1:
        raise NotFoundError("The address is not a single file: name its files one by one.")
    options = IngestOptions(_to_storable(address.category), tuple(map(clean_text, address.tags)) or None, address.form)
    ids = [row.id for row in await enqueue_files(rem.for_user(scope).store, listing.sources, options, policy)]
    return (await cancel_on_disconnect(request, _wait_for_files(rem, scope, ids, wait, response))).data[0]


@router.get("", summary="List the files")
async def list_files(
    rem: RemDep,
    scope: ScopeDep,
    window: WindowDep,
    status: Annotated[ProcessingStatus | None, Query(description="Only files with this status.")] = None,
) -> Page[FileView]:
    """List the caller's own files and the shared ones, newest first."""
    where = {} if status is None else {"processing_status": status}
    rows = await rem.for_user(scope).store.find(File, where, limit=window.fetch_limit, offset=window.offset)
    return Page[FileView].model_validate(window.slice_page(await _to_views(rem, scope, rows)))


@router.get("/{file_id:uuid}", summary="Get a file", responses=error_responses(404))
async def get_file(rem: RemDep, scope: ScopeDep, file_id: FileId) -> FileView:
    """Return a file with its status, its error if it failed, and the number of its chunks."""
    row = await rem.for_user(scope).store.get(File, file_id)
    return (await _to_views(rem, scope, [row]))[0]


@router.delete("/{file_id:uuid}", status_code=204, summary="Delete a file", responses=error_responses(404, 409))
async def delete_file(
    rem: RemDep,
    scope: ScopeDep,
    file_id: FileId,
    erase: EraseOption = False,
) -> None:
    """Delete one of the caller's own files and its chunks. It can be restored, unless it is erased."""
    await delete_row(rem.for_user(scope).store, File, str(file_id), erase=erase)


async def _read_upload(file: UploadFile, settings: Settings) -> FetchedFile:
    max_bytes = settings.ingest.max_bytes
    name = _clean_name(file.filename or "")
    data = await file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise HTTPException(413, f"{name} is larger than {max_bytes:,} bytes, the limit for one file.")
    return FetchedFile(name, f"upload:///{quote(name)}", data, file.content_type)


def _clean_name(filename: str) -> str:
    """Return the name of an upload: its relative path, or the last part of an absolute path."""
    path = clean_text(filename).replace("\\", "/")
    parts = [part.strip() for part in path.split("/") if part.strip(" .")]
    # An absolute path has a meaning only on the sender's machine.
    is_absolute = path.startswith("/") or (":" in path and parts[:1] != [] and parts[0].endswith(":"))
    return "/".join(parts[-1:] if is_absolute else parts) or "upload"


def _refuse_duplicates(files: list[FetchedFile]) -> None:
    counts = Counter(file.uri for file in files)
    if duplicate := next((file.name for file in files if counts[file.uri] > 1), None):
        raise InvalidInputError(f"Two of the files are called {duplicate}: send them with their paths, or one by one.")


async def _wait_for_files(rem: Rem, scope: Scope, ids: list[UUID], wait: float, response: Response) -> Page[FileView]:
    """Wait up to `wait` seconds until the files are processed; set the status to 200 if they are, otherwise 202."""
    store = rem.for_user(scope).store
    deadline = monotonic() + wait
    while True:
        rows = [await store.get(File, file_id) for file_id in ids]
        is_finished = all(row.processing_status not in UNFINISHED for row in rows)
        # A file that failed for a temporary reason is retried later than a client should wait.
        is_attempted = all(row.processing_status not in UNFINISHED or "error" in row.metadata for row in rows)
        if is_attempted or monotonic() >= deadline:
            response.status_code = 200 if is_finished else 202
            return Page[FileView](data=await _to_views(rem, scope, rows))
        await asyncio.sleep(POLL_SECONDS)


async def _to_views(rem: Rem, scope: Scope, rows: list[File]) -> list[FileView]:
    async with rem.database.connection() as connection:
        chunks = await count_chunks(connection, scope.tenant_id, [row.id for row in rows])
    return [_to_view(row, chunks.get(row.id, 0)) for row in rows]


def _to_view(row: File, chunks: int) -> FileView:
    metadata: dict[str, Any] = row.metadata
    return FileView(
        id=row.id,
        key=row.key,
        name=row.name,
        uri=row.uri,
        status=row.processing_status,
        error=metadata.get("error") if isinstance(metadata.get("error"), str) else None,
        chunks=chunks,
        mime_type=row.mime_type,
        size_bytes=row.size_bytes,
        checksum=row.checksum,
        title=metadata.get("title") if isinstance(metadata.get("title"), str) else None,
        tags=row.tags,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _to_storable(value: str | None) -> str | None:
    return None if value is None else clean_text(value)
