"""The words of an SQL statement as PostgreSQL reads them, for who must look at it without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from rem.query.problems import Problem

_WORD = re.compile(
    r"""(?P<space>\s++|--[^\n\r]*+)
    |(?P<comment>/\*)
    |(?P<dollar>\$(?:[^\W\d]\w*+)?\$)
    |(?P<string>(?:[eE]'(?:[^'\\]++|\\.|'')*+|(?:[bBnNxX]|[uU]&)?'(?:[^']++|'')*+)(?P<string_end>'?))
    |(?P<quoted>(?:[uU]&)?"(?:[^"]++|"")*+(?P<quoted_end>"?))
    |(?P<word>[^\W\d][\w$]*+)
    |(?P<number>\d[\w.]*+)
    |(?P<mark>::|.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
Kind = Literal["word", "quoted", "string", "number", "mark"]


class Word(NamedTuple):
    """A piece of a statement. A `word` is in lower case, as PostgreSQL folds it; a `quoted` one stands as it is."""

    kind: Kind
    text: str
    start: int

    @property
    def is_name(self) -> bool:
        """Whether a table or function may be named by it."""
        return self.kind in ("word", "quoted")


def words_of(statement: str) -> Iterator[Word]:
    """All of a statement but spaces and comments."""
    at = 0
    while found := _WORD.match(statement, at):
        at = found.end()
        match found.lastgroup:
            case "comment":
                at = _comment_end(statement, found.start())
            case "dollar":
                end = statement.find(found[0], at)
                if end < 0:
                    raise Problem(found.start(), f"Unclosed string in the SQL: it needs {found[0]} at its end")
                at = end + len(found[0])
                yield Word("string", "", found.start())
            case "string" | "quoted":
                if not (found["string_end"] or found["quoted_end"]):
                    raise Problem(found.start(), "Unclosed string in the SQL")
                yield _quoted(found)
            case "word":
                yield Word("word", found[0].lower(), found.start())
            case "number":
                yield Word("number", found[0], found.start())
            case "mark":
                yield Word("mark", found[0], found.start())


def _quoted(found: re.Match[str]) -> Word:
    if found["quoted"] is None:
        return Word("string", "", found.start())
    name = found["quoted"]
    # A name with escapes (U&"…") stays as it is written, and so is none that is known.
    text = name[1:-1].replace('""', '"') if name.startswith('"') else name
    return Word("quoted", text, found.start())


def _comment_end(statement: str, start: int) -> int:
    """Comments of PostgreSQL nest."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(statement, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise Problem(start, "Unclosed comment in the SQL: it needs a */")
