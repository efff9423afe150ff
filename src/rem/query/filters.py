"""The WHERE of a query: in quotes or plain, for SEARCH as a condition, for SQL as text."""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn

from rem.query.condition_tokens import tokens_of
from rem.query.grammar import CLAUSE_WORDS, CONDITION_ENDS, VERBS, Clause
from rem.query.lexer import Lexer, place_in_raw
from rem.query.problems import Fix, Problem
from rem.query.sql import fragment_end
from rem.query.suggestions import in_quotes
from rem.query.tree import Filter
from rem.query.values import missing
from rem.query.where import condition_of_tokens, parse_condition

_QUOTES = ('"', "'")
_OPERATORS = frozenset({"NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "CONTAINS"})
_INNER_ENDS = CONDITION_ENDS | VERBS["TRAVERSE"].by_word.keys() - {"FROM"}
_SQL_ENDS = frozenset(VERBS["SQL"].by_word) - {"FROM", "IN"}


def read_filter(lexer: Lexer, *, inner: bool) -> Filter:
    """Read the condition of a SEARCH; `inner` if it is in a TRAVERSE without parentheses, whose clauses end it too."""
    start = lexer.at
    if lexer.text[start : start + 1] in _QUOTES:
        text = lexer.string()
        try:
            return Filter(text, parse_condition(text))
        except Problem as problem:
            if not _operator_follows(lexer):
                _raise_in_string(lexer, start, problem)
        lexer.at = start
    return _read_plain(lexer, _INNER_ENDS if inner else CONDITION_ENDS)


def fits_unquoted(text: str) -> bool:
    """Whether a condition can be printed without quotes around it."""
    if text != text.strip() or text[0] in _QUOTES:
        return False
    return tokens_of(text, 0, len(text), _INNER_ENDS).end == len(text)


def _operator_follows(lexer: Lexer) -> bool:
    """Whether the string was a field or value at the start of a plain condition."""
    end = lexer.at
    follower = lexer.skip()
    word = lexer.keyword(lexer.at)
    lexer.at, at = end, lexer.at
    return word in _OPERATORS or (follower in ("=", "<", ">", "!") and at < lexer.end)


def _raise_in_string(lexer: Lexer, start: int, problem: Problem) -> NoReturn:
    """The problem at its place in the whole query."""
    quote = lexer.text[start]
    raw = lexer.text[start + 1 : lexer.at - 1]
    fix = problem.fix
    if fix is not None:
        replacement = fix.text.replace(quote, f"\\{quote}")
        first, last = (start + 1 + place_in_raw(raw, place) for place in (fix.start, fix.end))
        fix = Fix(first, last, replacement)
    raise Problem(start + 1 + place_in_raw(raw, problem.position), problem.message, fix) from None


def _read_plain(lexer: Lexer, ends: Collection[str]) -> Filter:
    start = lexer.at
    tokens, end = tokens_of(lexer.text, start, lexer.end, ends)
    try:
        condition = condition_of_tokens(lexer.text, tokens, sorted(ends))
    except Problem as problem:
        problem.fix = problem.fix or _quoted_condition(lexer, start, problem.position)
        raise
    lexer.at = end
    return Filter(lexer.text[tokens[0].start : end], condition)


def _quoted_condition(lexer: Lexer, start: int, position: int) -> Fix | None:
    """A clause that does not end a condition comes behind one in quotes, and so does a field with a clause's name."""
    if lexer.keyword(position) not in CLAUSE_WORDS:
        return None
    end = position if position > start else lexer.end
    glue = " " if end < lexer.end else ""
    return Fix(start, end, in_quotes(lexer.text[start:end].strip()) + glue)


def read_sql(lexer: Lexer, clause: Clause) -> str:
    """Read the condition or the order of `SQL table …`."""
    start = lexer.at
    if lexer.text[start : start + 1] in _QUOTES:
        text = lexer.string()
        if not lexer.skip() or lexer.text[lexer.at] == ")" or lexer.keyword(lexer.at) in _SQL_ENDS:
            if fragment_end(text, 0, len(text), comments=False) < len(text):
                raise Problem(start, f"{clause.name} takes {clause.expected}, and this is more than that")
            return text.strip() or _no_value(lexer, clause, start)
        lexer.at = start
    lexer.at = fragment_end(lexer.text, start, lexer.end, _SQL_ENDS, comments=False)
    return lexer.text[start : lexer.at].strip() or _no_value(lexer, clause, start)


def _no_value(lexer: Lexer, clause: Clause, start: int) -> NoReturn:
    raise missing(lexer, clause, start)
