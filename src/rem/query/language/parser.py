"""From the text of a query to its tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rem.query.language import grammar, operands
from rem.query.language.grammar import CLAUSE_WORDS, MAX_NESTED_QUERIES, TYPE, VERBS, Clause
from rem.query.language.lexer import Lexer
from rem.query.language.mistakes import (
    foreign_clause,
    given_twice,
    query_as_key,
    quoted_word,
    table_twice,
    unexpected,
    unknown_start,
    unknown_verb,
)
from rem.query.language.operands import Operand, PartialQuery, is_meant_as_clause, read_keys, read_text, read_types
from rem.query.language.sql_lexer import NON_SELECT_KEYWORDS, find_fragment_end, is_statement_end, starts_with_select
from rem.query.language.syntax_errors import Fix, ParseError, quote, quote_query_text, to_syntax_error
from rem.query.language.where import read_filter, read_sql_fragment
from rem.query.tree import Fuzzy, Lookup, Query, Search, Sql, Traverse


def build_tree(lexer: Lexer, frame: PartialQuery) -> Query:
    """The tree of a query that has been read to its end."""
    match frame.verb.name:
        case "LOOKUP":
            return Lookup(_items(lexer, frame), **frame.values)
        case "FUZZY":
            return Fuzzy(_items(lexer, frame)[0], **frame.values)
        case "SEARCH":
            return Search(_items(lexer, frame)[0], **frame.values)
        case "TRAVERSE":
            return _traverse(lexer, frame)
    return Sql(_select(lexer, frame))


def _items(lexer: Lexer, frame: PartialQuery) -> tuple[str, ...]:
    if frame.text is None:
        name, example = frame.verb.name, frame.verb.example
        after = frame.at + len(name)
        raise ParseError(frame.at, f"{name} needs {frame.verb.missing}", Fix(after, after, f" {example}"))
    return frame.text.items


def _traverse(lexer: Lexer, frame: PartialQuery) -> Traverse:
    values: dict[str, Any] = dict(frame.values)
    if "start" not in values:
        return Traverse(Lookup(_items(lexer, frame)), **values)
    start = values.pop("start")
    if frame.text is not None:
        values["edge_types"] = _leading_types(lexer, frame, frame.text)
    return Traverse(build_tree(lexer, start) if isinstance(start, PartialQuery) else start, **values)


def _leading_types(lexer: Lexer, frame: PartialQuery, text: Operand) -> tuple[str, ...]:
    """What stands before FROM or WITH are edge types."""
    word, place = frame.places["start"]
    if text.start > place:
        fix = Fix(text.start, text.start, "TYPE ")
        raise ParseError(text.start, f"{word} already says where to start: edge types come after TYPE", fix)
    if "edge_types" in frame.values:
        lexer.at = text.end
        raise given_twice(lexer, TYPE, " ".join(text.items), text.start, "TYPE")
    if text.spaced:
        written = lexer.text[text.start : text.end]
        message = f"Edge types before {word} are single words with commas between them, or strings in quotes"
        raise ParseError(text.start, message, Fix(text.start, text.end, quote(" ".join(written.split()))))
    return text.items


def _select(lexer: Lexer, frame: PartialQuery) -> str:
    """The SELECT that `SQL table …` means."""
    values = frame.values
    if frame.text is not None and "table" in values:
        word, place = frame.places["table"]
        raise ParseError(max(place, frame.text.start), f"The table is given twice, once after {word}")
    table = values.get("table") or _items(lexer, frame)[0]
    parts = [f"SELECT * FROM {table}"]  # noqa: S608  # runs as the SQL that the user may write anyway
    for name, keyword in (("where", "WHERE"), ("order_by", "ORDER BY"), ("limit", "LIMIT")):
        if name in values:
            parts.append(f"{keyword} {values[name]}")
    return " ".join(parts)


_FIXES = 3
_LONGEST_TO_FIX = 5_000
_HAS_SELECT = re.compile(r"\bSELECT\b", re.IGNORECASE)


def parse_query(text: str) -> Query:
    """The tree of a query. A QuerySyntaxError says what is wrong, where, and the nearest valid form if there is one."""
    try:
        return _Parser(text).whole()
    except ParseError as problem:
        raise to_syntax_error(text, problem, _nearest_valid_form(text, problem)) from None


def suggest_quoted_text(text: str) -> str | None:
    """The query with its text in quotes, if a keyword in small letters may be a word of it."""
    quoted = quote_query_text(text) if len(text) <= _LONGEST_TO_FIX else None
    if quoted is None:
        return None
    try:
        _Parser(quoted).whole()
    except ParseError:
        return None
    return quoted


def _nearest_valid_form(text: str, problem: ParseError) -> str | None:
    if len(text) > _LONGEST_TO_FIX:
        return None
    if problem.in_text and (quoted := suggest_quoted_text(text)) is not None:
        return quoted
    return _mended(text, problem) or suggest_quoted_text(text)


def _mended(text: str, problem: ParseError) -> str | None:
    """The text with its mistakes mended one after the other, if that makes it a query."""
    for _ in range(_FIXES):
        if problem.fix is None:
            return None
        text = problem.fix.apply_to(text)
        try:
            _Parser(text).whole()
        except ParseError as next_problem:
            problem = next_problem
        else:
            return text.strip()
    return None


class _Parser:
    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self._parentheses = 0
        self._depth = 0
        self._loose: Operand | None = None
        """The plain words that were read last: a keyword after them may be meant as one of them."""

    def whole(self) -> Query:
        lexer = self._lexer
        lexer.end = len(lexer.text.rstrip().rstrip("; \t\r\n"))
        if not lexer.skip_spaces():
            raise ParseError(0, f"Empty query: write a verb ({', '.join(VERBS)}) and what it needs")
        return self._query()

    def _query(self) -> Query:
        lexer = self._lexer
        if self._at_select():
            return self._select()
        if self._parentheses and lexer.text[lexer.at] == "(":
            return self._parenthesised()
        verb = VERBS.get(lexer.peek_keyword(lexer.at))
        if verb is None:
            raise unknown_verb(lexer, nested=self._parentheses > 0)
        frame = PartialQuery(verb, lexer.at)
        lexer.at += len(verb.name)
        if verb.name == "SQL" and self._at_select():
            return self._select()
        if verb.name == "SQL" and lexer.skip_spaces() and lexer.peek_keyword(lexer.at) in NON_SELECT_KEYWORDS:
            raise unknown_verb(lexer, nested=True)
        self._read_parts(frame)
        return build_tree(lexer, frame)

    def _at_select(self) -> bool:
        return starts_with_select(self._lexer.text, self._lexer.at, self._lexer.end)

    def _select(self) -> Sql:
        """Read SQL to its end; a closing parenthesis around it or a semicolon after it is no part of it."""
        lexer = self._lexer
        if not self._parentheses:
            lexer.end = len(lexer.text)
        lexer.skip_spaces()
        start = lexer.at
        end = lexer.at = find_fragment_end(lexer.text, start, lexer.end)
        statement = lexer.text[start:end].strip()
        follower = lexer.text[end : min(end + 1, lexer.end)]
        if follower == ";" and (self._parentheses or not is_statement_end(lexer.text, end)):
            raise ParseError(end, "One statement at a time: there is more after the ';'", Fix(end, lexer.end, ""))
        if follower == ")" and not self._parentheses:
            message = "Unexpected ')': nothing was opened that it could close"
            raise ParseError(end, message, Fix(end, end + 1, ""))
        if not _HAS_SELECT.search(statement):
            raise ParseError(start, "A WITH needs a SELECT after it: WITH x AS (SELECT …) SELECT … FROM x")
        return Sql(statement)

    def _parenthesised(self) -> Query:
        lexer = self._lexer
        opening = lexer.at
        lexer.at += 1
        self._parentheses += 1
        self._go_deeper()
        query = self._query() if lexer.skip_spaces() else None
        if query is None or lexer.skip_spaces() != ")":
            raise ParseError(opening, "Unclosed '(': it needs a ')'", Fix(lexer.end, lexer.end, ")"))
        lexer.at += 1
        self._parentheses -= 1
        return query

    def _go_deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTED_QUERIES:
            raise ParseError(self._lexer.at, f"Queries are nested more than {MAX_NESTED_QUERIES} deep: ask in steps")

    def _read_parts(self, frame: PartialQuery) -> None:
        """Read clauses and the text, in any order, up to the end or the closing parenthesis."""
        lexer = self._lexer
        while (character := lexer.skip_spaces()) and not (character == ")" and self._parentheses):
            word = lexer.peek_keyword(lexer.at)
            owned = frame.find_owner(word) if word in CLAUSE_WORDS else None
            if owned is not None:
                frame = self._read_clause(frame, owned, word)
            elif word in CLAUSE_WORDS and (frame.text is not None or is_meant_as_clause(lexer, frame, lexer.at, word)):
                raise foreign_clause(lexer, frame, word, self._loose)
            elif frame.text is not None:
                raise unexpected(lexer, frame, self._loose)
            else:
                self._read_text(frame)

    def _read_text(self, frame: PartialQuery) -> None:
        lexer = self._lexer
        if frame.verb.name == "SQL":
            start = lexer.at
            table = operands.table_name(lexer, grammar.TABLE)
            text = Operand((table,), start, start, lexer.at, quoted=True)
        elif frame.verb.takes_keys:
            text = read_keys(lexer, frame)
        else:
            text = read_text(lexer, frame)
        if not text.items:
            raise unexpected(lexer, frame, None)
        frame.text = text
        self._loose = None if text.quoted else text

    def _read_clause(self, frame: PartialQuery, owned: tuple[PartialQuery, Clause], word: str) -> PartialQuery:
        """Read a clause into the query that it belongs to. The frame that comes back is the one to go on with."""
        lexer = self._lexer
        owner, clause = owned
        at = lexer.at
        lexer.at += len(word)
        try:
            self._take_second_word(clause, word)
            lexer.skip_assignment()
            value = _READERS[clause](self, frame, clause)
        except ParseError as problem:
            problem.fix = quoted_word(lexer, frame, word, at, self._loose, problem.fix)
            problem.in_text = lexer.text[at].islower() and lexer.text[frame.at].isupper()
            raise
        if clause.field in owner.values:
            if clause is grammar.TABLE:
                raise table_twice(lexer, owner, clause, word, at)
            raise given_twice(lexer, clause, word, at, owner.places[clause.field][0])
        owner.values[clause.field] = value
        owner.places[clause.field] = (word, at)
        return value if isinstance(value, PartialQuery) else frame

    def _take_second_word(self, clause: Clause, word: str) -> None:
        """ORDER has a BY after it, unless it is written as `order=…` or `order_by=…`."""
        lexer = self._lexer
        if not clause.second or word in clause.aliases or lexer.skip_spaces() == "=":
            return
        if lexer.peek_keyword(lexer.at) != clause.second:
            fix = Fix(lexer.at, lexer.at, f"{clause.second} ")
            raise ParseError(lexer.at, f"Expected {clause.second} after {word}", fix)
        lexer.at += len(clause.second)

    def read_start_query(self, frame: PartialQuery, clause: Clause) -> Query | PartialQuery:
        """Read the query after WITH. Without parentheses it is a frame whose parts are still to come."""
        lexer = self._lexer
        if lexer.text[lexer.at : lexer.at + 1] == "(":
            return self._parenthesised()
        word = lexer.peek_keyword(lexer.at)
        if word == "SQL" or (word and self._at_select()):
            fix = Fix(lexer.at, lexer.end, f"({lexer.text[lexer.at : lexer.end]})")
            raise ParseError(lexer.at, "SQL after WITH needs parentheses around it", fix)
        if word not in VERBS:
            raise unknown_start(lexer, word, clause)
        self._go_deeper()
        inner = PartialQuery(VERBS[word], lexer.at, frame)
        lexer.at += len(word)
        self._loose = None
        return inner

    def read_start_key(self, frame: PartialQuery, clause: Clause) -> Lookup:
        """Read the key after FROM."""
        lexer = self._lexer
        start = lexer.at
        text = read_keys(lexer, frame)
        if not text.items:
            raise operands.missing(lexer, clause, lexer.at, frame.verb.example)
        if lexer.peek_keyword(start) in VERBS and lexer.text[lexer.at : lexer.at + 1] in ('"', "'"):
            raise query_as_key(lexer, start, clause)
        self._loose = None if text.quoted else text
        return Lookup(text.items)

    @property
    def lexer(self) -> Lexer:
        """The query, and how far it has been read."""
        return self._lexer


_Reader = Callable[[_Parser, PartialQuery, Clause], Any]


_READERS: dict[Clause, _Reader] = {
    grammar.TABLE: lambda parser, _, clause: operands.table_name(parser.lexer, clause),
    grammar.THRESHOLD: lambda parser, _, clause: operands.fraction(parser.lexer, clause),
    grammar.LIMIT: lambda parser, _, clause: operands.whole_number(parser.lexer, clause, 1, grammar.MAX_LIMIT),
    grammar.WHERE: lambda parser, frame, _: read_filter(parser.lexer, inner=frame.outer is not None),
    grammar.FIELD: lambda parser, _, clause: operands.field_name(parser.lexer, clause),
    grammar.MIN_SIMILARITY: lambda parser, _, clause: operands.fraction(parser.lexer, clause),
    grammar.MODE: lambda parser, _, clause: operands.choice(parser.lexer, clause, grammar.MODES),
    grammar.START_KEY: _Parser.read_start_key,
    grammar.START_QUERY: _Parser.read_start_query,
    grammar.TYPE: lambda parser, _, clause: read_types(parser.lexer, clause),
    grammar.DIRECTION: lambda parser, _, clause: operands.choice(parser.lexer, clause, grammar.DIRECTIONS),
    grammar.DEPTH: lambda parser, _, clause: operands.whole_number(parser.lexer, clause, 0, grammar.MAX_DEPTH),
    grammar.ORDER: lambda parser, _, clause: operands.order(parser.lexer, clause),
    grammar.SQL_WHERE: lambda parser, _, clause: read_sql_fragment(parser.lexer, clause),
    grammar.SQL_ORDER: lambda parser, _, clause: read_sql_fragment(parser.lexer, clause),
}
