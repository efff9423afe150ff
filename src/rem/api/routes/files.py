"""`/files`: documents that are handed over or named, and what became of them."""

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
from rem.api.pages import Page, WindowDep
from rem.api.row_lookup import find_deleted_row, find_own_row
from rem.app import Rem
from rem.context import Scope
from rem.errors import InvalidInputError, NotFoundError
from rem.ingest.file_store import count_chunks
from rem.ingest.ingester import IngestOptions
from rem.ingest.json_values import replace_unstorable
from rem.ingest.queue import QueuedFile, enqueue_files
from rem.ingest.sources.fetch import list_sources
from rem.ingest.sources.policy import FetchPolicy
from rem.models import File
from rem.models.file import ProcessingStatus
from rem.settings import Settings

router = APIRouter(prefix="/files", tags=["files"])

_POLL_SECONDS = 0.1
_LONGEST_WAIT = 60
_WAITING = (ProcessingStatus.PENDING, ProcessingStatus.PROCESSING)
_FORM = "`ontology`: wikis and API docs. Without it a known file keeps its form, and a new one is `resource`."
_EXAMPLE: dict[str, Any] = {
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
    """A file and what became of it."""

    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})

    id: UUID
    key: str | None
    name: str
    uri: str | None
    status: ProcessingStatus = Field(description="`pending` until a worker has read it; `failed` says why in `error`.")
    error: str | None = None
    chunks: int = Field(description="How many pieces of it are remembered; their keys are `{key}#1`, `{key}#2`, ….")
    mime_type: str | None
    size_bytes: int | None
    checksum: str | None = Field(description="SHA-256 of the version that is remembered.")
    title: str | None = None
    tags: list[str]
    created_at: datetime
    updated_at: datetime


class FetchFileRequest(BaseModel):
    """A file that the server fetches."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"uri": "https://example.com/guide.md"}})

    uri: str = Field(min_length=1, max_length=8000, description="`https://…`, `s3://…`, or a path that may be read.")
    category: str | None = Field(default=None, min_length=1, max_length=255)
    tags: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(default_factory=list, max_length=50)
    form: Literal["resource", "ontology"] | None = Field(default=None, description=_FORM)


Wait = Annotated[float, Query(ge=0, le=_LONGEST_WAIT, description="Wait for so many seconds until the files are read.")]
FileId = Annotated[UUID, Path(description="The file's id. By key it is found under `/entities/files/{key}`.")]


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
        Upload(description="One or several files, with their paths if you like; the same name again replaces it."),
    ],
    category: Annotated[str | None, Form(min_length=1, max_length=255)] = None,
    tags: Annotated[
        list[Annotated[str, Field(max_length=5000)]] | None,
        Form(max_length=50, description="Topics: one in each field, or several separated by commas."),
    ] = None,
    form: Annotated[Literal["resource", "ontology"] | None, Form(description=_FORM)] = None,
    wait: Wait = 0,
) -> Page[FileView]:
    """Hand files over. All of them are kept or none, and read in the background; 200 if they are read already."""
    topics = tuple(replace_unstorable(tag.strip()) for field in tags or () for tag in field.split(",") if tag.strip())
    wish = IngestOptions(_text(category), topics or None, form)
    handed = [await _handed(file, settings) for file in files]
    _refuse_doubles(handed)
    ids = [row.id for row in await enqueue_files(rem.store(scope), handed, wish)]
    return await cancel_on_disconnect(request, _answered(rem, scope, ids, wait, response))


@router.post(
    "/uri",
    status_code=202,
    summary="Take a file in by its address",
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
    wait: Wait = 0,
) -> FileView:
    """Name a file, which the server fetches in the background, from where callers may let it read."""
    # What may not be read is refused now, not by a worker later.
    listing = await list_sources(_text(address.uri) or "", FetchPolicy.from_settings(settings.ingest), settings.ingest)
    if len(listing.sources) != 1:
        raise NotFoundError("The address means no single file: name its files one by one.")
    source = listing.sources[0]
    wish = IngestOptions(_text(address.category), tuple(map(replace_unstorable, address.tags)) or None, address.form)
    ids = [row.id for row in await enqueue_files(rem.store(scope), [QueuedFile(source.name, source.uri)], wish)]
    return (await cancel_on_disconnect(request, _answered(rem, scope, ids, wait, response))).data[0]


@router.get("", summary="List the files")
async def list_files(
    rem: RemDep,
    scope: ScopeDep,
    window: WindowDep,
    status: Annotated[ProcessingStatus | None, Query(description="Only those that have come so far.")] = None,
) -> Page[FileView]:
    """The caller's own files and the shared ones, the newest first."""
    where = {} if status is None else {"processing_status": status}
    rows = await rem.store(scope).find(File, where, limit=window.fetch_limit, offset=window.offset)
    return Page[FileView].model_validate(window.slice_page(await _described(rem, scope, rows)))


