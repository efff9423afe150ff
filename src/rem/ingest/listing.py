"""What a folder holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

_NOT_CONTENT = frozenset({"__pycache__", "node_modules"})


class Source(NamedTuple):
    """A file that can be fetched."""

    uri: str
    name: str
    """What people call it: its path below the folder, from the folder's own name on."""


@dataclass(slots=True)
class Listing:
    """The files of a folder in the order of their names, and what could not be looked into."""

    sources: list[Source] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Names, and what is wrong with each."""


def is_passed_over(name: str) -> bool:
    """Whether a file or folder is not meant to be read: hidden, or made by tools."""
    return name.startswith(".") or name in _NOT_CONTENT
