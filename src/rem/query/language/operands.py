"""Keys and texts: in quotes, or as plain words up to the next clause; several keys with commas or as a list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rem.query.language.grammar import CLAUSE_WORDS, LIMIT, VERBS, Clause, Verb
from rem.query.language.lexer import Lexer
from rem.query.language.syntax_errors import Fix, ParseError, find_nearest, find_nearest_number, quote, show_word


@dataclass(frozen=True, slots=True)
class Operand:
    """The keys or the text of a query, and where they stand; `last` is where the last of them does.

    `spaced`: an item has spaces in it and no quotes around it.
    """

    items: tuple[str, ...]
    start: int
    last: int
    end: int
    quoted: bool
    spaced: bool = False


@dataclass(slots=True, eq=False)
class PartialQuery:
    """A verb with what has been read for it. An inner query without parentheses knows the one around it."""

    verb: Verb
    at: int
    outer: PartialQuery | None = None
    text: Operand | None = None
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)

    def find_owner(self, word: str) -> tuple[PartialQuery, Clause] | None:
        """Whose clause a keyword opens: the innermost query's that has it, but LIMIT is the outermost one's."""
        frame: PartialQuery | None = self
        while frame is not None:
            clause = frame.verb.by_word.get(word)
            if clause is not None and (clause is not LIMIT or frame.outer is None):
                return frame, clause
            frame = frame.outer
        return None

    @property
    def clause_words(self) -> list[str]:
        """The keywords that may stand here."""
        outer = [word for word in self.outer.clause_words if word not in self.verb.by_word] if self.outer else []
        own = [word for word, clause in self.verb.by_word.items() if clause is not LIMIT or self.outer is None]
        return own + outer


_TERM = re.compile(
    r"\s*(?P<sign>[-+]?)(?P<field>[^\W\d]\w*(?:\.[\w-]+)*)(?:\s+(?P<direction>ASC|DESC)\b)?", re.IGNORECASE
)
_COMMA = re.compile(r"\s*,")


class OrderTerm(NamedTuple):
    """A field to order by."""

    field: str
    descending: bool = False


def read_order_terms(text: str, at: int, end: int) -> tuple[list[OrderTerm], int]:
    """The terms that stand at a place, and where they end; none if there are none, or one is missing behind a comma."""
    terms = []
    while term := _TERM.match(text, at, end):
        descending = term["sign"] == "-" or (term["direction"] or "").upper() == "DESC"
        terms.append(OrderTerm(term["field"], descending))
        comma = _COMMA.match(text, term.end(), end)
        if comma is None:
            return terms, term.end()
        at = comma.end()
    return [], at


def parse_order_by(order_by: str) -> list[OrderTerm]:
    """The terms of a tree's `order_by`; none if it is not one order from end to end."""
    terms, end = read_order_terms(order_by, 0, len(order_by))
    return [] if order_by[end:].strip() else terms


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
    raise _no_number(lexer, clause, start, word, f"{find_nearest_number(word, low, high, max(low, 1)):.0f}")


def fraction(lexer: Lexer, clause: Clause) -> float:
    """A number from 0 to 1."""
    start, word = lexer.at, _digits(lexer)
    if _FRACTION.match(word) and (number := float(word)) <= 1:
        return number
    raise _no_number(lexer, clause, start, word, f"{find_nearest_number(word, 0, 1, 0.5):g}")


def _digits(lexer: Lexer) -> str:
    """What stands where a number should, also if it is written with commas."""
    found = _DIGITS.match(lexer.text, lexer.at, lexer.end)
    if found is None:
        return lexer.read_word()
    lexer.at = found.end()
    return found[0]


def _no_number(lexer: Lexer, clause: Clause, start: int, word: str, near: str) -> ParseError:
    if not word or word.upper() in CLAUSE_WORDS:
        return missing(lexer, clause, start, near)
    return ParseError(
        start, f"{clause.name} takes {clause.expected}, not {show_word(word)}", Fix(start, lexer.at, near)
    )


def missing(lexer: Lexer, clause: Clause, at: int, example: str = "") -> ParseError:
    """The clause has no value."""
    glue = "" if lexer.text[at - 1 : at].isspace() or lexer.text[at - 1 : at] == "=" else " "
    fix = Fix(at, at, f"{glue}{example}{' ' if at < lexer.end else ''}") if example else None
    return ParseError(at, f"{clause.name} needs {clause.expected}", fix)


