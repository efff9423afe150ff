"""Read the operands of a query: its keys or text, and the values of its clauses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, NamedTuple

from rem.query.grammar import CLAUSE_WORDS, LIMIT, MAX_KEYS, MODES, TIME_WORDS, VERBS, Clause, Verb
from rem.query.lexer import QUOTES, Lexer
from rem.query.syntax_errors import Fix, ParseError, find_nearest, find_nearest_number, quote, show_word

_WORD_OR_SIGN = re.compile(r"[^\s,()]+|[,()]")
_LIST_ITEM = re.compile(r"[^,\[\]]+")
_ASSIGNMENT = re.compile(r"([A-Za-z_]{3,20})=([\"']?)")
_NUMBER_LIKE = re.compile(r"[-+]?[0-9.][^\s()\[\]]*")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_FRACTION = re.compile(r"\A(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]+)?\Z")
_TABLE_NAME = re.compile(r"\A[^\W\d]\w*\Z")
_FIELD_NAME = re.compile(r"\A[^\W\d]\w*(?:\.[\w-]+)*\Z")
_match_order_term = re.compile(
    r"\s*(?P<sign>[-+]?)(?P<field>[^\W\d]\w*(?:\.[\w-]+)*)(?:\s+(?P<direction>ASC|DESC)\b)?", re.IGNORECASE
).match
_match_comma = re.compile(r"\s*,").match
_NO_SPACES = re.compile(r"\S+")
_TIME_WORD = re.compile(r"[^\s()\[\]\"]+")
MAX_TIME_WORDS = 5
_ANY_DAY = datetime(2024, 12, 31, tzinfo=UTC)
"""Whether a text is a time does not depend on the day."""
_NOT_ORDER_FIELDS = frozenset({"FROM", "WITH", "LIMIT", "ORDER", "BY"})


@dataclass(frozen=True, slots=True)
class Operand:
    """The keys or the text of a query, and their offsets in it."""

    items: tuple[str, ...]
    start: int
    last: int
    """The offset of the last item."""
    end: int
    is_quoted: bool
    has_unquoted_spaces: bool = False
    """Whether an item contains spaces and is not in quotes."""


@dataclass(slots=True, eq=False)
class PartialQuery:
    """A query that is being parsed: its verb, and the operand and clauses that have been read so far."""

    verb: Verb
    position: int
    outer: PartialQuery | None = None
    """The TRAVERSE around this query, if it stands after WITH without parentheses."""
    operand: Operand | None = None
    values: dict[str, Any] = field(default_factory=dict)
    """The values of the clauses, by the field of the tree."""
    keywords: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The keyword of each clause and its offset, by the field of the tree."""

    def find_owner(self, word: str) -> tuple[PartialQuery, Clause] | None:
        """Return the query that a clause belongs to: the innermost that supports it. LIMIT belongs to the outermost."""
        partial: PartialQuery | None = self
        while partial is not None:
            clause = partial.verb.by_word.get(word)
            if clause is not None and (clause is not LIMIT or partial.outer is None):
                return partial, clause
            partial = partial.outer
        return None

    @property
    def clause_words(self) -> list[str]:
        """The keywords that may follow."""
        outer = [word for word in self.outer.clause_words if word not in self.verb.by_word] if self.outer else []
        own = [word for word, clause in self.verb.by_word.items() if clause is not LIMIT or self.outer is None]
        return own + outer

    def is_meant_as_clause(self, lexer: Lexer, offset: int, keyword: str) -> bool:
        """Return whether a keyword that this verb does not support was still meant as a clause.

        In a key it always was, so that a mistake does not look like an unknown key. In the text of FUZZY and SEARCH it
        is an ordinary word, unless it is in capitals or has a `=` after it.
        """
        end = offset + len(keyword)
        return self.verb.takes_keys or lexer.text[offset:end].isupper() or lexer.text[end : end + 1] == "="

    def find_text_end(self, lexer: Lexer, start: int, *, ends_at_comma: bool, for_suggestion: bool = False) -> int:
        """Return the offset where unquoted words end: before a clause, a string, an unopened `)` or a comma.

        `for_suggestion`: clauses of other verbs count as words, and an unclosed `(` raises no error.
        """
        text = lexer.text
        end = start
        open_brackets: list[int] = []
        for match in _WORD_OR_SIGN.finditer(text, start, lexer.end):
            offset = match.start()
            word = match[0]
            if word == "(":
                open_brackets.append(offset)
            elif word == ")":
                if not open_brackets:
                    break
                open_brackets.pop()
            elif not open_brackets and (
                (word == "," and ends_at_comma)
                or (
                    (offset == end == start or text[offset - 1].isspace())
                    and self._ends_text(lexer, offset, word, for_suggestion)
                )
                or (word.upper() in VERBS and text[end - 1 : end] == ";")
            ):
                break
            end = match.end()
        if open_brackets and not for_suggestion:
            fix = Fix(start, lexer.end, quote(text[start : lexer.end]))
            raise ParseError(open_brackets[-1], "Unclosed '(': close it, or put the text in quotes", fix)
        return end

    def _ends_text(self, lexer: Lexer, offset: int, word: str, for_suggestion: bool) -> bool:
        if word[0] in QUOTES:
            return True
        keyword = peek_clause(lexer, offset)
        if keyword:
            is_foreign_clause = not for_suggestion and self.is_meant_as_clause(lexer, offset, keyword)
            return self.find_owner(keyword) is not None or is_foreign_clause
        return "=" in word and _is_misspelt_clause(word)


