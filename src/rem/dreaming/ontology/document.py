"""OntologyDocument: a text that agents extract from: a file with its chunks, or plain texts of one address."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from rem.db.sql import query
from rem.dreaming.claims import ClaimSource, RowRef
from rem.dreaming.owner_queries import rewrite_owner_filter

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun

MAX_DOCUMENT_PARTS = 2000
MAX_DOCUMENT_CHARS = 192_000
"""So much of a document is read; what is left out is noted."""


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A piece of the text."""

    source: ClaimSource
    text: str
    version: datetime
    starts_at: int | None = None
    ends_at: int | None = None


@dataclass(slots=True)
class OntologyDocument:
    """What rules are matched with, and agents read."""

    ref: RowRef
    """What the dream says things of: the file, or the first of the texts."""
    key: str
    name: str
    uri: str | None
    mime_type: str | None
    tags: tuple[str, ...]
    version: datetime
    parts: list[DocumentPart] = field(default_factory=list)
    is_cut: bool = False
    """Whether there is more of it than was read."""

    @property
    def is_file(self) -> bool:
        """Whether it was taken in as a file."""
        return self.ref.type == "files"

    @property
    def source(self) -> ClaimSource:
        """The document itself as where a claim comes from."""
        return ClaimSource(self.ref, self.key)

    @property
    def sources(self) -> tuple[ClaimSource, ...]:
        """The document and what was read of it."""
        return tuple({source.ref: source for source in (self.source, *(part.source for part in self.parts))}.values())

    @property
    def text(self) -> str:
        """The parts put together."""
        pieces: list[str] = []
        end: int | None = None
        for part in self.parts:
            if pieces:
                pieces.append(_between(end, part.starts_at))
            pieces.append(part.text)
            end = part.ends_at
        return "".join(pieces)


async def fetch_new_files(night: DreamRun, digests: Sequence[int]) -> list[OntologyDocument]:
    """The owner's files that are new, or were not looked at with these rules; without their texts."""
    rows = await _rows(night, "new_files", list(digests), night.settings.max_sources)
    return [
        OntologyDocument(
            RowRef("files", row["id"]),
            row["key"],
            row["name"],
            row["uri"],
            row["mime_type"],
            tuple(row["tags"]),
            row["updated_at"],
        )
        for row in rows
    ]


async def fetch_new_text_uris(night: DreamRun, digests: Sequence[int]) -> list[str]:
    """The addresses of the owner's other texts that are new, or were not looked at with these rules."""
    return [row["uri"] for row in await _rows(night, "new_texts", list(digests), night.settings.max_sources)]


async def read_file(night: DreamRun, document: OntologyDocument) -> None:
    """Read the text of a file."""
    rows = await _rows(night, "file_parts", str(document.ref.id), MAX_DOCUMENT_PARTS + 1)
    parts = [
        DocumentPart(
            _source(row), row["content"], row["updated_at"], _offset(row["starts_at"]), _offset(row["ends_at"])
        )
        for row in rows
    ]
    _keep_readable_parts(document, parts)


async def read_text(night: DreamRun, uri: str) -> OntologyDocument | None:
    """The texts of an address as one document; None if they are gone."""
    rows = await _rows(night, "text_parts", uri, MAX_DOCUMENT_PARTS + 1)
    if not rows:
        return None
    first = rows[0]
    tags = tuple(sorted({tag for row in rows for tag in row["tags"]}))
    mime_type = mimetypes.guess_type(urlsplit(uri).path)[0] if uri.isprintable() else None
    version = max(row["updated_at"] for row in rows)
    document = OntologyDocument(
        RowRef("resources", first["id"]), first["key"], first["name"], uri, mime_type, tags, version
    )
    _keep_readable_parts(document, [DocumentPart(_source(row), row["content"], row["updated_at"]) for row in rows])
    return document


def _keep_readable_parts(document: OntologyDocument, parts: Sequence[DocumentPart]) -> None:
    """As much as may be read; a part is read as a whole, or cut if it is the first."""
    taken: list[DocumentPart] = []
    length = 0
    for part in parts[:MAX_DOCUMENT_PARTS]:
        if taken and length + len(part.text) > MAX_DOCUMENT_CHARS:
            break
        taken.append(part)
        length += len(part.text)
    document.parts = taken
    document.is_cut = len(taken) < len(parts) or length > MAX_DOCUMENT_CHARS


async def _rows(night: DreamRun, name: str, *parameters: Any) -> list[Any]:
    statement = rewrite_owner_filter(query("dream_ontology", name), night.scope.user_id)
    async with night.store.executor.connection() as connection:
        return list(await connection.fetch(statement, night.scope.tenant_id, night.scope.user_id, *parameters))


def _source(row: Any) -> ClaimSource:
    row_id: UUID = row["id"]
    return ClaimSource(RowRef("resources", row_id), row["key"])


def _offset(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _between(end: int | None, start: int | None) -> str:
    """What stood between two parts: nothing, or white space."""
    if end is None or start is None:
        return "\n\n"
    return "" if start <= end else "\n" if start == end + 1 else "\n\n"