def choice(lexer: Lexer, clause: Clause, choices: Sequence[str]) -> str:
    """One of a few words."""
    start = lexer.at
    word = _word_or_string(lexer)
    if word.lower() in choices:
        return word.lower()
    if not word:
        raise missing(lexer, clause, start, choices[0])
    near = find_nearest(word, choices)
    fix = Fix(start, lexer.at, near or choices[0])
    raise ParseError(start, f"{clause.name} takes {clause.expected}, not {show_word(word)}", fix, near)


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
        raise ParseError(start, f"{clause.name} takes {clause.expected}, not {show_word(word)}")
    return word


def _word_or_string(lexer: Lexer) -> str:
    return lexer.read_string() if _at_quote(lexer) else lexer.read_word()


def _at_quote(lexer: Lexer) -> bool:
    return lexer.text[lexer.at : lexer.at + 1] in ('"', "'")


def order(lexer: Lexer, clause: Clause) -> str:
    """Fields to order by, as they were written."""
    start = lexer.at
    if _at_quote(lexer):
        text = lexer.read_string()
        terms = parse_order_by(text)
    else:
        terms, lexer.at = read_order_terms(lexer.text, start, lexer.end)
        text = lexer.text[start : lexer.at]
    if not terms or any(term.field.upper() in _NO_FIELDS for term in terms):
        raise missing(lexer, clause, start, "weight")
    return " ".join(text.split())


_QUOTES = ('"', "'")
_PIECE = re.compile(r"[^\s,()]+|[,()]")
_LIST_ITEM = re.compile(r"[^,\[\]]+")
_NAMED = re.compile(r"([A-Za-z_]{3,20})=([\"']?)")


def read_text(lexer: Lexer, frame: PartialQuery) -> Operand:
    """Read the text of FUZZY and SEARCH."""
    start = lexer.at
    if lexer.text[start] in _QUOTES:
        return Operand((_string(lexer, frame),), start, start, lexer.at, quoted=True)
    item = _words(lexer, frame, commas_end=False)
    return Operand((item,) if item else (), start, start, lexer.at, quoted=False, spaced=" " in item)


def read_keys(lexer: Lexer, frame: PartialQuery) -> Operand:
    """Read one key or several; no items if none stands here."""
    start = lexer.at
    if lexer.text[start : start + 1] == "[":
        items = read_list(lexer, "key")
        return Operand(tuple(items), start, start, lexer.at, quoted=True)
    keys: list[str] = []
    spaced = False
    while True:
        is_string = lexer.skip_spaces() in _QUOTES
        last = lexer.at
        key = _string(lexer, frame) if is_string else _words(lexer, frame, commas_end=True)
        if not key and not keys and lexer.text[lexer.at : lexer.at + 1] != ",":
            return Operand((), start, start, start, quoted=False)
        if not key:
            raise _no_item(lexer, "key", after_comma=bool(keys))
        keys.append(key)
        spaced = spaced or (not is_string and " " in key)
        end = lexer.at
        if lexer.skip_spaces() != ",":
            return Operand(tuple(keys), start, last, end, is_string, spaced)
        lexer.at += 1


def read_types(lexer: Lexer, clause: Clause) -> tuple[str, ...]:
    """Read edge types: strings or single words with commas between them, or a list."""
    if lexer.text[lexer.at : lexer.at + 1] == "[":
        return tuple(read_list(lexer, "edge type"))
    types: list[str] = []
    while True:
        is_string = lexer.skip_spaces() in _QUOTES
        start = lexer.at
        name = lexer.read_string() if is_string else lexer.read_word()
        if not name.strip() or (not is_string and name.upper() in CLAUSE_WORDS):
            if not types or is_string:
                raise missing(lexer, clause, start, "manages")
            raise _no_item(lexer, "edge type", after_comma=True)
        types.append(name)
        end = lexer.at
        if lexer.skip_spaces() != ",":
            lexer.at = end
            return tuple(types)
        lexer.at += 1


def read_list(lexer: Lexer, what: str) -> list[str]:
    """Read `[a, "b"]`."""
    opening = lexer.at
    items: list[str] = []
    while True:
        lexer.at += 1
        items.append(_list_item(lexer, opening, what))
        follower = lexer.skip_spaces()
        if follower == "]":
            lexer.at += 1
            return items
        if not follower:
            raise ParseError(opening, "Unclosed '[': it needs a ']'", Fix(lexer.end, lexer.end, "]"))
        if follower != ",":
            raise ParseError(
                lexer.at, f"Expected ',' or ']' in the list, not {show_word(lexer.read_word() or follower)}"
            )


