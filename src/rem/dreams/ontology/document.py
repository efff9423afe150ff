"""OntologyDocument: a document that agents extract data from: a file with its chunks, or the texts of one address."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from rem.dreams.claims import ClaimSource, RowRef

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

    from rem.dreams.run import DreamRun


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
    """Only its beginning was read."""

    @property
    def is_file(self) -> bool:
        """Return whether it is a file."""
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
    rows = await run.fetch_owned("dreams/ontology/ontology", "new_files", list(digests), run.settings.max_sources)
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
    rows = await run.fetch_owned("dreams/ontology/ontology", "new_text_uris", list(digests), run.settings.max_sources)
    return [row["uri"] for row in rows]


async def read_file(run: DreamRun, document: OntologyDocument) -> None:
    """Read the chunks of a file into its document."""
    rows = await run.fetch_owned("dreams/ontology/ontology", "file_parts", str(document.ref.id), MAX_DOCUMENT_PARTS + 1)
    parts = [
        DocumentPart(
            _to_source(row), row["content"], row["updated_at"], _to_offset(row["start"]), _to_offset(row["end"])
        )
        for row in rows
    ]
    _set_parts(document, parts)


async def read_text(run: DreamRun, uri: str) -> OntologyDocument | None:
    """Return the texts of an address as one document, or None if they are gone."""
    rows = await run.fetch_owned("dreams/ontology/ontology", "text_parts", uri, MAX_DOCUMENT_PARTS + 1)
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


MAX_PATTERN_CHARS = 1000
MAX_COMPILED_BYTES = 128 * 1024
_REGEX_SIGN = re.compile(r"\.[*+]|[\^$|()\\]")


def matches_pattern(pattern: str | None, text: str | None) -> bool:
    """Return whether a pattern matches a text. No pattern matches everything."""
    if not pattern:
        return True
    return text is not None and _compile(pattern).is_valid(text)


def matches_mime_type(pattern: str | None, mime_type: str | None) -> bool:
    """Return whether a pattern matches a MIME type, without regard to case and parameters."""
    plain = mime_type.partition(";")[0].strip().lower() if mime_type else None
    return matches_pattern(pattern.lower() if pattern and not _REGEX_SIGN.search(pattern) else pattern, plain)


def matches_tags(wanted: Iterable[str], tags: Iterable[str]) -> bool:
    """Return whether one of the wanted tags is among the tags, or no tag is wanted."""
    folded = {tag.casefold() for tag in wanted}
    return not folded or not folded.isdisjoint(tag.casefold() for tag in tags)


def find_pattern_error(pattern: str | None) -> str | None:
    """Return what is wrong with a pattern, or None if it can be used."""
    if not pattern:
        return None
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"has more than {MAX_PATTERN_CHARS:,} characters"
    try:
        _compile(pattern)
    except ValueError:
        return "is neither a glob such as *.pdf nor a regular expression without look-around and references to groups"
    return None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Draft202012Validator:
    """Return a JSON schema validator for texts that a pattern matches: its regular expressions never backtrack."""
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    expression = pattern if _REGEX_SIGN.search(pattern) else _glob_to_regex(pattern)
    options = RegexOptions(size_limit=MAX_COMPILED_BYTES, dfa_size_limit=MAX_COMPILED_BYTES)
    try:
        return Draft202012Validator({"pattern": f"^(?:{expression})$"}, offline=True, pattern_options=options)
    except (ValidationError, ValueError) as error:
        raise ValueError(str(error)) from error


def _glob_to_regex(pattern: str) -> str:
    wildcards = {"*": ".*", "?": "."}
    return "".join(wildcards.get(sign, f"\\{sign}" if sign in "./+-{}[]" else sign) for sign in pattern)
