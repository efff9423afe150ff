"""What goes through ingestion: bytes from somewhere, and the text that a reader makes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

Format: TypeAlias = Literal["text", "markdown", "code", "table", "data"]
"""How a text is cut: by paragraphs, headings, definitions, rows, or entries."""


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file as it was fetched."""

    name: str
    """What people call it: a file name, or a path below the folder that was taken in."""
    uri: str
    """Where it is, in full; the same place is the same file."""
    data: bytes
    mime_type: str | None = None
    """What the place where it was says of it; None if that says nothing."""
    modified_at: datetime | None = None
    """When it was last changed, as far as that place knows."""


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The whole text of a file."""

    text: str
    format: Format
    mime_type: str
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """What the file says of itself: author, language, front matter, pages."""
    written_at: datetime | None = None
    """When it was written, as far as the file itself says so."""


FileStatus: TypeAlias = Literal["added", "unchanged", "changed", "deleted", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of one file. Deleted: its owner deleted it before, so it was left alone. Skipped: it is empty."""

    status: FileStatus
    uri: str
    name: str
    key: str | None = None
    """What the file is looked up by; of an agent's definition, the agent."""
    table: str = "files"
    chunks: int = 0
    """How many pieces of it are remembered."""
    error: str | None = None
    keys: tuple[str, ...] = ()
    """What its pieces are looked up by."""


@dataclass(slots=True)
class IngestReport:
    """What became of many files, in their order."""

    files: list[FileOutcome] = field(default_factory=list)

    @property
    def counts(self) -> Counter[FileStatus]:
        """How many files had which outcome."""
        return Counter(file.status for file in self.files)

    @property
    def chunks(self) -> int:
        """How many pieces were stored or stored anew."""
        return sum(file.chunks for file in self.files if file.status in ("added", "changed"))

    @property
    def failures(self) -> list[FileOutcome]:
        """The files that could not be taken in."""
        return [file for file in self.files if file.status == "failed"]


IGNORED_FOLDERS = frozenset({"__pycache__", "node_modules"})


class FileSource(NamedTuple):
    """A file that can be fetched."""

    uri: str
    name: str
    """What people call it: its path below the folder, from the folder's own name on."""


@dataclass(slots=True)
class Listing:
    """The files of a folder in the order of their names, and what could not be looked into."""

    sources: list[FileSource] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Names, and what is wrong with each."""


def is_ignored(name: str) -> bool:
    """Whether a file or folder is not meant to be read: hidden, or made by tools."""
    return name.startswith(".") or name in IGNORED_FOLDERS
