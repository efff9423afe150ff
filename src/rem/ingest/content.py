"""What goes through ingestion: bytes from somewhere, and the text that a reader makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

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
class Document:
    """The whole text of a file."""

    text: str
    format: Format
    mime_type: str
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """What the file says of itself: author, language, front matter, pages."""
    written_at: datetime | None = None
    """When it was written, as far as the file itself says so."""
