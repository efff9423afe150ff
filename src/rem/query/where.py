"""Parse the conditions of WHERE."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, cast

from rem.db.conditions import And, Between, Compare, Condition, In, IsNull, Not, Operator, Or
from rem.query.grammar import CLAUSE_WORDS, CONDITION_ENDS, VERBS, Clause
from rem.query.lexer import (
    QUOTES,
    ConditionToken,
    Lexer,
    check_condition_depth,
    offset_in_raw,
    tokenize_condition,
)
from rem.query.operands import missing_value
from rem.query.sql_lexer import find_fragment_end
from rem.query.syntax_errors import Fix, ParseError, find_nearest, quote, show_word
from rem.query.tree import Filter

MAX_NUMBER_CHARS = 300
"""A longer number fits no column."""
_COMPARISONS: Final[dict[str, Operator]] = {
    "=": "=",
    "!=": "<>",
    "<>": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_WORD_OPERATORS = ("IN", "NOT IN", "BETWEEN", "NOT BETWEEN", "LIKE", "ILIKE", "CONTAINS", "IS NULL", "IS NOT NULL")
_RESERVED = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "CONTAINS", "IS", "NULL", "TRUE", "FALSE"})
_CONSTANTS = {"TRUE": True, "FALSE": False}
_LIST_FIELDS = frozenset({"tags"})
_ESCAPES = {mark: re.compile(rf"\\([\\\"'])|{mark}{mark}") for mark in ("'", '"')}
_CLOSING_BRACKETS = {"(": ")", "[": "]"}
_FIRST_OPERATOR_WORDS = frozenset({"NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "CONTAINS"})
_INNER_END_WORDS = CONDITION_ENDS | VERBS["TRAVERSE"].by_word.keys() - {"FROM"}
_SQL_END_WORDS = frozenset(VERBS["SQL"].by_word) - {"FROM", "IN"}


def describe_condition_grammar() -> str:
    """Return the grammar of conditions as the docs show it."""
    comparisons = " | ".join(_COMPARISONS)
    return "\n".join(
        [
            "condition   conjunction (OR conjunction)*",
            "conjunction term (AND term)*",
            "term        NOT term | ( condition ) | comparison",
            f"comparison  field ({comparisons}) value",
            "          | field [NOT] IN (value, …)",
            "          | field [NOT] BETWEEN value AND value",
            "          | field [NOT] (LIKE | ILIKE) string",
            "          | field IS [NOT] NULL",
            "          | field [NOT] CONTAINS (value | (value, …)) | value [NOT] IN field",
            "field       name | name.path",
            f"value       string | number | {' | '.join(_CONSTANTS)}",
        ]
    )


def parse_condition(text: str) -> Condition:
    """Parse a text that is one condition. Raise ParseError with the offset of the first mistake."""
    tokens, end = tokenize_condition(text, 0, len(text))
    if end < len(text.rstrip()):
        raise ParseError(end, f"Unexpected {show_word(text[end])} in the condition")
    return _ConditionParser(text, tokens).parse()


class _ConditionParser:
    """Parses the tokens of one condition. `clause_words` are the keywords that may follow it."""

    def __init__(self, text: str, tokens: Sequence[ConditionToken], clause_words: Sequence[str] = ()) -> None:
        self._text = text
        self._tokens = tokens
        self._clause_words = clause_words
        self._next = 0
        self._depth = 0

    def parse(self) -> Condition:
        """Parse all tokens. Raise ParseError at the first mistake."""
        condition = self._parse_condition()
        token = self._token
        if token.kind != "end":
            nearest = find_nearest(token.text, ("AND", "OR", *self._clause_words)) if token.kind == "word" else None
            fix = Fix(token.start, token.end, nearest) if nearest else None
            raise self._error(f"Expected AND, OR or the end of the condition, not {self._show_token()}", fix, nearest)
        return condition

    @property
    def _token(self) -> ConditionToken:
        return self._tokens[self._next]

    def _take(self) -> ConditionToken:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _accept(self, text: str, kind: str = "word") -> bool:
        token = self._tokens[self._next]
        if token.text == text and token.kind == kind:
            self._next += 1
            return True
        return False

    def _parse_condition(self) -> Condition:
        return self._parse_joined("OR", self._parse_conjunction, Or)

    def _parse_conjunction(self) -> Condition:
        return self._parse_joined("AND", self._parse_term, And)

    def _parse_joined(
        self, word: str, part: Callable[[], Condition], join: Callable[[Sequence[Condition]], Condition]
    ) -> Condition:
        first = part()
        if not self._accept(word):
            return first
        parts = [first, part()]
        while self._accept(word):
            parts.append(part())
        return join(tuple(parts))

    def _parse_term(self) -> Condition:
        token = self._token
        if token.kind == "word" and token.text == "NOT":
            self._take()
            return Not(self._parse_nested(self._parse_term))
        if token.kind == "sign" and token.text == "(":
            self._take()
            condition = self._parse_nested(self._parse_condition)
            if not self._accept(")", "sign"):
                raise self._error(f"Expected AND, OR or ')', not {self._show_token()}")
            return condition
        return self._parse_comparison()

    def _parse_nested(self, part: Callable[[], Condition]) -> Condition:
        self._depth += 1
        check_condition_depth(self._depth, self._token)
        condition = part()
        self._depth -= 1
        return condition

    def _parse_comparison(self) -> Condition:
        token = self._token
        if token.kind in ("string", "number") and self._is_membership():
            return self._parse_membership()
        field = self._parse_field()
        operator = self._token
        if operator.kind == "sign" and operator.text in _COMPARISONS:
            self._take()
            return self._parse_value_comparison(field, _COMPARISONS[operator.text], operator)
        if operator.kind != "word":
            raise self._missing_operator(token)
        negated = self._accept("NOT")
        condition = self._parse_word_operator(field, token)
        return Not(condition) if negated else condition

    def _parse_word_operator(self, field: str, field_token: ConditionToken) -> Condition:
        """Parse the operators that are words: IN, BETWEEN, LIKE, ILIKE, CONTAINS, IS."""
        operator = self._token
        self._next += 1
        match operator.text if operator.kind == "word" else "":
            case "IN":
                return In(field, self._parse_list(allow_null=True))
            case "BETWEEN":
                return self._parse_between(field)
            case "LIKE" | "ILIKE":
                return self._parse_like(field, cast(Operator, operator.text))
            case "CONTAINS":
                is_list = self._token.kind == "sign"
                return Compare(field, "CONTAINS", list(self._parse_list()) if is_list else self._parse_value())
            case "IS" if self._tokens[self._next - 2].text != "NOT":
                return self._parse_is_null(field)
        self._next -= 1
        raise self._missing_operator(field_token)

    def _is_membership(self) -> bool:
        """Return whether a membership such as `'x' IN tags` follows: a value, IN and a field."""
        ahead = self._tokens[self._next + 1 : self._next + 4]
        if ahead and ahead[0][:2] == ("word", "NOT"):
            ahead = ahead[1:]
        return len(ahead) > 1 and ahead[0][:2] == ("word", "IN") and ahead[1].kind in ("word", "string")

    def _parse_membership(self) -> Condition:
        value = self._parse_value()
        negated = self._accept("NOT")
        self._take()
        condition = Compare(self._parse_field(), "CONTAINS", value)
        return Not(condition) if negated else condition

    def _parse_between(self, field: str) -> Condition:
        low = self._parse_value()
        if not self._accept("AND"):
            raise self._error(f"BETWEEN needs AND and a second value, not {self._show_token()}")
        return Between(field, low, self._parse_value())

    def _parse_like(self, field: str, operator: Operator) -> Condition:
        token = self._token
        value = self._parse_value()
        if not isinstance(value, str):
            fix = Fix(token.start, token.end, f"'{value}%'")
            raise ParseError(token.start, f"{operator} needs a pattern in quotes, such as 'report%'", fix)
        return Compare(field, operator, value)

    def _parse_is_null(self, field: str) -> Condition:
        negated = self._accept("NOT")
        if not self._accept("NULL"):
            fix = Fix(self._tokens[self._next - 1].start, self._token.start, "= ") if not negated else None
            raise self._error(f"IS takes NULL or NOT NULL, not {self._show_token()}", fix)
        return Not(IsNull(field)) if negated else IsNull(field)

    def _parse_value_comparison(self, field: str, operator: Operator, sign: ConditionToken) -> Condition:
        if self._accept("NULL"):
            if operator not in ("=", "<>"):
                raise ParseError(sign.start, f"{operator} compares nothing with NULL: write IS NULL or IS NOT NULL")
            return IsNull(field) if operator == "=" else Not(IsNull(field))
        if field in _LIST_FIELDS and operator == "=":
            before, after = self._text[sign.start - 1], self._text[sign.end : sign.end + 1]
            spaces = ["" if character.isspace() else " " for character in (before, after)]
            fix = Fix(sign.start, sign.end, f"{spaces[0]}CONTAINS{spaces[1]}")
            raise ParseError(
                sign.start, f"{field} is a list: write {field} CONTAINS 'x', or {field} IN ('x', 'y')", fix
            )
        return Compare(field, operator, self._parse_value())

    def _parse_field(self) -> str:
        token = self._token
        if token.kind == "word" and token.text not in _RESERVED:
            self._take()
            if self._token.kind == "sign" and self._token.text == "(":
                message = "A condition calls no functions: compare a field with a value (times are strings in quotes)"
                raise ParseError(token.start, message)
            # Column names are folded to lower case, as in SQL. Paths inside JSON are case-sensitive.
            column, dot, path = self._text[token.start : token.end].partition(".")
            return f"{column.lower()}{dot}{path}"
        if token.kind == "string":
            self._take()
            return _unquote(token)
        if token.kind == "end" and self._next == 0:
            raise self._error("WHERE needs a condition, such as category = 'docs'")
        raise self._error(f"Expected a field, such as category or metadata.path, not {self._show_token()}")

    def _parse_list(self, *, allow_null: bool = False) -> tuple[Any, ...]:
        opening = self._token
        if opening.kind != "sign" or opening.text not in _CLOSING_BRACKETS:
            fix = Fix(opening.start, opening.end, f"({self._text[opening.start : opening.end]})")
            raise self._error(f"Expected a list of values, such as ('a', 'b'), not {self._show_token()}", fix)
        self._take()
        values: list[Any] = []
        while not values or self._accept(",", "sign"):
            values.append(None if allow_null and self._accept("NULL") else self._parse_value())
        if not self._accept(_CLOSING_BRACKETS[opening.text], "sign"):
            raise self._error(f"Expected ',' or '{_CLOSING_BRACKETS[opening.text]}', not {self._show_token()}")
        return tuple(values)

    def _parse_value(self) -> Any:
        token = self._token
        if token.kind == "string":
            self._take()
            return _unquote(token)
        if token.kind == "number":
            self._take()
            return _parse_number(token)
        if token.kind == "word" and token.text in _CONSTANTS:
            self._take()
            return _CONSTANTS[token.text]
        written = self._text[token.start : token.end]
        if token.kind == "word" and token.text not in _RESERVED:
            fix = Fix(token.start, token.end, f"'{written}'")
            raise self._error(f"Expected a value, not {show_word(written)}: text stands in quotes", fix)
        raise self._error(f"Expected a value (a string in quotes, a number, TRUE or FALSE), not {self._show_token()}")

    def _missing_operator(self, field: ConditionToken) -> ParseError:
        token = self._token
        name = self._text[field.start : field.end]
        nearest = None
        if token.kind == "word":
            nearest = find_nearest(token.text, (word for word in _WORD_OPERATORS if " " not in word))
        elif token.text == "==":
            nearest = "="
        hint = ""
        if self._text.startswith("->", token.start):
            hint = ": what is inside a JSON field is written with dots, such as metadata.source"
        fix = Fix(token.start, token.end, nearest) if nearest else None
        operators = ", ".join((*_COMPARISONS, *_WORD_OPERATORS))
        message = (
            f"Expected an operator after {show_word(name)}, not {self._show_token()}{hint} (operators: {operators})"
        )
        return self._error(message, fix, nearest)

    def _show_token(self) -> str:
        token = self._token
        return "the end" if token.kind == "end" else show_word(self._text[token.start : token.end])

    def _error(self, message: str, fix: Fix | None = None, nearest: str | None = None) -> ParseError:
        return ParseError(self._token.start, message, fix, nearest)


def _unquote(token: ConditionToken) -> str:
    """Return the value of a string. A quote in it is doubled, as in SQL, or has a backslash before it."""
    mark, inner = token.text[0], token.text[1:-1]
    if "\\" not in inner and mark not in inner:
        return inner
    return _ESCAPES[mark].sub(lambda escape: escape[1] or mark, inner)


def _parse_number(token: ConditionToken) -> int | float:
    if len(token.text) > MAX_NUMBER_CHARS:
        raise ParseError(token.start, f"The number has more than {MAX_NUMBER_CHARS} digits")
    if token.text.lstrip("+-").isdigit():
        return int(token.text)
    number = float(token.text)
    if not math.isfinite(number):
        raise ParseError(token.start, f"{token.text} is too large for a number")
    return number


def read_filter(lexer: Lexer, *, is_inner: bool) -> Filter:
    """Read the condition of a SEARCH, in quotes or without.

    `is_inner`: the SEARCH stands in a TRAVERSE without parentheses, and the clauses of TRAVERSE end the condition too.
    """
    start = lexer.position
    if lexer.is_at_quote():
        text = lexer.read_string()
        try:
            return Filter(text, parse_condition(text))
        except ParseError as error:
            if not _is_before_operator(lexer):
                raise _move_into_query(lexer, start, error) from None
        lexer.position = start
    return _read_unquoted(lexer, _INNER_END_WORDS if is_inner else CONDITION_ENDS)


def can_print_unquoted(text: str) -> bool:
    """Return whether a condition parses to the same condition without quotes around it."""
    if text != text.strip() or text[0] in QUOTES:
        return False
    return tokenize_condition(text, 0, len(text), _INNER_END_WORDS).end == len(text)


def _is_before_operator(lexer: Lexer) -> bool:
    """Return whether an operator follows, so that the string before it is a field or a value, not the condition."""
    start = lexer.position
    next_character = lexer.skip_spaces()
    word = lexer.peek_keyword(lexer.position)
    lexer.position, offset = start, lexer.position
    return word in _FIRST_OPERATOR_WORDS or (next_character in ("=", "<", ">", "!") and offset < lexer.end)


def _move_into_query(lexer: Lexer, start: int, error: ParseError) -> ParseError:
    """Return an error about a quoted condition with the offsets in the whole query."""
    mark = lexer.text[start]
    raw = lexer.text[start + 1 : lexer.position - 1]
    fix = error.fix
    if fix is not None:
        replacement = fix.text.replace(mark, f"\\{mark}")
        fix_start, fix_end = (start + 1 + offset_in_raw(raw, offset) for offset in (fix.start, fix.end))
        fix = Fix(fix_start, fix_end, replacement)
    return ParseError(start + 1 + offset_in_raw(raw, error.position), error.message, fix)


def _read_unquoted(lexer: Lexer, end_words: Collection[str]) -> Filter:
    start = lexer.position
    tokens, end = tokenize_condition(lexer.text, start, lexer.end, end_words)
    try:
        condition = _ConditionParser(lexer.text, tokens, sorted(end_words)).parse()
    except ParseError as error:
        error.fix = error.fix or _quote_condition(lexer, start, error.position)
        raise
    lexer.position = end
    return Filter(lexer.text[tokens[0].start : end], condition)


def _quote_condition(lexer: Lexer, start: int, position: int) -> Fix | None:
    """Return the fix that quotes the condition before a clause that does not end it, or a field named like a clause."""
    if lexer.peek_keyword(position) not in CLAUSE_WORDS:
        return None
    end = position if position > start else lexer.end
    space = " " if end < lexer.end else ""
    return Fix(start, end, quote(lexer.text[start:end].strip()) + space)


def read_sql_fragment(lexer: Lexer, clause: Clause) -> str:
    """Read the condition or the order of `SQL table …`, in quotes or without."""
    start = lexer.position
    if lexer.is_at_quote():
        text = lexer.read_string()
        is_last = not lexer.skip_spaces() or lexer.text[lexer.position] == ")"
        if is_last or lexer.peek_keyword(lexer.position) in _SQL_END_WORDS:
            if find_fragment_end(text, 0, len(text), allow_comments=False) < len(text):
                raise ParseError(start, f"{clause.name} takes {clause.expected}, and this is more than that")
            return _require_value(lexer, clause, start, text)
        lexer.position = start
    lexer.position = find_fragment_end(lexer.text, start, lexer.end, _SQL_END_WORDS, allow_comments=False)
    return _require_value(lexer, clause, start, lexer.text[start : lexer.position])


def _require_value(lexer: Lexer, clause: Clause, start: int, text: str) -> str:
    if not text.strip():
        raise missing_value(lexer, clause, start)
    return text.strip()
