"""WHERE: from its text to the condition that it states."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NoReturn, cast

from rem.db.conditions import And, Between, Compare, Condition, In, IsNull, Not, Operator, Or
from rem.query.language.grammar import CLAUSE_WORDS, CONDITION_ENDS, VERBS, Clause
from rem.query.language.lexer import ConditionToken, Lexer, check_depth, offset_in_raw, tokenize_condition
from rem.query.language.operands import missing
from rem.query.language.sql_lexer import find_fragment_end
from rem.query.language.syntax_errors import Fix, ParseError, find_nearest, quote, show_word
from rem.query.tree import Filter

_LONGEST_NUMBER = 300
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
_ESCAPES = {quote: re.compile(rf"\\([\\\"'])|{quote}{quote}") for quote in ("'", '"')}
_CLOSING = {"(": ")", "[": "]"}


def describe_condition_grammar() -> str:
    """The grammar of a condition as the docs show it."""
    comparisons = " | ".join(_COMPARISONS)
    return "\n".join(
        [
            "condition   all (OR all)*",
            "all         one (AND one)*",
            "one         NOT one | ( condition ) | comparison",
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
    """The condition that a text states from end to end. Raises a Problem with its place in the text."""
    tokens, end = tokenize_condition(text, 0, len(text))
    if end < len(text.rstrip()):
        raise ParseError(end, f"Unexpected {show_word(text[end])} in the condition")
    return parse_tokens(text, tokens)


def parse_tokens(text: str, tokens: Sequence[ConditionToken], clause_words: Sequence[str] = ()) -> Condition:
    """The condition that tokens state; the clause words are what may come behind it."""
    return _ConditionParser(text, tokens, clause_words).whole()


class _ConditionParser:
    def __init__(self, text: str, tokens: Sequence[ConditionToken], clause_words: Sequence[str]) -> None:
        self._text = text
        self._tokens = tokens
        self._clause_words = clause_words
        self._next = 0
        self._depth = 0

    def whole(self) -> Condition:
        condition = self._any()
        token = self._token
        if token.kind != "end":
            near = find_nearest(token.text, ("AND", "OR", *self._clause_words)) if token.kind == "word" else None
            fix = Fix(token.start, token.end, near) if near else None
            raise self._problem(f"Expected AND, OR or the end of the condition, not {self._seen()}", fix, near)
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

    def _any(self) -> Condition:
        return self._joined("OR", self._all, Or)

    def _all(self) -> Condition:
        return self._joined("AND", self._one, And)

    def _joined(
        self, word: str, part: Callable[[], Condition], join: Callable[[Sequence[Condition]], Condition]
    ) -> Condition:
        first = part()
        if not self._accept(word):
            return first
        parts = [first, part()]
        while self._accept(word):
            parts.append(part())
        return join(tuple(parts))

    def _one(self) -> Condition:
        token = self._token
        if token.kind == "word" and token.text == "NOT":
            self._take()
            return Not(self._deeper(self._one))
        if token.kind == "sign" and token.text == "(":
            self._take()
            condition = self._deeper(self._any)
            if not self._accept(")", "sign"):
                raise self._problem(f"Expected AND, OR or ')', not {self._seen()}")
            return condition
        return self._comparison()

    def _deeper(self, part: Callable[[], Condition]) -> Condition:
        self._depth += 1
        check_depth(self._depth, self._token)
        condition = part()
        self._depth -= 1
        return condition

    def _comparison(self) -> Condition:
        token = self._token
        if token.kind in ("string", "number") and self._is_membership():
            return self._membership()
        field = self._field()
        operator = self._token
        if operator.kind == "sign" and operator.text in _COMPARISONS:
            self._take()
            return self._compared(field, _COMPARISONS[operator.text], operator)
        if operator.kind != "word":
            raise self._no_operator(token)
        negated = self._accept("NOT")
        condition = self._worded(field, token)
        return Not(condition) if negated else condition

    def _worded(self, field: str, field_token: ConditionToken) -> Condition:
        """What a word states about a field: IN, BETWEEN, LIKE, IS, CONTAINS."""
        operator = self._token
        self._next += 1
        match operator.text if operator.kind == "word" else "":
            case "IN":
                return In(field, self._values(null=True))
            case "BETWEEN":
                return self._between(field)
            case "LIKE" | "ILIKE":
                return self._like(field, cast(Operator, operator.text))
            case "CONTAINS":
                many = self._token.kind == "sign"
                return Compare(field, "CONTAINS", list(self._values()) if many else self._value())
            case "IS" if self._tokens[self._next - 2].text != "NOT":
                return self._is(field)
        self._next -= 1
        raise self._no_operator(field_token)

    def _is_membership(self) -> bool:
        """Whether this is `'x' IN tags`: a value, IN and a field, not a list."""
        ahead = self._tokens[self._next + 1 : self._next + 4]
        if ahead and ahead[0][:2] == ("word", "NOT"):
            ahead = ahead[1:]
        return len(ahead) > 1 and ahead[0][:2] == ("word", "IN") and ahead[1].kind in ("word", "string")

    def _membership(self) -> Condition:
        value = self._value()
        negated = self._accept("NOT")
        self._take()
        condition = Compare(self._field(), "CONTAINS", value)
        return Not(condition) if negated else condition

    def _between(self, field: str) -> Condition:
        low = self._value()
        if not self._accept("AND"):
            raise self._problem(f"BETWEEN needs AND and a second value, not {self._seen()}")
        return Between(field, low, self._value())

    def _like(self, field: str, operator: Operator) -> Condition:
        token = self._token
        value = self._value()
        if not isinstance(value, str):
            fix = Fix(token.start, token.end, f"'{value}%'")
            raise ParseError(token.start, f"{operator} needs a pattern in quotes, such as 'report%'", fix)
        return Compare(field, operator, value)

    def _is(self, field: str) -> Condition:
        negated = self._accept("NOT")
        if not self._accept("NULL"):
            fix = Fix(self._tokens[self._next - 1].start, self._token.start, "= ") if not negated else None
            raise self._problem(f"IS takes NULL or NOT NULL, not {self._seen()}", fix)
        return Not(IsNull(field)) if negated else IsNull(field)

    def _compared(self, field: str, operator: Operator, sign: ConditionToken) -> Condition:
        if self._accept("NULL"):
            if operator not in ("=", "<>"):
                raise ParseError(sign.start, f"{operator} compares nothing with NULL: write IS NULL or IS NOT NULL")
            return IsNull(field) if operator == "=" else Not(IsNull(field))
        if field in _LIST_FIELDS and operator == "=":
            before, after = self._text[sign.start - 1], self._text[sign.end : sign.end + 1]
            glue = ["" if character.isspace() else " " for character in (before, after)]
            fix = Fix(sign.start, sign.end, f"{glue[0]}CONTAINS{glue[1]}")
            raise ParseError(
                sign.start, f"{field} is a list: write {field} CONTAINS 'x', or {field} IN ('x', 'y')", fix
            )
        return Compare(field, operator, self._value())

    def _field(self) -> str:
        token = self._token
        if token.kind == "word" and token.text not in _RESERVED:
            self._take()
            if self._token.kind == "sign" and self._token.text == "(":
                message = "A condition calls no functions: compare a field with a value (times are strings in quotes)"
                raise ParseError(token.start, message)
            # Columns are lower-case, as in SQL; what is inside a JSON field is as it was stored.
            column, dot, path = self._text[token.start : token.end].partition(".")
            return f"{column.lower()}{dot}{path}"
        if token.kind == "string":
            self._take()
            return _string(token)
        if token.kind == "end" and self._next == 0:
            raise self._problem("WHERE needs a condition, such as category = 'docs'")
        raise self._problem(f"Expected a field, such as category or metadata.path, not {self._seen()}")

    def _values(self, *, null: bool = False) -> tuple[Any, ...]:
        opening = self._token
        if opening.kind != "sign" or opening.text not in _CLOSING:
            fix = Fix(opening.start, opening.end, f"({self._text[opening.start : opening.end]})")
            raise self._problem(f"Expected a list of values, such as ('a', 'b'), not {self._seen()}", fix)
        self._take()
        values: list[Any] = []
        while not values or self._accept(",", "sign"):
            values.append(None if null and self._accept("NULL") else self._value())
        if not self._accept(_CLOSING[opening.text], "sign"):
            raise self._problem(f"Expected ',' or '{_CLOSING[opening.text]}', not {self._seen()}")
        return tuple(values)

    def _value(self) -> Any:
        token = self._token
        if token.kind == "string":
            self._take()
            return _string(token)
        if token.kind == "number":
            self._take()
            return _number(token)
        if token.kind == "word" and token.text in _CONSTANTS:
            self._take()
            return _CONSTANTS[token.text]
        written = self._text[token.start : token.end]
        if token.kind == "word" and token.text not in _RESERVED:
            fix = Fix(token.start, token.end, f"'{written}'")
            raise self._problem(f"Expected a value, not {show_word(written)}: text stands in quotes", fix)
        raise self._problem(f"Expected a value (a string in quotes, a number, TRUE or FALSE), not {self._seen()}")

    def _no_operator(self, field: ConditionToken) -> ParseError:
        token = self._token
        name = self._text[field.start : field.end]
        near = None
        if token.kind == "word":
            near = find_nearest(token.text, (word for word in _WORD_OPERATORS if " " not in word))
        elif token.text == "==":
            near = "="
        hint = ""
        if self._text.startswith("->", token.start):
            hint = ": what is inside a JSON field is written with dots, such as metadata.source"
        fix = Fix(token.start, token.end, near) if near else None
        operators = ", ".join((*_COMPARISONS, *_WORD_OPERATORS))
        message = f"Expected an operator after {show_word(name)}, not {self._seen()}{hint} (operators: {operators})"
        return self._problem(message, fix, near)

    def _seen(self) -> str:
        token = self._token
        return "the end" if token.kind == "end" else show_word(self._text[token.start : token.end])

    def _problem(self, message: str, fix: Fix | None = None, near: str | None = None) -> ParseError:
        return ParseError(self._token.start, message, fix, near)


def _string(token: ConditionToken) -> str:
    """What a string says: a quote in it is doubled, as in SQL, or has a backslash before it."""
    quote, inner = token.text[0], token.text[1:-1]
    if "\\" not in inner and quote not in inner:
        return inner
    return _ESCAPES[quote].sub(lambda escape: escape[1] or quote, inner)


def _number(token: ConditionToken) -> int | float:
    if len(token.text) > _LONGEST_NUMBER:
        raise ParseError(token.start, f"The number has more than {_LONGEST_NUMBER} digits")
    if token.text.lstrip("+-").isdigit():
        return int(token.text)
    number = float(token.text)
    if not math.isfinite(number):
        raise ParseError(token.start, f"{token.text} is too large for a number")
    return number


_QUOTES = ('"', "'")
_OPERATORS = frozenset({"NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS", "CONTAINS"})
_INNER_ENDS = CONDITION_ENDS | VERBS["TRAVERSE"].by_word.keys() - {"FROM"}
_SQL_ENDS = frozenset(VERBS["SQL"].by_word) - {"FROM", "IN"}


def read_filter(lexer: Lexer, *, inner: bool) -> Filter:
    """Read the condition of a SEARCH; `inner` if it is in a TRAVERSE without parentheses, whose clauses end it too."""
    start = lexer.at
    if lexer.text[start : start + 1] in _QUOTES:
        text = lexer.read_string()
        try:
            return Filter(text, parse_condition(text))
        except ParseError as problem:
            if not _operator_follows(lexer):
                _raise_in_string(lexer, start, problem)
        lexer.at = start
    return _read_plain(lexer, _INNER_ENDS if inner else CONDITION_ENDS)


def can_print_unquoted(text: str) -> bool:
    """Whether a condition can be printed without quotes around it."""
    if text != text.strip() or text[0] in _QUOTES:
        return False
    return tokenize_condition(text, 0, len(text), _INNER_ENDS).end == len(text)


def _operator_follows(lexer: Lexer) -> bool:
    """Whether the string was a field or value at the start of a plain condition."""
    end = lexer.at
    follower = lexer.skip_spaces()
    word = lexer.peek_keyword(lexer.at)
    lexer.at, at = end, lexer.at
    return word in _OPERATORS or (follower in ("=", "<", ">", "!") and at < lexer.end)


def _raise_in_string(lexer: Lexer, start: int, problem: ParseError) -> NoReturn:
    """The problem at its place in the whole query."""
    quote = lexer.text[start]
    raw = lexer.text[start + 1 : lexer.at - 1]
    fix = problem.fix
    if fix is not None:
        replacement = fix.text.replace(quote, f"\\{quote}")
        first, last = (start + 1 + offset_in_raw(raw, place) for place in (fix.start, fix.end))
        fix = Fix(first, last, replacement)
    raise ParseError(start + 1 + offset_in_raw(raw, problem.position), problem.message, fix) from None


def _read_plain(lexer: Lexer, ends: Collection[str]) -> Filter:
    start = lexer.at
    tokens, end = tokenize_condition(lexer.text, start, lexer.end, ends)
    try:
        condition = parse_tokens(lexer.text, tokens, sorted(ends))
    except ParseError as problem:
        problem.fix = problem.fix or _quoted_condition(lexer, start, problem.position)
        raise
    lexer.at = end
    return Filter(lexer.text[tokens[0].start : end], condition)


def _quoted_condition(lexer: Lexer, start: int, position: int) -> Fix | None:
    """A clause that does not end a condition comes behind one in quotes, and so does a field with a clause's name."""
    if lexer.peek_keyword(position) not in CLAUSE_WORDS:
        return None
    end = position if position > start else lexer.end
    glue = " " if end < lexer.end else ""
    return Fix(start, end, quote(lexer.text[start:end].strip()) + glue)


def read_sql_fragment(lexer: Lexer, clause: Clause) -> str:
    """Read the condition or the order of `SQL table …`."""
    start = lexer.at
    if lexer.text[start : start + 1] in _QUOTES:
        text = lexer.read_string()
        if not lexer.skip_spaces() or lexer.text[lexer.at] == ")" or lexer.peek_keyword(lexer.at) in _SQL_ENDS:
            if find_fragment_end(text, 0, len(text), comments=False) < len(text):
                raise ParseError(start, f"{clause.name} takes {clause.expected}, and this is more than that")
            return text.strip() or _no_value(lexer, clause, start)
        lexer.at = start
    lexer.at = find_fragment_end(lexer.text, start, lexer.end, _SQL_ENDS, comments=False)
    return lexer.text[start : lexer.at].strip() or _no_value(lexer, clause, start)


def _no_value(lexer: Lexer, clause: Clause, start: int) -> NoReturn:
    raise missing(lexer, clause, start)
