"""The values of clauses: numbers, names, choices and orders, each checked where it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rem.query.grammar import CLAUSE_WORDS, Clause
from rem.query.lexer import Lexer
from rem.query.order import order_terms, read_order
from rem.query.problems import Fix, Problem, shown
from rem.query.suggestions import nearest, nearest_number

_DIGITS = re.compile(r"[-+]?[0-9.][^\s()\[\]]*")
_WHOLE = re.compile(r"[0-9]{1,9}\Z")
_FRACTION = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_NAME = re.compile(r"[^\W\d]\w*\Z")
_NO_FIELDS = frozenset({"FROM", "WITH", "LIMIT", "ORDER", "BY"})
_FIELD = re.compile(r"[^\W\d]\w*(?:\.[\w-]+)*\Z")


def whole_number(lexer: Lexer, clause: Clause, low: int, high: int) -> int:
    """A whole number within bounds."""
    start, word = lexer.at, _digits(lexer)
    if _WHOLE.match(word) and low <= int(word) <= high:
        return int(word)
    raise _no_number(lexer, clause, start, word, f"{nearest_number(word, low, high, max(low, 1)):.0f}")


def fraction(lexer: Lexer, clause: Clause) -> float:
    """A number from 0 to 1."""
    start, word = lexer.at, _digits(lexer)
    if _FRACTION.match(word) and (number := float(word)) <= 1:
        return number
    raise _no_number(lexer, clause, start, word, f"{nearest_number(word, 0, 1, 0.5):g}")


def _digits(lexer: Lexer) -> str:
    """What stands where a number should, also if it is written with commas."""
    found = _DIGITS.match(lexer.text, lexer.at, lexer.end)
    if found is None:
        return lexer.word()
    lexer.at = found.end()
    return found[0]


def _no_number(lexer: Lexer, clause: Clause, start: int, word: str, near: str) -> Problem:
    if not word or word.upper() in CLAUSE_WORDS:
        return missing(lexer, clause, start, near)
    return Problem(start, f"{clause.name} takes {clause.expected}, not {shown(word)}", Fix(start, lexer.at, near))


def missing(lexer: Lexer, clause: Clause, at: int, example: str = "") -> Problem:
    """The clause has no value."""
    glue = "" if lexer.text[at - 1 : at].isspace() or lexer.text[at - 1 : at] == "=" else " "
    fix = Fix(at, at, f"{glue}{example}{' ' if at < lexer.end else ''}") if example else None
    return Problem(at, f"{clause.name} needs {clause.expected}", fix)


def choice(lexer: Lexer, clause: Clause, choices: Sequence[str]) -> str:
    """One of a few words."""
    start = lexer.at
    word = _word_or_string(lexer)
    if word.lower() in choices:
        return word.lower()
    if not word:
        raise missing(lexer, clause, start, choices[0])
    near = nearest(word, choices)
    fix = Fix(start, lexer.at, near or choices[0])
    raise Problem(start, f"{clause.name} takes {clause.expected}, not {shown(word)}", fix, near)


def table_name(lexer: Lexer, clause: Clause) -> str:
    """The name of a table."""
    return _name(lexer, clause, _NAME, "resources")


def field_name(lexer: Lexer, clause: Clause) -> str:
    """The name of a field, or of a place inside a JSON field."""
    return _name(lexer, clause, _FIELD, "content")


def _name(lexer: Lexer, clause: Clause, pattern: re.Pattern[str], example: str) -> str:
    start = lexer.at
    quoted = _at_quote(lexer)
    word = _word_or_string(lexer)
    if not word or (not quoted and word.upper() in CLAUSE_WORDS):
        raise missing(lexer, clause, start, example)
    if not pattern.match(word):
        raise Problem(start, f"{clause.name} takes {clause.expected}, not {shown(word)}")
    return word


def _word_or_string(lexer: Lexer) -> str:
    return lexer.string() if _at_quote(lexer) else lexer.word()


def _at_quote(lexer: Lexer) -> bool:
    return lexer.text[lexer.at : lexer.at + 1] in ('"', "'")


def order(lexer: Lexer, clause: Clause) -> str:
    """Fields to order by, as they were written."""
    start = lexer.at
    if _at_quote(lexer):
        text = lexer.string()
        terms = order_terms(text)
    else:
        terms, lexer.at = read_order(lexer.text, start, lexer.end)
        text = lexer.text[start : lexer.at]
    if not terms or any(term.field.upper() in _NO_FIELDS for term in terms):
        raise missing(lexer, clause, start, "weight")
    return " ".join(text.split())
