"""References of a plan: `{people.record.name}` stands for values in the rows of the stage `people`."""

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
"""Letters of the Canadian syllabics: printable, one column wide, and no spaces, quotes or signs to any parser."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Rows of a stage: all of them, or those that `[0]`, `[:3]` or `[2:5]` chooses."""

    stage: str
    rows: tuple[int, int | None] | None = None

    def select(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The chosen ones of the stage's rows."""
        return rows if self.rows is None else rows[slice(*self.rows)]


@dataclass(frozen=True, slots=True)
class Reference:
    """What stands at a path in rows of a stage."""

    written: str
    source: RowSelection
    path: tuple[str, ...]

    def values(self, row: Row) -> list[Any]:
        """The values in one row. A list on the way stands for each of its items; what is empty is no value."""
        return list(_values(row, self.path))


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A query with a mark in the place of everything in braces.

    A mark is as long as what it stands for, so that errors name the right place, and is a plain word to the parser.
    Values never stand in the text of a query: they take the place of marks in its tree.
    """

    text: str
    marks: dict[str, str]

    def restore(self, text: str) -> str:
        """A part of the query, or an error about it, with the braces as they were written."""
        return self._pattern.sub(lambda mark: self.marks[mark[0][0]], text) if self.marks else text

    def split(self, text: str, stages: Sequence[str]) -> list[str | Reference]:
        """A string of the tree as text and references. An error says what in braces is none."""
        if not self.marks:
            return [text]
        parts = [_meaning(self.marks[part[0]], stages) if part[:1] in self.marks else part for part in self._cut(text)]
        return [part for part in parts if part]

    def has_marks(self, text: str) -> bool:
        """Whether there are braces in a string of the tree."""
        return any(mark in text for mark in self.marks)

    def find_stage_references(self, text: str, stages: Sequence[str]) -> list[str]:
        """What is in braces in a part of the query and begins with the name of a stage."""
        written = (self.marks[mark] for mark in self.marks if mark in text)
        found = ((braces, _STAGE_IN_BRACES.match(braces)) for braces in written)
        return [braces for braces, stage in found if stage is not None and stage[1] in stages]

    def _cut(self, text: str) -> list[str]:
        return re.split(f"({self._pattern.pattern})", text)

    @property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"{mark}+" for mark in self.marks))


def mark_references(query: str) -> MarkedText:
    """The query with marks for what is in braces."""
    free = (letter for letter in map(chr, _MARKS) if letter not in query)
    marks: dict[str, str] = {}

    def marked(found: re.Match[str]) -> str:
        letter = next(free, None)
        if letter is None:
            raise InvalidInputError("There are too many references in one query: write several stages.")
        marks[letter] = found[0]
        return letter * len(found[0])

    return MarkedText(_IN_BRACES.sub(marked, query), marks)


def parse_selection(written: str) -> RowSelection:
    """What `people` or `people[:3]` selects."""
    found = _SELECTION.fullmatch(written)
    if found is None:
        raise InvalidInputError(f"{written!r} names no rows: write a stage such as people, or people[:3].")
    return _selection_from_match(found)


def _selection_from_match(found: re.Match[str]) -> RowSelection:
    if found["at"] is not None:
        return RowSelection(found["stage"], (int(found["at"]), int(found["at"]) + 1))
    if found["first"] is None:
        return RowSelection(found["stage"])
    return RowSelection(found["stage"], (int(found["first"] or 0), int(found["end"]) if found["end"] else None))


def _meaning(written: str, stages: Sequence[str]) -> str | Reference:
    """What something in braces is: a reference, or text (in doubled braces always)."""
    if written.startswith("{{"):
        return written[1:-1]
    found = _REFERENCE.fullmatch(written)
    stage = _STAGE_IN_BRACES.match(written)
    if found is not None and found["stage"] in stages:
        return Reference(written, _selection_from_match(found), tuple(found["path"].split(".")[1:]) or ("key",))
    if found is not None:
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


def _values(value: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        if path and path[0].isdecimal():
            yield from _values(dict(enumerate(value)).get(int(path[0])), path[1:])
        else:
            for item in value:
                yield from _values(item, path)
    elif path:
        if isinstance(value, dict):
            yield from _values(value.get(path[0]), path[1:])
    elif not (value is None or isinstance(value, dict) or (isinstance(value, str) and not value.strip())):
        yield value