def peek_clause(lexer: Lexer, offset: int) -> str:
    """Return the keyword of the clause at an offset in capitals, or ""."""
    keyword = lexer.peek_keyword(offset)
    if keyword not in CLAUSE_WORDS:
        return ""
    end = offset + len(keyword)
    if keyword not in TIME_WORDS or lexer.text[offset:end].isupper() or lexer.text[end : end + 1] == "=":
        return keyword
    return keyword if _match_time(lexer, end) is not None else ""


def find_misspelt_clauses(lexer: Lexer, partial: PartialQuery, operand: Operand) -> Iterator[Fix]:
    """Yield the fix for each word of an unquoted operand that is one letter away from a clause which fits what follows.

    A word such as a table may follow any word. Before it, the misspelt clause must be in capitals.
    """
    words = list(_NO_SPACES.finditer(lexer.text, operand.start, operand.end))
    for word, following in pairwise(words):
        for keyword in partial.clause_words:
            if _is_one_letter_away(word[0].upper(), keyword) and _fits_clause(keyword, word[0], following[0]):
                yield Fix(word.start(), word.end(), keyword)


def _fits_clause(keyword: str, written: str, value: str) -> bool:
    match keyword:
        case "LIMIT" | "DEPTH":
            return _WHOLE_NUMBER.match(value) is not None
        case "THRESHOLD" | "MIN_SIMILARITY":
            return _FRACTION.match(value) is not None
        case "MODE":
            return written.isupper() and value.lower() in MODES
        case "SINCE" | "UNTIL":
            return is_time(value)
        case "FROM" | "TABLE" | "FIELD":
            return written.isupper() and _FIELD_NAME.match(value) is not None
    return False


def _is_one_letter_away(word: str, keyword: str) -> bool:
    """Return whether a word has one letter too many or too few, one wrong letter, or two letters swapped."""
    if word == keyword or abs(len(word) - len(keyword)) > 1:
        return False
    start = next((index for index, pair in enumerate(zip(word, keyword, strict=False)) if len(set(pair)) > 1), None)
    start = min(len(word), len(keyword)) if start is None else start
    rest, key_rest = word[start:], keyword[start:]
    return (
        rest[1:] == key_rest
        or rest == key_rest[1:]
        or rest[1:] == key_rest[1:]
        or (rest[:2] == key_rest[:2][::-1] and rest[2:] == key_rest[2:])
    )


def _is_misspelt_clause(word: str) -> bool:
    """Return whether `name=value` has a name that is nearly a clause, or a value in quotes."""
    assignment = _ASSIGNMENT.match(word)
    return assignment is not None and (bool(assignment[2]) or _is_nearly_clause(assignment[1].upper()))


