"""OntologyDocument: a document that agents extract data from: a file with its chunks, or the texts of one address."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from rem.dreaming.claims import ClaimSource, RowRef

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun

MAX_DOCUMENT_PARTS = 2000
MAX_DOCUMENT_CHARS = 192_000
"""Characters of a document that are read. The report names documents with more."""


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A chunk of a file, or one text of an address."""

    source: ClaimSource
    text: str
    version: datetime
    start: int | None = None
    """Offset in the file."""
    end: int | None = None


@dataclass(slots=True)
class OntologyDocument:
    """A document that rules are matched with, and agents read."""

    ref: RowRef
    """Subject of the claims: the file, or the first of the texts."""
    key: str
    name: str
    uri: str | None
    mime_type: str | None
    tags: tuple[str, ...]
    version: datetime
    parts: list[DocumentPart] = field(default_factory=list)
    is_cut: bool = False
    """Whether only its beginning was read."""

    @property
    def is_file(self) -> bool:
        """Whether it is a file."""
        return self.ref.type == "files"

    @property
    def source(self) -> ClaimSource:
        """The document itself as source of a claim."""
        return ClaimSource(self.ref, self.key)

    @property
    def sources(self) -> tuple[ClaimSource, ...]:
        """The document and its parts that were read."""
        return tuple({source.ref: source for source in (self.source, *(part.source for part in self.parts))}.values())

    @property
    def text(self) -> str:
        """The text of all parts, with the white space between them."""
        texts: list[str] = []
        end: int | None = None
        for part in self.parts:
            if texts:
                texts.append(_get_separator(end, part.start))
            texts.append(part.text)
            end = part.end
        return "".join(texts)


async def fetch_new_files(run: DreamRun, digests: Sequence[int]) -> list[OntologyDocument]:
    """Return the owner's files that are new or were not read with the rules of these digests, without their texts."""
    rows = await run.fetch_owned("dream_ontology", "new_files", list(digests), run.settings.max_sources)
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


async def fetch_new_text_uris(run: DreamRun, digests: Sequence[int]) -> list[str]:
    """Return the addresses of the owner's other texts that are new or were not read with these rules."""
    rows = await run.fetch_owned("dream_ontology", "new_text_uris", list(digests), run.settings.max_sources)
    return [row["uri"] for row in rows]


async def read_file(run: DreamRun, document: OntologyDocument) -> None:
    """Read the chunks of a file into its document."""
    rows = await run.fetch_owned("dream_ontology", "file_parts", str(document.ref.id), MAX_DOCUMENT_PARTS + 1)
    parts = [
        DocumentPart(
            _to_source(row), row["content"], row["updated_at"], _to_offset(row["start"]), _to_offset(row["end"])
        )
        for row in rows
    ]
    _set_parts(document, parts)


async def read_text(run: DreamRun, uri: str) -> OntologyDocument | None:
    """Return the texts of an address as one document, or None if they are gone."""
    rows = await run.fetch_owned("dream_ontology", "text_parts", uri, MAX_DOCUMENT_PARTS + 1)
    if not rows:
        return None
    first = rows[0]
    tags = tuple(sorted({tag for row in rows for tag in row["tags"]}))
    mime_type = mimetypes.guess_type(urlsplit(uri).path)[0] if uri.isprintable() else None
    version = max(row["updated_at"] for row in rows)
    document = OntologyDocument(
        RowRef("resources", first["id"]), first["key"], first["name"], uri, mime_type, tags, version
    )
    _set_parts(document, [DocumentPart(_to_source(row), row["content"], row["updated_at"]) for row in rows])
    return document


def _set_parts(document: OntologyDocument, parts: Sequence[DocumentPart]) -> None:
    """Give a document its first parts, up to MAX_DOCUMENT_CHARS; the first part in any case."""
    kept: list[DocumentPart] = []
    chars = 0
    for part in parts[:MAX_DOCUMENT_PARTS]:
        if kept and chars + len(part.text) > MAX_DOCUMENT_CHARS:
            break
        kept.append(part)
        chars += len(part.text)
    document.parts = kept
    document.is_cut = len(kept) < len(parts) or chars > MAX_DOCUMENT_CHARS


def _to_source(row: Any) -> ClaimSource:
    row_id: UUID = row["id"]
    return ClaimSource(RowRef("resources", row_id), row["key"])


def _to_offset(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _get_separator(end: int | None, start: int | None) -> str:
    """Return the white space between a part that ends and one that starts at an offset of the file."""
    if end is None or start is None:
        return "\n\n"
    return "" if start <= end else "\n" if start == end + 1 else "\n\n"