def _list_item(lexer: Lexer, opening: int, what: str) -> str:
    if lexer.skip_spaces() in _QUOTES:
        start = lexer.at
        item = lexer.read_string()
        if not item.strip():
            raise ParseError(start, f"The list needs at least one {what} in every place, not an empty string")
        return item
    found = _LIST_ITEM.match(lexer.text, lexer.at, lexer.end)
    if found is None or not found[0].strip():
        raise _no_item(lexer, what, after_comma=lexer.text[opening + 1 : lexer.at].strip() != "")
    lexer.at = found.end()
    return " ".join(found[0].split())


def _no_item(lexer: Lexer, what: str, *, after_comma: bool) -> ParseError:
    if not after_comma:
        return ParseError(lexer.at, f"There must be at least one {what} here")
    comma = lexer.text.rfind(",", 0, lexer.at)
    return ParseError(lexer.at, f"Expected another {what} after the comma", Fix(comma, comma + 1, ""))


def _string(lexer: Lexer, frame: PartialQuery) -> str:
    start = lexer.at
    value = lexer.read_string()
    if not value.strip():
        fix = Fix(start, lexer.at, frame.verb.example)
        raise ParseError(start, f"{frame.verb.name} needs {frame.verb.missing}, not an empty string", fix)
    return value


def _words(lexer: Lexer, frame: PartialQuery, *, commas_end: bool) -> str:
    start = lexer.at
    lexer.at = find_text_end(lexer, frame, start, commas_end=commas_end)
    return " ".join(lexer.text[start : lexer.at].split())


def find_text_end(lexer: Lexer, frame: PartialQuery, start: int, *, commas_end: bool, own_only: bool = False) -> int:
    """Where plain words end: before a clause, a string, a bracket that nothing opened or, between keys, a comma.

    `own_only`: a proposal is looked for, so the clauses of other verbs are words, and nothing is wrong.
    """
    text = lexer.text
    end = start
    opened: list[int] = []
    for piece in _PIECE.finditer(text, start, lexer.end):
        at = piece.start()
        word = piece[0]
        if word == "(":
            opened.append(at)
        elif word == ")":
            if not opened:
                break
            opened.pop()
        elif not opened and (
            (word == "," and commas_end)
            or ((at == end == start or text[at - 1].isspace()) and _ends_run(lexer, frame, at, word, own_only))
            or (word.upper() in VERBS and text[end - 1 : end] == ";")
        ):
            break
        end = piece.end()
    if opened and not own_only:
        fix = Fix(start, lexer.end, quote(text[start : lexer.end]))
        raise ParseError(opened[-1], "Unclosed '(': close it, or put the text in quotes", fix)
    return end


def _ends_run(lexer: Lexer, frame: PartialQuery, at: int, word: str, own_only: bool) -> bool:
    if word[0] in _QUOTES:
        return True
    keyword = lexer.peek_keyword(at)
    if keyword in CLAUSE_WORDS:
        return frame.find_owner(keyword) is not None or (not own_only and is_meant_as_clause(lexer, frame, at, keyword))
    return "=" in word and _is_misspelt_clause(word)


def is_meant_as_clause(lexer: Lexer, frame: PartialQuery, at: int, keyword: str) -> bool:
    """Whether a keyword that the verb does not have is meant as one all the same.

    In a key it always is, so that a mistake does not look like a key that nothing has. A text is language, where such a
    word is a word, unless it is written as a clause would be.
    """
    end = at + len(keyword)
    return frame.verb.takes_keys or lexer.text[at:end].isupper() or lexer.text[end : end + 1] == "="


def _is_misspelt_clause(word: str) -> bool:
    """Whether `name=value` has a name that is no clause but nearly one, or a value that is a string."""
    named = _NAMED.match(word)
    return named is not None and (bool(named[2]) or _is_nearly_clause(named[1].upper()))


@lru_cache(maxsize=1024)
def _is_nearly_clause(name: str) -> bool:
    return find_nearest(name, (word for word in CLAUSE_WORDS if word[0] == name[0])) is not None