@lru_cache(maxsize=1024)
def _is_nearly_clause(name: str) -> bool:
    return find_nearest(name, (word for word in CLAUSE_WORDS if word[0] == name[0])) is not None


def read_text(lexer: Lexer, partial: PartialQuery) -> Operand:
    """Read the text of FUZZY or SEARCH. It has no items if there is none."""
    start = lexer.position
    if lexer.text[start] in QUOTES:
        return Operand((_read_string(lexer, partial),), start, start, lexer.position, is_quoted=True)
    text = _read_words(lexer, partial, ends_at_comma=False)
    return Operand(
        (text,) if text else (), start, start, lexer.position, is_quoted=False, has_unquoted_spaces=" " in text
    )


def read_keys(lexer: Lexer, partial: PartialQuery) -> Operand:
    """Read one or more keys. It has no items if there is none."""
    start = lexer.position
    if lexer.text[start : start + 1] == "[":
        items = _read_list(lexer, "key")
        return Operand(tuple(items), start, start, lexer.position, is_quoted=True)
    keys: list[str] = []
    has_unquoted_spaces = False
    while True:
        is_string = lexer.skip_spaces() in QUOTES
        last = lexer.position
        key = _read_string(lexer, partial) if is_string else _read_words(lexer, partial, ends_at_comma=True)
        if not key and not keys and lexer.text[lexer.position : lexer.position + 1] != ",":
            return Operand((), start, start, start, is_quoted=False)
        if not key:
            raise _missing_item(lexer, "key", after_comma=bool(keys))
        keys.append(key)
        _check_count(keys, "key", start)
        has_unquoted_spaces = has_unquoted_spaces or (not is_string and " " in key)
        end = lexer.position
        if lexer.skip_spaces() != ",":
            return Operand(tuple(keys), start, last, end, is_string, has_unquoted_spaces)
        lexer.position += 1


def read_edge_types(lexer: Lexer, clause: Clause) -> tuple[str, ...]:
    """Read edge types: strings or single words separated by commas, or a list in brackets."""
    if lexer.text[lexer.position : lexer.position + 1] == "[":
        return tuple(_read_list(lexer, "edge type"))
    types: list[str] = []
    while True:
        is_string = lexer.skip_spaces() in QUOTES
        start = lexer.position
        name = lexer.read_string() if is_string else lexer.read_word()
        if not name.strip() or (not is_string and name.upper() in CLAUSE_WORDS):
            if not types or is_string:
                raise missing_value(lexer, clause, start, "manages")
            raise _missing_item(lexer, "edge type", after_comma=True)
        types.append(name)
        _check_count(types, "edge type", start)
        end = lexer.position
        if lexer.skip_spaces() != ",":
            lexer.position = end
            return tuple(types)
        lexer.position += 1


def _read_list(lexer: Lexer, item_name: str) -> list[str]:
    """Read a list such as `[a, "b"]`."""
    opening = lexer.position
    items: list[str] = []
    while True:
        lexer.position += 1
        items.append(_read_list_item(lexer, opening, item_name))
        _check_count(items, item_name, opening)
        next_character = lexer.skip_spaces()
        if next_character == "]":
            lexer.position += 1
            return items
        if not next_character:
            raise ParseError(opening, "Unclosed '[': it needs a ']'", Fix(lexer.end, lexer.end, "]"))
        if next_character != ",":
            start = lexer.position
            word = show_word(lexer.read_word() or next_character)
            raise ParseError(start, f"Expected ',' or ']' in the list, not {word}")


def _check_count(items: Sized, item_name: str, start: int) -> None:
    if len(items) > MAX_KEYS:
        raise ParseError(start, f"A query has at most {MAX_KEYS:,} {item_name}s: ask in several queries")


