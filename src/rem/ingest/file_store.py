"""Shelf: where one owner's files stand. What there is of a file, and under which name it can be put."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit
from uuid import UUID

from rem.db.sql import fill, query
from rem.db.write_plan import owner_condition
from rem.ingest.models import FetchedFile

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection


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
    def ingest_info(self) -> Mapping[str, Any]:
        """How its pieces were made."""
        made = self.metadata.get("ingest")
        return made if isinstance(made, dict) else {}


@dataclass(frozen=True, slots=True)
class NameRequest:
    """A file that needs a name: which one would do, the best first, and how many chunks go by it, too."""

    file_id: UUID
    names: Sequence[str]
    chunks: int


@dataclass(frozen=True, slots=True)
class AssignedName:
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

    @property
    def ids(self) -> list[UUID]:
        """The chunks that are not deleted."""
        return [chunk_id for chunk_id, _ in self.live.values()]


class FileStore:
    """The files of one owner. What is written after `lock` belongs into the same transaction."""

    def __init__(self, connection: Connection, scope: Scope) -> None:
        self._connection = connection
        self._scope = (scope.tenant_id, scope.user_id)
        self._is_shared = scope.user_id is None

    async def lock(self) -> None:
        """Let nobody else write files of this owner until the transaction ends."""
        await self._connection.execute(query("repository", "lock_batches"), *self._scope)

    async def find_by_uri(self, uris: Iterable[str], *, lock: bool = False) -> dict[str, StoredFile]:
        """What there is of some places."""
        statement = self._owned("files_at", "f", lock="FOR UPDATE" if lock else "")
        # The live one comes last, and stays.
        rows = await self._connection.fetch(statement, *self._scope, list(uris))
        return {uri: StoredFile(*stored) for *stored, uri in rows}

    async def assign_names(self, wishes: Sequence[NameRequest]) -> list[AssignedName | None]:
        """Where some files are put; None for one that wants a name which another of them has just got."""
        found = await self._free([(wish, wish.names[0]) for wish in wishes])
        # The first name is nearly always free, and keys are dear.
        others = await self._free(
            [
                (wish, name)
                for wish, place in zip(wishes, found, strict=True)
                if place is None
                for name in wish.names[1:]
            ]
        )
        longer: dict[UUID, AssignedName] = {}
        for place in others:
            if place is not None:
                longer.setdefault(place.id, place)
        used: set[str] = set()
        places: list[AssignedName | None] = []
        for wish, first in zip(wishes, found, strict=True):
            place = first or longer.get(wish.file_id) or _by_id(wish)
            keys = {f"file {place.key}", *place.chunk_keys}
            places.append(None if used & keys else place)
            used |= keys
        return places

    async def _free(self, wanted: Sequence[tuple[NameRequest, str]]) -> list[AssignedName | None]:
        if not wanted:
            return []
        statement = fill(
            query("ingest", "names"),
            owner_of_f=owner_condition("f", self._is_shared),
            owner_of_r=owner_condition("r", self._is_shared),
        )
        rows = await self._connection.fetch(
            statement,
            *self._scope,
            [name for _, name in wanted],
            [wish.file_id for wish, _ in wanted],
            [wish.chunks for wish, _ in wanted],
        )
        return [
            AssignedName(wish.file_id, name, key, chunk_keys) if is_free else None
            for (wish, name), (key, chunk_keys, is_free) in zip(wanted, rows, strict=True)
        ]

    async def load_chunks(self, file_ids: Sequence[UUID]) -> dict[UUID, StoredChunks]:
        """The chunks of some files."""
        found: dict[UUID, StoredChunks] = defaultdict(StoredChunks)
        if file_ids:
            ids = [str(file_id) for file_id in file_ids]
            for file_id, chunk_id, number, is_deleted, digest in await self._connection.fetch(
                self._owned("chunks", "r"), *self._scope, ids
            ):
                chunks = found[UUID(file_id)]
                if is_deleted:
                    chunks.deleted[number] = digest
                else:
                    chunks.live[number] = chunk_id, digest
        return found

    async def load_entries(self, file_id: UUID) -> dict[str, tuple[UUID, bool]]:
        """The entries of a file by their keys: the id, and whether the owner deleted it."""
        rows = await self._connection.fetch(self._owned("entries", "o"), *self._scope, file_id)
        return {key: (entry_id, is_deleted) for entry_id, key, is_deleted in rows}

    async def check_entry_keys(self, names: Sequence[str], file_id: UUID) -> list[tuple[str, bool]]:
        """The key of each name, and whether an entry has it that is not of this file."""
        rows = await self._connection.fetch(self._owned("entry_keys", "o"), *self._scope, list(names), file_id)
        return [(key, is_taken) for key, is_taken in rows]

    async def erase(self, table: Literal["chunks", "entries"], ids: Sequence[UUID]) -> None:
        """Remove chunks or entries for good: a tombstone would stand in the way of a file that grows again."""
        if ids:
            statement = self._owned(f"erase_{table}", "r" if table == "chunks" else "o")
            await self._connection.execute(statement, *self._scope, list(ids))

    def _owned(self, name: str, alias: str, **parts: str) -> str:
        return fill(query("ingest", name), owner=owner_condition(alias, self._is_shared), **parts)


def current_form(metadata: Mapping[str, Any]) -> Form:
    """The form that a file has, or is still to get. An agent's may be plain text by now: only its reader can tell."""
    for asked_or_made in (metadata.get("wanted"), metadata.get("ingest")):
        if isinstance(asked_or_made, dict) and asked_or_made.get("form"):
            return "ontology" if asked_or_made["form"] == "ontology" else "resource"
    return "resource"


