"""What became of files that were to be taken in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["added", "unchanged", "changed", "deleted", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of one file. Deleted: its owner deleted it before, so it was left alone. Skipped: it is empty."""

    status: Status
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
    def counts(self) -> Counter[Status]:
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