def _read_list_item(lexer: Lexer, opening: int, item_name: str) -> str:
    if lexer.skip_spaces() in QUOTES:
        start = lexer.position
        item = lexer.read_string()
        if not item.strip():
            raise ParseError(start, f"The list needs at least one {item_name} in every place, not an empty string")
        return item
    match = _LIST_ITEM.match(lexer.text, lexer.position, lexer.end)
    if match is None or not match[0].strip():
        raise _missing_item(lexer, item_name, after_comma=lexer.text[opening + 1 : lexer.position].strip() != "")
    lexer.position = match.end()
    return " ".join(match[0].split())


def _missing_item(lexer: Lexer, item_name: str, *, after_comma: bool) -> ParseError:
    if not after_comma:
        return ParseError(lexer.position, f"There must be at least one {item_name} here")
    comma = lexer.text.rfind(",", 0, lexer.position)
    return ParseError(lexer.position, f"Expected another {item_name} after the comma", Fix(comma, comma + 1, ""))


def _read_string(lexer: Lexer, partial: PartialQuery) -> str:
    start = lexer.position
    value = lexer.read_string()
    if not value.strip():
        fix = Fix(start, lexer.position, partial.verb.example)
        raise ParseError(start, f"{partial.verb.name} needs {partial.verb.missing}, not an empty string", fix)
    return value


def _read_words(lexer: Lexer, partial: PartialQuery, *, ends_at_comma: bool) -> str:
    start = lexer.position
    lexer.position = partial.find_text_end(lexer, start, ends_at_comma=ends_at_comma)
    return " ".join(lexer.text[start : lexer.position].split())


def read_whole_number(lexer: Lexer, clause: Clause, low: int, high: int) -> int:
    """Read a whole number from `low` to `high`."""
    start, word = lexer.position, _read_number_like(lexer)
    if _WHOLE_NUMBER.match(word) and low <= int(word) <= high:
        return int(word)
    raise _not_a_number(lexer, clause, start, word, f"{find_nearest_number(word, low, high, max(low, 1)):.0f}")


def read_fraction(lexer: Lexer, clause: Clause) -> float:
    """Read a number from 0 to 1."""
    start, word = lexer.position, _read_number_like(lexer)
    if _FRACTION.match(word) and (number := float(word)) <= 1:
        return number
    raise _not_a_number(lexer, clause, start, word, f"{find_nearest_number(word, 0, 1, 0.5):g}")


def _read_number_like(lexer: Lexer) -> str:
    """Read a word where a number is expected. It may contain commas, as in 10,000."""
    match = _NUMBER_LIKE.match(lexer.text, lexer.position, lexer.end)
    if match is None:
        return lexer.read_word()
    lexer.position = match.end()
    return match[0]


def _not_a_number(lexer: Lexer, clause: Clause, start: int, word: str, nearest: str) -> ParseError:
    if not word or word.upper() in CLAUSE_WORDS:
        return missing_value(lexer, clause, start, nearest)
    message = f"{clause.name} takes {clause.expected}, not {show_word(word)}"
    return ParseError(start, message, Fix(start, lexer.position, nearest))


def missing_value(lexer: Lexer, clause: Clause, offset: int, example: str = "") -> ParseError:
    """Return the error for a clause without a value. The fix inserts the example."""
    space = "" if lexer.text[offset - 1 : offset].isspace() or lexer.text[offset - 1 : offset] == "=" else " "
    fix = Fix(offset, offset, f"{space}{example}{' ' if offset < lexer.end else ''}") if example else None
    return ParseError(offset, f"{clause.name} needs {clause.expected}", fix)


def read_choice(lexer: Lexer, clause: Clause, choices: Sequence[str]) -> str:
    """Read one of a few words, and return it in lower case."""
    start = lexer.position
    word = _read_word_or_string(lexer)
    if word.lower() in choices:
        return word.lower()
    if not word:
        raise missing_value(lexer, clause, start, choices[0])
    nearest = find_nearest(word, choices)
    fix = Fix(start, lexer.position, nearest or choices[0])
    raise ParseError(start, f"{clause.name} takes {clause.expected}, not {show_word(word)}", fix, nearest)