@router.get("/{file_id:uuid}", summary="Get a file", responses=error_responses(404))
async def get_file(rem: RemDep, scope: ScopeDep, file_id: FileId) -> FileView:
    """What became of a file: how far it has come, why it failed, how many pieces are remembered."""
    row = await rem.store(scope).get(File, file_id)
    return (await _described(rem, scope, [row]))[0]


@router.delete("/{file_id:uuid}", status_code=204, summary="Delete a file", responses=error_responses(404, 409))
async def delete_file(
    rem: RemDep,
    scope: ScopeDep,
    file_id: FileId,
    erase: Annotated[bool, Query(description="For good, also what was deleted before.")] = False,
) -> None:
    """Delete one of the caller's own files with all that is remembered of it. It can be restored, unless erased."""
    async with rem.store(scope).transaction() as store:
        try:
            row = await find_own_row(store, File, str(file_id))
        except NotFoundError:
            if not erase:
                raise
            row = await find_deleted_row(store, File, str(file_id))
        await (store.erase(row) if erase else store.delete(row))


async def _handed(file: UploadFile, settings: Settings) -> QueuedFile:
    most = settings.ingest.max_bytes
    name = _name(file.filename or "")
    data = await file.read(most + 1)
    if len(data) > most:
        raise HTTPException(413, f"{name} is larger than {most:,} bytes, which is the most that a file may have.")
    return QueuedFile(name, f"upload:///{quote(name)}", data, file.content_type)


def _name(sent: str) -> str:
    """What an upload is called: its path below the folder that was chosen, or its name alone."""
    path = replace_unstorable(sent).replace("\\", "/")
    parts = [part.strip() for part in path.split("/") if part.strip(" .")]
    # Where on the sender's machine a file is has no meaning elsewhere.
    is_absolute = path.startswith("/") or (":" in path and parts[:1] != [] and parts[0].endswith(":"))
    return "/".join(parts[-1:] if is_absolute else parts) or "upload"


def _refuse_doubles(files: list[QueuedFile]) -> None:
    counts = Counter(file.uri for file in files)
    if double := next((file.name for file in files if counts[file.uri] > 1), None):
        raise InvalidInputError(f"Two of the files are called {double}: send them with their paths, or one by one.")


async def _answered(rem: Rem, scope: Scope, ids: list[UUID], wait: float, response: Response) -> Page[FileView]:
    store = rem.store(scope)
    ends = monotonic() + wait
    while True:
        rows = [await store.get(File, file_id) for file_id in ids]
        is_done = all(row.processing_status not in _WAITING for row in rows)
        # One that failed for a passing reason is tried again, later than anyone should wait for.
        is_tried = all(row.processing_status not in _WAITING or "error" in row.metadata for row in rows)
        if is_tried or monotonic() >= ends:
            response.status_code = 200 if is_done else 202
            return Page[FileView](data=await _described(rem, scope, rows))
        await asyncio.sleep(_POLL_SECONDS)


async def _described(rem: Rem, scope: Scope, rows: list[File]) -> list[FileView]:
    async with rem.database.connection() as connection:
        chunks = await count_chunks(connection, scope.tenant_id, [row.id for row in rows])
    return [_file(row, chunks.get(row.id, 0)) for row in rows]


def _file(row: File, chunks: int) -> FileView:
    said: dict[str, Any] = row.metadata
    return FileView(
        id=row.id,
        key=row.key,
        name=row.name,
        uri=row.uri,
        status=row.processing_status,
        error=said.get("error") if isinstance(said.get("error"), str) else None,
        chunks=chunks,
        mime_type=row.mime_type,
        size_bytes=row.size_bytes,
        checksum=row.checksum,
        title=said.get("title") if isinstance(said.get("title"), str) else None,
        tags=row.tags,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _text(value: str | None) -> str | None:
    return None if value is None else replace_unstorable(value)
