"""What is wrong with a query: the place, the reason and the nearest valid form, as one error that shows all three."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from rem.errors import QuerySyntaxError
from rem.query.language.grammar import CLAUSE_WORDS, VERBS

_WINDOW = 100
_LONGEST_SUGGESTION = 500
_WORD_SHOWN = 40


class Fix(NamedTuple):
    """A replacement in the text of the query that may make it valid."""

    start: int
    end: int
    text: str

    def apply_to(self, query: str) -> str:
        """The query with the replacement made."""
        return query[: self.start] + self.text + query[self.end :]


class ParseError(Exception):  # it becomes a QuerySyntaxError
    """The parser cannot go on; `position` counts from the start of the query, `near` is the word that may be meant.

    `in_text`: what was read as a clause is written in small letters after a verb in capitals, so it may be a word.
    """

    def __init__(self, position: int, message: str, fix: Fix | None = None, near: str | None = None) -> None:
        super().__init__(message)
        self.position = position
        self.message = message
        self.fix = fix
        self.near = near
        self.in_text = False


def to_syntax_error(query: str, problem: ParseError, suggestion: str | None) -> QuerySyntaxError:
    """The error that a user sees."""
    start = query.rfind("\n", 0, problem.position) + 1
    line = query.count("\n", 0, problem.position) + 1
    column = problem.position - start + 1
    message = f"{problem.message} (line {line}, column {column})"
    if query.strip():
        message += f"\n{_excerpt(query, start, problem.position)}"
    if suggestion is not None and len(suggestion) > _LONGEST_SUGGESTION:
        suggestion = None
    if suggestion is not None or problem.near is not None:
        message += f"\nDid you mean: {suggestion or problem.near}"
    return QuerySyntaxError(message, reason=problem.message, line=line, column=column, suggestion=suggestion)


def show_word(word: str) -> str:
    """A word of the query, quoted for a message; a long one is cut."""
    printable = "".join(map(_printable, word[:_WORD_SHOWN]))
    return f"'{printable}{'…' if len(word) > _WORD_SHOWN else ''}'"


def _excerpt(query: str, line_start: int, position: int) -> str:
    """The line of the problem, or a window of it, over a caret."""
    line_end = query.find("\n", position)
    line_end = len(query) if line_end < 0 else line_end
    first = max(line_start, position - _WINDOW // 2)
    last = min(line_end, first + _WINDOW)
    before = ("…" if first > line_start else "") + "".join(map(_printable, query[first:position]))
    after = "".join(map(_printable, query[position:last])) + ("…" if last < line_end else "")
    return f"  {before}{after}".rstrip() + f"\n  {' ' * sum(map(_width, before))}^"


def _printable(character: str) -> str:
    if character.isspace():
        return " "
    return character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"


def _width(character: str) -> int:
    """The columns of a terminal that the character takes, so that the caret stands under its place."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


_LONGEST_KEYWORD = 24


def find_nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that the word is most likely a misspelling of."""
    if len(word) > _LONGEST_KEYWORD:
        return None
    by_upper = {choice.upper(): choice for choice in choices}
    # Two letters swapped weigh too much in a short word.
    swapped = [choice for choice in by_upper if sorted(choice) == sorted(word.upper())]
    close = swapped or get_close_matches(word.upper(), by_upper, n=1, cutoff=0.75)
    return by_upper[close[0]] if close else None


def find_nearest_number(word: str, low: float, high: float, fallback: float) -> float:
    """The number of a range that the word comes closest to."""
    try:
        number = abs(float(word.rstrip("%,").replace(",", "." if high == 1 else "")))
    except ValueError:
        return fallback
    if not math.isfinite(number):
        return high
    if high == 1 and 10 <= number <= 100:
        number /= 100  # a percentage
    return min(max(number, low), high)


def quote(text: str) -> str:
    """The text as a string of the language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_START = re.compile(r"\s*(SEARCH|FUZZY|LOOKUP)\s+", re.IGNORECASE)
_PIECE = re.compile(r"\S+")


def quote_query_text(query: str) -> str | None:
    """The query with all in quotes up to the first clause in capitals; None if no keyword in small letters is in it."""
    start = _START.match(query)
    if start is None:
        return None
    verb = VERBS[start[1].upper()]
    end = len(query)
    has_keyword = False
    for piece in _PIECE.finditer(query, start.end()):
        name, assigned, _ = piece[0].partition("=")
        if name.upper() in CLAUSE_WORDS and (name.isupper() or assigned):
            end = piece.start()
            break
        has_keyword = has_keyword or name.upper() in verb.by_word
    text = " ".join(query[start.end() : end].rstrip("; \t\r\n").split())
    if not has_keyword or '"' in text or text.startswith("'") or (verb.takes_keys and "," in text):
        return None
    return f"{query[: start.end()]}{quote(text)} {query[end:]}".strip()
