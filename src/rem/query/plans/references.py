"""Find references in a stage's query: `{people.record.name}` stands for values in the rows of the stage `people`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rem.errors import InvalidInputError

Row: TypeAlias = dict[str, Any]
STAGE_ID = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_ROWS = r"\[(?:(?P<at>\d{1,6})|(?P<first>\d{0,6}):(?P<end>\d{0,6}))\]"
_SELECTION = re.compile(rf"(?P<stage>{STAGE_ID})(?:{_ROWS})?")
_REFERENCE = re.compile(rf"\{{(?P<source>{_SELECTION.pattern})(?P<path>(?:\.[^\s.{{}}\[\]\"'\\]+)*)\}}")
_IN_BRACES = re.compile(rf"\{{\{{[^{{}}\"'\\]*\}}\}}|\{{{STAGE_ID}[^{{}}\"'\\]*\}}")
_STAGE_IN_BRACES = re.compile(rf"\{{({STAGE_ID})")
_MARKS = range(0x1401, 0x166D)
"""Canadian syllabics: printable, one column wide, and ordinary letters for every parser."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Rows of a stage: all of them, or the ones that `[0]`, `[:3]` or `[2:5]` selects."""

    stage: str
    rows: tuple[int, int | None] | None = None

    def select(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return the selected rows."""
        return rows if self.rows is None else rows[slice(*self.rows)]


@dataclass(frozen=True, slots=True)
class Reference:
    """The values at a path in rows of a stage."""

    written: str
    source: RowSelection
    path: tuple[str, ...]

    def values(self, row: Row) -> list[Any]:
        """Return the values in one row. A list on the path stands for each of its items; empty values are left out."""
        return list(_iterate_values(row, self.path))


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A query with a mark in place of everything in braces.

    A mark is as long as the text that it replaces, so errors have the right position, and the parser takes it for a
    word. Values are never put into the text of a query: they replace the marks in its tree.
    """

    text: str
    marks: dict[str, str]

    def restore(self, text: str) -> str:
        """Return a part of the query, or an error about it, with the original braces."""
        return self._pattern.sub(lambda mark: self.marks[mark[0][0]], text) if self.marks else text

    def split(self, text: str, stages: Sequence[str]) -> list[str | Reference]:
        """Split a string of the tree into text and references. Raise InvalidInputError for invalid references."""
        if not self.marks:
            return [text]
        parts = (
            _parse_braces(self.marks[part[0]], stages) if part[:1] in self.marks else part
            for part in self._split_at_marks(text)
        )
        return [part for part in parts if part]

    def has_marks(self, text: str) -> bool:
        """Return whether a string of the tree contained braces."""
        return any(mark in text for mark in self.marks)

    def find_stage_references(self, text: str, stages: Sequence[str]) -> list[str]:
        """Return the texts in braces that begin with the name of a stage."""
        written = (self.marks[mark] for mark in self.marks if mark in text)
        matches = ((braces, _STAGE_IN_BRACES.match(braces)) for braces in written)
        return [braces for braces, stage in matches if stage is not None and stage[1] in stages]

    def _split_at_marks(self, text: str) -> list[str]:
        return re.split(f"({self._pattern.pattern})", text)

    @property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"{mark}+" for mark in self.marks))


def mark_references(query: str) -> MarkedText:
    """Replace everything in braces by marks."""
    unused_letters = (letter for letter in map(chr, _MARKS) if letter not in query)
    marks: dict[str, str] = {}

    def replace_by_mark(match: re.Match[str]) -> str:
        letter = next(unused_letters, None)
        if letter is None:
            raise InvalidInputError("There are too many references in one query: write several stages.")
        marks[letter] = match[0]
        return letter * len(match[0])

    return MarkedText(_IN_BRACES.sub(replace_by_mark, query), marks)


def parse_selection(written: str) -> RowSelection:
    """Parse a selection such as `people` or `people[:3]`."""
    match = _SELECTION.fullmatch(written)
    if match is None:
        raise InvalidInputError(f"{written!r} names no rows: write a stage such as people, or people[:3].")
    return _selection_from_match(match)


def _selection_from_match(match: re.Match[str]) -> RowSelection:
    if match["at"] is not None:
        return RowSelection(match["stage"], (int(match["at"]), int(match["at"]) + 1))
    if match["first"] is None:
        return RowSelection(match["stage"])
    return RowSelection(match["stage"], (int(match["first"] or 0), int(match["end"]) if match["end"] else None))


def _parse_braces(written: str, stages: Sequence[str]) -> str | Reference:
    """Parse a text in braces: return a reference, or the text itself. Doubled braces are always text."""
    if written.startswith("{{"):
        return written[1:-1]
    match = _REFERENCE.fullmatch(written)
    stage = _STAGE_IN_BRACES.match(written)
    if match is not None and match["stage"] in stages:
        return Reference(written, _selection_from_match(match), tuple(match["path"].split(".")[1:]) or ("key",))
    if match is not None:
        raise InvalidInputError(
            f"{written} refers to no stage. The stages are {', '.join(stages)}; "
            f"braces that are text are doubled: {{{written}}}."
        )
    if stage is not None and stage[1] in stages:
        name = stage[1]
        raise InvalidInputError(
            f"{written} is no reference: write {{{name}.key}}, {{{name}[0].record.name}} or {{{name}[:3].key}}."
        )
    return written


def _iterate_values(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        if path and path[0].isdecimal():
            yield from _iterate_values(dict(enumerate(value)).get(int(path[0])), path[1:])
        else:
            for item in value:
                yield from _iterate_values(item, path)
    elif path:
        if isinstance(value, dict):
            yield from _iterate_values(value.get(path[0]), path[1:])
    elif not (value is None or isinstance(value, dict) or (isinstance(value, str) and not value.strip())):
        yield value
