"""FileStore: reads and writes the rows of one owner's ingested files, and assigns names to new files."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit
from uuid import UUID

from rem.db.sql import fill, query
from rem.db.write_plan import owner_condition
from rem.ingest.models import FetchedFile, Form, IngestOptions, Source
from rem.models.field_types import MAX_KEY_BYTES
from rem.models.file import ProcessingStatus
from rem.text import clean_text, collapse_spaces

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection
    from rem.encryption.sealed_values import Sealer

ORIGIN = "ingest"
"""The `origin` of all rows that ingestion writes."""
MAX_LABEL_BYTES = MAX_KEY_BYTES - 100
"""Keys may become longer than the labels that they are made of."""
MAX_NAME_BYTES = 900
"""A label has at most 1,024 bytes, and chunks append a number to the name."""
MAX_EXTRA_PATH_PARTS = 8


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The row of an ingested file."""

    id: UUID
    name: str
    key: str
    checksum: str | None
    processing_status: str
    is_deleted: bool
    is_removed: bool
    """It is deleted because it was no longer in its folder, and not by its owner."""
    metadata: Mapping[str, Any]
    tags: Sequence[str]

    @property
    def ingest_info(self) -> Mapping[str, Any]:
        """The options and the chunker version that the stored chunks were made with."""
        info = self.metadata.get("ingest")
        return info if isinstance(info, dict) else {}

    def has(self, file: FetchedFile, options: IngestOptions, chunker: str | None = None) -> bool:
        """Return whether the stored rows were made of the same bytes, with the same options and this chunker."""
        info = self.ingest_info
        return (
            self.processing_status == ProcessingStatus.COMPLETED
            and self.checksum == file.checksum
            and info.get("form") in (options.form or current_form(self.metadata), "schema")
            and (chunker is None or info.get("form") != "resource" or info.get("chunker") == chunker)
            and options.category in (None, info.get("category"))
            and set(options.tags or ()) <= set(self.tags)
        )


@dataclass(slots=True)
class StoredChunks:
    """The stored chunks of one file."""

    live: dict[int, tuple[UUID, str]] = field(default_factory=dict)
    """Id and MD5 digest of the text, by chunk number."""
    deleted: dict[int, str] = field(default_factory=dict)
    """MD5 digest of the text of the chunks that the owner deleted, by chunk number."""


@dataclass(frozen=True, slots=True)
class NameRequest:
    """A file that needs a name."""

    file_id: UUID
    names: Sequence[str]
    """Possible names, the preferred one first."""
    chunks: int
    """The highest chunk number. The keys of all chunks up to it must be free, too."""


@dataclass(frozen=True, slots=True)
class AssignedName:
    """The name of a file, and the keys that follow from it."""

    id: UUID
    name: str
    key: str
    chunk_keys: Sequence[str]