def _by_id(wish: NameRequest) -> AssignedName:
    """A name for when even the one with the fingerprint of the place is taken, which nobody does by accident."""
    name = str(wish.file_id)
    return AssignedName(wish.file_id, name, name, [f"{name}#{number}" for number in range(1, wish.chunks + 1)])


async def count_chunks(connection: Connection, tenant_id: str, ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many pieces of each file are remembered."""
    rows = await connection.fetch(query("ingest", "count_chunks"), tenant_id, list(ids))
    return {row["id"]: row["chunks"] for row in rows}


_LONGEST_NAME_BYTES = 900
"""A label has 1,024 bytes, and the number of a chunk is put behind it."""
_MOST_PATHS = 8


def propose_names(file: FetchedFile) -> list[str]:
    """The names that a file may have, the best first. The last one no other place has."""
    mark = hashlib.sha256(file.uri.encode(errors="surrogatepass")).hexdigest()
    place = urlsplit(file.uri)
    parts = [part for part in (place.netloc, *unquote(place.path).split("/")) if part]
    name = next((name for name in map(_clean_name, (file.name, *parts[-1:])) if _is_label(name)), "file")
    length = name.count("/") + 1
    longer = [
        _clean_name("/".join(parts[-more:])) for more in range(length + 1, min(len(parts), length + _MOST_PATHS) + 1)
    ]
    names = [name, *(path for path in longer if path.endswith(name)), f"{name} {mark[:8]}", f"{name} {mark}"]
    return [_shortened(name, mark) for name in names]


def _clean_name(name: str) -> str:
    """The name as PostgreSQL can hold it, on one line."""
    return " ".join(name.encode(errors="replace").decode().replace("\0", "�").split())


def _is_label(name: str) -> bool:
    return any(character.isalnum() for character in name)


def _shortened(name: str, mark: str) -> str:
    if len(name.encode()) <= _LONGEST_NAME_BYTES:
        return name
    tail = name.encode()[-(_LONGEST_NAME_BYTES - 20) :].decode(errors="ignore")
    return f"{mark[:8]} …{tail}"