def read_time(lexer: Lexer, clause: Clause) -> str:
    """Read a time: a string, or the longest sequence of words that is one. Return it as written."""
    start = lexer.position
    if lexer.is_at_quote():
        text = " ".join(lexer.read_string().split())
        if is_time(text):
            return text
    elif (end := _match_time(lexer, start)) is not None:
        lexer.position = end
        return " ".join(lexer.text[start:end].split())
    else:
        text = lexer.read_word()
        if not text or text.upper() in CLAUSE_WORDS:
            raise missing_value(lexer, clause, start, "yesterday")
    raise ParseError(start, f"{clause.name} takes {clause.expected}, not {show_word(text)}")


def is_time(text: str) -> bool:
    """Return whether a text is a time that SINCE and UNTIL accept."""
    # Imported here because the word lists are slow to load, and few queries need them.
    from rem.query.time_phrases import resolve_time

    return resolve_time(text, _ANY_DAY) is not None


def _match_time(lexer: Lexer, offset: int) -> int | None:
    """Return the end of the time at an offset, which is up to five words long, or None."""
    ends: list[int] = []
    for match in islice(_TIME_WORD.finditer(lexer.text, offset, lexer.end), MAX_TIME_WORDS):
        if lexer.text[offset : match.start()].strip() and lexer.peek_keyword(match.start()) in CLAUSE_WORDS:
            break
        if not ends and not match[0][0].isdigit() and not _may_begin_time(match[0].casefold()):
            return None
        ends.append(match.end())
    return next((end for end in reversed(ends) if is_time(lexer.text[offset:end])), None)


@lru_cache(maxsize=1024)
def _may_begin_time(word: str) -> bool:
    """Return whether a time can begin with a word. This is faster than to read the time."""
    from rem.query.time_phrases import is_time_word

    return is_time_word(word)


def read_table_name(lexer: Lexer, clause: Clause) -> str:
    """Read the name of a table."""
    return _read_name(lexer, clause, _TABLE_NAME, "resources")


def read_field_name(lexer: Lexer, clause: Clause) -> str:
    """Read the name of a field, or a path inside a JSON field."""
    return _read_name(lexer, clause, _FIELD_NAME, "content")


def _read_name(lexer: Lexer, clause: Clause, pattern: re.Pattern[str], example: str) -> str:
    start = lexer.position
    is_quoted = lexer.is_at_quote()
    word = _read_word_or_string(lexer)
    if not word or (not is_quoted and word.upper() in CLAUSE_WORDS):
        raise missing_value(lexer, clause, start, example)
    if not pattern.match(word):
        raise ParseError(start, f"{clause.name} takes {clause.expected}, not {show_word(word)}")
    return word


def _read_word_or_string(lexer: Lexer) -> str:
    return lexer.read_string() if lexer.is_at_quote() else lexer.read_word()


class OrderTerm(NamedTuple):
    """A field to order by."""

    field: str
    descending: bool = False


def read_order_by(lexer: Lexer, clause: Clause) -> str:
    """Read the fields of ORDER BY, and return them as written."""
    start = lexer.position
    if lexer.is_at_quote():
        text = lexer.read_string()
        terms = parse_order_by(text)
    else:
        terms, lexer.position = _match_order_terms(lexer.text, start, lexer.end)
        text = lexer.text[start : lexer.position]
    if not terms or any(term.field.upper() in _NOT_ORDER_FIELDS for term in terms):
        raise missing_value(lexer, clause, start, "weight")
    return " ".join(text.split())


def parse_order_by(order_by: str) -> list[OrderTerm]:
    """Parse the `order_by` of a tree. Return an empty list if it is not valid."""
    terms, end = _match_order_terms(order_by, 0, len(order_by))
    return [] if order_by[end:].strip() else terms


def _match_order_terms(text: str, start: int, end: int) -> tuple[list[OrderTerm], int]:
    """Return the terms at an offset, and where they end. Return no terms if one is missing after a comma."""
    terms = []
    offset = start
    while match := _match_order_term(text, offset, end):
        is_descending = match["sign"] == "-" or (match["direction"] or "").upper() == "DESC"
        terms.append(OrderTerm(match["field"], is_descending))
        comma = _match_comma(text, match.end(), end)
        if comma is None:
            return terms, match.end()
        offset = comma.end()
    return [], offset