class FileStore:
    """The files of one owner. Call `lock` first and write in the same transaction."""

    def __init__(self, connection: Connection, scope: Scope) -> None:
        self._connection = connection
        self._scope = (scope.tenant_id, scope.user_id)
        self._is_shared = scope.user_id is None

    async def lock(self) -> None:
        """Block other writers of this owner's files until the transaction ends."""
        await self._connection.execute(query("db/repository", "lock_batches"), *self._scope)

    async def find_by_uri(self, uris: Iterable[str], *, lock: bool = False) -> dict[str, StoredFile]:
        """Return the stored files by URI. For each URI that is the live file, else the file deleted last."""
        statement = self._owned("find_by_uri", "f", lock="FOR UPDATE" if lock else "")
        # Rows of the same URI overwrite each other, and the query returns the live one last.
        rows = await self._connection.fetch(statement, *self._scope, list(uris))
        return {uri: StoredFile(*columns) for *columns, uri in rows}

    async def assign_names(self, requests: Sequence[NameRequest]) -> list[AssignedName | None]:
        """Return a free name for each request. None means that an earlier request has just taken the name."""
        preferred = await self._check_names([(request, request.names[0]) for request in requests])
        # Computing keys is slow, and the preferred name is nearly always free: check the others only if needed.
        others = await self._check_names(
            [
                (request, name)
                for request, assigned in zip(requests, preferred, strict=True)
                if assigned is None
                for name in request.names[1:]
            ]
        )
        alternatives: dict[UUID, AssignedName] = {}
        for assigned in others:
            if assigned is not None:
                alternatives.setdefault(assigned.id, assigned)
        used_keys: set[str] = set()
        names: list[AssignedName | None] = []
        for request, first in zip(requests, preferred, strict=True):
            assigned = first or alternatives.get(request.file_id) or _name_by_id(request)
            keys = {f"file {assigned.key}", *assigned.chunk_keys}
            names.append(None if used_keys & keys else assigned)
            used_keys |= keys
        return names

    async def _check_names(self, candidates: Sequence[tuple[NameRequest, str]]) -> list[AssignedName | None]:
        """Return each candidate with its keys, or None if another row already has one of them."""
        if not candidates:
            return []
        statement = fill(
            query("ingest/ingest", "check_names"),
            owner_of_f=owner_condition("f", self._is_shared),
            owner_of_r=owner_condition("r", self._is_shared),
        )
        rows = await self._connection.fetch(
            statement,
            *self._scope,
            [name for _, name in candidates],
            [request.file_id for request, _ in candidates],
            [request.chunks for request, _ in candidates],
        )
        return [
            AssignedName(request.file_id, name, key, chunk_keys) if is_free else None
            for (request, name), (key, chunk_keys, is_free) in zip(candidates, rows, strict=True)
        ]

    async def load_chunks(self, file_ids: Sequence[UUID]) -> dict[UUID, StoredChunks]:
        """Return the chunks of some files by file id, with an empty default."""
        chunks_by_file: dict[UUID, StoredChunks] = defaultdict(StoredChunks)
        if file_ids:
            ids = [str(file_id) for file_id in file_ids]
            for file_id, chunk_id, number, is_deleted, digest in await self._connection.fetch(
                self._owned("load_chunks", "r"), *self._scope, ids
            ):
                chunks = chunks_by_file[UUID(file_id)]
                if is_deleted:
                    chunks.deleted[number] = digest
                else:
                    chunks.live[number] = chunk_id, digest
        return chunks_by_file

    async def list_uris_below(self, prefix: str) -> set[str]:
        """Return the URIs of the files whose URI starts with a prefix."""
        rows = await self._connection.fetch(self._owned("uris_below", "f"), *self._scope, prefix)
        return {uri for (uri,) in rows}

    async def remove(self, uris: Sequence[str]) -> list[tuple[str, str, str]]:
        """Delete files that are no longer in their folder. Return the URI, name and key of each.

        Unlike a file that its owner deleted, such a file is restored when it is ingested again.
        """
        rows = await self._connection.fetch(self._owned("remove_files", "f"), *self._scope, list(uris))
        return [(uri, name, key) for uri, name, key in rows]

    async def restore_removed(self, files: Iterable[StoredFile]) -> None:
        """Restore those of the files that were deleted by `remove`, with their chunks."""
        ids = [file.id for file in files if file.is_removed]
        if ids:
            await self._connection.execute(self._owned("restore_removed", "f"), *self._scope, ids)

    async def record_run(self, run_id: UUID, is_new_by_id: Mapping[UUID, bool]) -> None:
        """Record that a run has stored these files."""
        if is_new_by_id:
            await self._connection.execute(
                query("ingest/ingest", "record_run"),
                *self._scope,
                run_id,
                list(is_new_by_id),
                list(is_new_by_id.values()),
            )

    async def find_forgotten(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return those of some digests of files and texts that the owner has forgotten."""
        return {
            row["digest"]
            for row in await self._connection.fetch(
                query("ingest/ingest", "find_forgotten"), *self._scope, list(digests)
            )
        }

    async def clear_forgotten(self, digests: Sequence[bytes]) -> None:
        """Let forgotten files and texts be stored again."""
        await self._connection.execute(query("ingest/ingest", "clear_forgotten"), *self._scope, list(digests))

    async def load_entries(self, file_id: UUID) -> dict[str, tuple[UUID, bool]]:
        """Return the id of each knowledge entry of a file and whether it is deleted, by key."""
        rows = await self._connection.fetch(self._owned("load_entries", "o"), *self._scope, file_id)
        return {key: (entry_id, is_deleted) for entry_id, key, is_deleted in rows}

    async def check_entry_keys(self, names: Sequence[str], file_id: UUID) -> list[tuple[str, bool]]:
        """Return the key of each name, and whether an entry of another file has it."""
        rows = await self._connection.fetch(self._owned("check_entry_keys", "o"), *self._scope, list(names), file_id)
        return [(key, is_taken) for key, is_taken in rows]

    async def erase(self, table: Literal["chunks", "entries", "files"], ids: Sequence[UUID]) -> None:
        """Erase chunks, entries or whole files. Soft deletion would block their keys when a file grows again."""
        if ids:
            statement = self._owned(f"erase_{table}", {"chunks": "r", "entries": "o", "files": "f"}[table])
            await self._connection.execute(statement, *self._scope, list(ids))

    async def erase_records(self, file_ids: Sequence[UUID], *, kept: Sequence[UUID]) -> None:
        """Erase the records of some files but those with the given ids. Records that the owner deleted stay deleted."""
        await self._connection.execute(self._owned("erase_records", "r"), *self._scope, list(file_ids), list(kept))

    def _owned(self, name: str, alias: str, **parts: str) -> str:
        return fill(query("ingest/ingest", name), owner=owner_condition(alias, self._is_shared), **parts)


async def count_chunks(connection: Connection, tenant_id: str, file_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return the number of live chunks and entries of each file."""
    rows = await connection.fetch(query("ingest/ingest", "count_chunks"), tenant_id, list(file_ids))
    return {row["id"]: row["chunks"] for row in rows}


def current_form(metadata: Mapping[str, Any]) -> Form:
    """Return the form that a file has or is queued for.

    An agent counts as `resource`: the file may have become plain text, which only its reader can tell.
    """
    for options in (metadata.get("wanted"), metadata.get("ingest")):
        if isinstance(options, dict) and options.get("form"):
            return "ontology" if options["form"] == "ontology" else "resource"
    return "resource"


def propose_names(file: Source) -> list[str]:
    """Return possible names for a file, the shortest first. The last one contains a hash of the URI and is unique."""
    uri_hash = hashlib.sha256(file.uri.encode(errors="surrogatepass")).hexdigest()
    uri = urlsplit(file.uri)
    parts = [part for part in (uri.netloc, *unquote(uri.path).split("/")) if part]
    name = next((name for name in map(_clean_name, (file.name, *parts[-1:])) if _has_letter_or_digit(name)), "file")
    length = name.count("/") + 1
    lengths = range(length + 1, min(len(parts), length + MAX_EXTRA_PATH_PARTS) + 1)
    longer = [_clean_name("/".join(parts[-length:])) for length in lengths]
    names = [name, *(path for path in longer if path.endswith(name)), f"{name} {uri_hash[:8]}", f"{name} {uri_hash}"]
    return [_shorten(name, uri_hash) for name in names]


def digest_address(uri: str) -> bytes:
    """Return the digest of a file's address, under which it stays forgotten (`rem_forgotten_digest` in SQL)."""
    return hashlib.sha256(f"file {uri}".encode(errors="surrogatepass")).digest()


def digest_text(text: str, sealer: Sealer | None) -> bytes:
    """Return the digest of a part of a file, under which it stays forgotten (`rem_forgotten_digest` in SQL)."""
    known = sealer.digest(text) if sealer is not None and sealer.is_sealing else text
    return hashlib.sha256(f"text {known}".encode()).digest()


def clean_labels(labels: Iterable[str]) -> list[str]:
    """Return the labels that can be keys, each once and with normalised white space."""
    cleaned = map(_clean_name, labels)
    return list(dict.fromkeys(label for label in cleaned if _has_letter_or_digit(label) and _fits_key(label)))


def _fits_key(label: str) -> bool:
    return len(label.encode()) <= MAX_LABEL_BYTES


def _name_by_id(request: NameRequest) -> AssignedName:
    """Return the id as a name, for the case that even the name with the hash is taken."""
    name = str(request.file_id)
    return AssignedName(request.file_id, name, name, [f"{name}#{number}" for number in range(1, request.chunks + 1)])


def _clean_name(name: str) -> str:
    return collapse_spaces(clean_text(name))


def _has_letter_or_digit(name: str) -> bool:
    return any(character.isalnum() for character in name)


def _shorten(name: str, uri_hash: str) -> str:
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    tail = name.encode()[-(MAX_NAME_BYTES - 20) :].decode(errors="ignore")
    return f"{uri_hash[:8]} …{tail}"
