"""What passes through ingestion: sources, fetched files, parsed documents, options and reports."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from uuid import UUID

from rem.errors import InvalidInputError
from rem.ingest.sources.ignore_rules import IgnoreReason

Format: TypeAlias = Literal["text", "markdown", "code", "table", "data"]
"""Decides where a text is cut: at paragraphs, headings, definitions, rows or entries."""
Form: TypeAlias = Literal["resource", "ontology", "schema"]
"""What a file is stored as: chunks, entries of the knowledge base, or an agent."""
FileStatus: TypeAlias = Literal["added", "unchanged", "changed", "removed", "deleted", "skipped", "failed"]
"""The result for one file. Removed: it was no longer in its folder, so it was deleted. Deleted: its owner deleted it
earlier, so it was left alone. Skipped: it is empty, or it vanished while the folder was read."""


class FileSource(NamedTuple):
    """One file that can be fetched."""

    uri: str
    name: str = ""
    """The path relative to the listed folder, with the name of that folder first. Empty: the one of its source."""


@dataclass(slots=True)
class Listing:
    """The files of a folder in the order of their names."""

    sources: list[FileSource] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Names that could not be read, each with the reason."""
    ignored: Counter[IgnoreReason] = field(default_factory=Counter)
    """Files and folders that were left out, by reason. The contents of an ignored folder are not counted."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user about the listing, in sentences."""


@dataclass(frozen=True)
class FetchedFile:
    """The bytes of one file."""

    name: str
    """The file name, or the path relative to the ingested folder."""
    uri: str
    """The full location. Two files with the same URI are two versions of the same file."""
    data: bytes
    mime_type: str | None = None
    """The type that the source declares, if it declares one."""
    modified_at: datetime | None = None
    """The time of the last modification, if the source knows it."""

    @cached_property
    def checksum(self) -> str:
        """The SHA-256 of its bytes in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()


Source: TypeAlias = FileSource | FetchedFile
"""What ingestion takes: a file to fetch, or one whose bytes are there."""


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The whole text of a file."""

    text: str
    format: Format
    mime_type: str
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """Properties found in the file, such as author, language, front matter and number of pages."""
    written_at: datetime | None = None
    """The time of writing, if the file contains it."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Options for storing files. None keeps the current value of a known file."""

    category: str | None = None
    tags: tuple[str, ...] | None = None
    form: Form | None = None
    with_forgotten: bool = False
    """Also store files and parts of files that the owner has forgotten."""

    def __post_init__(self) -> None:
        if self.form is not None and self.form not in get_args(Form):
            raise InvalidInputError(f"The form must be one of {', '.join(get_args(Form))}, not {self.form!r}.")


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """The result of ingesting one file."""

    status: FileStatus
    uri: str
    name: str
    key: str | None = None
    """The key of the file, for LOOKUP."""
    table: str = "files"
    chunks: int = 0
    """Number of stored chunks or entries."""
    error: str | None = None
    keys: tuple[str, ...] = ()
    """The keys of its chunks and entries."""
    run: str | None = None
    """The id of the run that added or changed it, for `rem ingest undo`."""
    masked: tuple[str, ...] = ()
    """Kinds of secrets that were masked in its text, such as "api key"."""
    note: str | None = None
    """What the user should know about the stored file, in sentences."""


@dataclass(slots=True)
class IngestReport:
    """The results of ingesting many files, in the order of the files."""

    files: list[FileOutcome] = field(default_factory=list)
    ignored: Counter[IgnoreReason] = field(default_factory=Counter)
    """Files and folders that were not read, by reason. The contents of an ignored folder are not counted."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, in sentences: rules that do not count, removed files that stay."""
    index_error: str | None = None
    """The reason why the stored chunks could not be embedded. They are found by words, not yet by meaning."""

    def add_listing(self, listing: Listing) -> None:
        """Add what a listing could not read and what it left out."""
        self.files += [FileOutcome("failed", name, name, error=reason) for name, reason in listing.errors]
        self.ignored = listing.ignored
        self.notes += listing.notes

    @property
    def counts(self) -> Counter[FileStatus]:
        """Number of files by status."""
        return Counter(file.status for file in self.files)

    @property
    def chunks(self) -> int:
        """Number of chunks and entries of the files that were added or changed."""
        return sum(file.chunks for file in self.files if file.status in ("added", "changed"))

    @property
    def run(self) -> str | None:
        """The id of the run, for `rem ingest undo`. None if it stored nothing."""
        return next((file.run for file in self.files if file.run), None)

    @property
    def failures(self) -> list[FileOutcome]:
        """The files that could not be ingested."""
        return [file for file in self.files if file.status == "failed"]


def shorten_run_id(run_id: UUID) -> str:
    """Return the beginning of a run's id, which is enough to tell the runs of one owner apart."""
    return run_id.hex[:8]
