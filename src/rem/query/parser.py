"""Parse the text of a query into its tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rem.errors import QueryLimitError
from rem.query import grammar
from rem.query.grammar import (
    FIRST_WORDS,
    MAX_NESTED_QUERIES,
    MAX_QUERY_CHARS,
    NON_SELECT_KEYWORDS,
    VERBS,
    Clause,
)
from rem.query.lexer import QUOTES, Lexer
from rem.query.operands import (
    Operand,
    PartialQuery,
    find_misspelt_clauses,
    missing_value,
    peek_clause,
    read_choice,
    read_edge_types,
    read_field_name,
    read_fraction,
    read_keys,
    read_order_by,
    read_table_name,
    read_text,
    read_time,
    read_whole_number,
)
from rem.query.sql_lexer import find_fragment_end, is_statement_end, starts_with_select
from rem.query.syntax_errors import (
    Fix,
    ParseError,
    find_nearest,
    fix_keyword_in_text,
    foreign_clause,
    given_twice,
    query_as_key,
    quote,
    quote_query_text,
    table_twice,
    to_syntax_error,
    unexpected,
    unknown_start,
    unknown_verb,
)
from rem.query.tree import Fuzzy, Lookup, Query, Search, Sql, Traverse
from rem.query.where import read_filter, read_sql_fragment

MAX_FIXES = 3
"""A query with more mistakes gets no suggestion."""
MAX_FIXED_CHARS = 5_000
"""A longer query gets no suggestion: every fix parses it again."""
_HAS_SELECT = re.compile(r"\bSELECT\b", re.IGNORECASE)


def parse_query(text: str) -> Query:
    """Parse a query and return its tree.

    Raise QuerySyntaxError if it is not valid, with the position, the reason and the nearest valid query. Raise
    QueryLimitError if it is too long.
    """
    check_query_length(text)
    try:
        return _Parser(text).parse()
    except ParseError as error:
        raise to_syntax_error(text, error, _suggest_query(text, error)) from None


def check_query_length(text: str) -> None:
    """Raise QueryLimitError if a query or a condition is too long to be parsed."""
    if len(text) > MAX_QUERY_CHARS:
        raise QueryLimitError(
            f"The query has {len(text):,} characters, and a query has at most {MAX_QUERY_CHARS:,}: ask in steps, or "
            "store long texts with `rem ingest`."
        )


def suggest_clause(text: str) -> str | None:
    """Return a valid query with the clause that a word of its unquoted text or key may be a misspelling of.

    SEARCH migration LIMT 3 is valid, but LIMIT 3 was probably meant. Return None if there is no such word.
    """
    if len(text) > MAX_FIXED_CHARS:
        return None
    parser = _Parser(text)
    try:
        parser.parse()
        for fix in parser.find_misspelt_clauses():
            fixed = fix.apply_to(text)
            _Parser(fixed).parse()
            return fixed.strip()
    except ParseError:
        return None
    return None


def suggest_quoted_text(text: str) -> str | None:
    """Return the query with its text in quotes, if that is valid and the text contains a keyword in lower case."""
    quoted = quote_query_text(text) if len(text) <= MAX_FIXED_CHARS else None
    if quoted is None:
        return None
    try:
        _Parser(quoted).parse()
    except ParseError:
        return None
    return quoted


def _suggest_query(text: str, error: ParseError) -> str | None:
    """Return the nearest valid query, or None."""
    if len(text) > MAX_FIXED_CHARS:
        return None
    if error.is_maybe_text and (quoted := suggest_quoted_text(text)) is not None:
        return quoted
    return _apply_fixes(text, error) or suggest_quoted_text(text)


def _apply_fixes(text: str, error: ParseError) -> str | None:
    """Fix one mistake after the other. Return None if the query is still not valid."""
    for _ in range(MAX_FIXES):
        if error.fix is None:
            return None
        text = error.fix.apply_to(text)
        try:
            _Parser(text).parse()
        except ParseError as next_error:
            error = next_error
        else:
            return text.strip()
    return None


class _Parser:
    """Parses one query."""

    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self._parentheses = 0
        self._depth = 0
        self._unquoted: Operand | None = None
        """The operand that was read last, if it has no quotes: a keyword after it may be meant as a word of it."""
        self._operands: list[tuple[PartialQuery, Operand]] = []
        """All operands without quotes, and the queries that they belong to."""

    @property
    def lexer(self) -> Lexer:
        """The text and the position in it."""
        return self._lexer

    def parse(self) -> Query:
        """Parse the whole text. Raise ParseError at the first mistake."""
        lexer = self._lexer
        lexer.end = len(lexer.text.rstrip().rstrip("; \t\r\n"))
        if not lexer.skip_spaces():
            raise ParseError(0, f"Empty query: write a verb ({', '.join(VERBS)}) and what it needs")
        return self._parse_query()

    def _parse_query(self) -> Query:
        lexer = self._lexer
        self._skip_prefix()
        if self._is_at_select():
            return self._parse_select()
        if self._parentheses and lexer.text[lexer.position] == "(":
            return self._parse_parentheses()
        verb = VERBS.get(lexer.peek_keyword(lexer.position))
        if verb is None:
            raise unknown_verb(lexer, is_nested=self._parentheses > 0)
        partial = PartialQuery(verb, lexer.position)
        lexer.position += len(verb.name)
        if verb.name == "SQL" and self._is_at_select():
            return self._parse_select()
        if verb.name == "SQL" and lexer.skip_spaces() and lexer.peek_keyword(lexer.position) in NON_SELECT_KEYWORDS:
            raise unknown_verb(lexer, is_nested=True)
        self._read_operand_and_clauses(partial)
        return _build_tree(lexer, partial)

    def _skip_prefix(self) -> None:
        """Skip the word REM before a verb, as in REM LOOKUP sarah-chen."""
        lexer = self._lexer
        start = lexer.position
        if lexer.peek_keyword(start) != "REM":
            return
        lexer.position += len("REM")
        lexer.skip_spaces()
        # A misspelt verb is reported as such.
        if find_nearest(lexer.peek_keyword(lexer.position), FIRST_WORDS) is None:
            lexer.position = start

    def _is_at_select(self) -> bool:
        return starts_with_select(self._lexer.text, self._lexer.position, self._lexer.end)

    def _parse_select(self) -> Sql:
        """Read SQL to its end: before the closing parenthesis around it, or before the semicolon after it."""
        lexer = self._lexer
        if not self._parentheses:
            lexer.end = len(lexer.text)
        lexer.skip_spaces()
        start = lexer.position
        end = lexer.position = find_fragment_end(lexer.text, start, lexer.end)
        statement = lexer.text[start:end].strip()
        next_character = lexer.text[end : min(end + 1, lexer.end)]
        if next_character == ";" and (self._parentheses or not is_statement_end(lexer.text, end)):
            raise ParseError(end, "One statement at a time: there is more after the ';'", Fix(end, lexer.end, ""))
        if next_character == ")" and not self._parentheses:
            message = "Unexpected ')': nothing was opened that it could close"
            raise ParseError(end, message, Fix(end, end + 1, ""))
        if not _HAS_SELECT.search(statement):
            raise ParseError(start, "A WITH needs a SELECT after it: WITH x AS (SELECT …) SELECT … FROM x")
        return Sql(statement)

    def _parse_parentheses(self) -> Query:
        lexer = self._lexer
        opening = lexer.position
        lexer.position += 1
        self._parentheses += 1
        self._increase_depth()
        query = self._parse_query() if lexer.skip_spaces() else None
        if query is None or lexer.skip_spaces() != ")":
            raise ParseError(opening, "Unclosed '(': it needs a ')'", Fix(lexer.end, lexer.end, ")"))
        lexer.position += 1
        self._parentheses -= 1
        return query

    def _increase_depth(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTED_QUERIES:
            message = f"Queries are nested more than {MAX_NESTED_QUERIES} deep: ask in steps"
            raise ParseError(self._lexer.position, message)

    def _read_operand_and_clauses(self, partial: PartialQuery) -> None:
        """Read the operand and the clauses, in any order, up to the end or the closing parenthesis."""
        lexer = self._lexer
        while (character := lexer.skip_spaces()) and not (character == ")" and self._parentheses):
            word = peek_clause(lexer, lexer.position)
            owner = partial.find_owner(word) if word else None
            has_operand = partial.operand is not None
            if owner is not None:
                partial = self._read_clause(partial, owner, word)
            elif word and (has_operand or partial.is_meant_as_clause(lexer, lexer.position, word)):
                raise foreign_clause(lexer, partial, word, self._unquoted)
            elif has_operand:
                raise unexpected(lexer, partial, self._unquoted)
            else:
                self._read_operand(partial)

    def _read_operand(self, partial: PartialQuery) -> None:
        lexer = self._lexer
        if partial.verb.name == "SQL":
            start = lexer.position
            table = read_table_name(lexer, grammar.TABLE)
            operand = Operand((table,), start, start, lexer.position, is_quoted=True)
        elif partial.verb.takes_keys:
            operand = read_keys(lexer, partial)
        else:
            operand = read_text(lexer, partial)
        if not operand.items:
            raise unexpected(lexer, partial, None)
        partial.operand = operand
        self._unquoted = None if operand.is_quoted else operand
        if not operand.is_quoted:
            self._operands.append((partial, operand))

    def find_misspelt_clauses(self) -> Iterator[Fix]:
        """Yield the fix for each word in unquoted texts and keys that looks like a misspelt clause."""
        for partial, operand in self._operands:
            yield from find_misspelt_clauses(self._lexer, partial, operand)

    def _read_clause(self, partial: PartialQuery, owner: tuple[PartialQuery, Clause], word: str) -> PartialQuery:
        """Read a clause into the query that it belongs to. Return the query to continue with."""
        lexer = self._lexer
        target, clause = owner
        start = lexer.position
        lexer.position += len(word)
        try:
            self._skip_second_word(clause, word)
            lexer.skip_assignment()
            value = _CLAUSE_READERS[clause](self, partial, clause)
        except ParseError as error:
            error.fix = fix_keyword_in_text(lexer, partial, word, start, self._unquoted, error.fix)
            error.is_maybe_text = lexer.text[start].islower() and lexer.text[partial.position].isupper()
            raise
        if clause.field in target.values:
            if clause is grammar.TABLE:
                raise table_twice(lexer, target, clause, word, start)
            raise given_twice(lexer, clause, word, start, target.keywords[clause.field][0])
        target.values[clause.field] = value
        target.keywords[clause.field] = (word, start)
        return value if isinstance(value, PartialQuery) else partial

    def _skip_second_word(self, clause: Clause, word: str) -> None:
        """Skip the BY after ORDER. It is not required in `order=…` and `order_by=…`."""
        lexer = self._lexer
        if not clause.second_word or word in clause.aliases or lexer.skip_spaces() == "=":
            return
        if lexer.peek_keyword(lexer.position) != clause.second_word:
            fix = Fix(lexer.position, lexer.position, f"{clause.second_word} ")
            raise ParseError(lexer.position, f"Expected {clause.second_word} after {word}", fix)
        lexer.position += len(clause.second_word)

    def read_start_query(self, partial: PartialQuery, clause: Clause) -> Query | PartialQuery:
        """Read the query after WITH. Without parentheses, return a partial query: its operand is read next."""
        lexer = self._lexer
        self._skip_prefix()
        start = lexer.position
        if lexer.text[start : start + 1] == "(":
            return self._parse_parentheses()
        word = lexer.peek_keyword(start)
        if word == "SQL" or (word and self._is_at_select()):
            fix = Fix(start, lexer.end, f"({lexer.text[start : lexer.end]})")
            raise ParseError(start, "SQL after WITH needs parentheses around it", fix)
        if word not in VERBS:
            raise unknown_start(lexer, word, clause)
        self._increase_depth()
        inner = PartialQuery(VERBS[word], start, partial)
        lexer.position += len(word)
        self._unquoted = None
        return inner

    def read_start_key(self, partial: PartialQuery, clause: Clause) -> Lookup:
        """Read the keys after FROM in a TRAVERSE."""
        lexer = self._lexer
        start = lexer.position
        operand = read_keys(lexer, partial)
        if not operand.items:
            raise missing_value(lexer, clause, lexer.position, partial.verb.example)
        if lexer.peek_keyword(start) in VERBS and lexer.text[lexer.position : lexer.position + 1] in QUOTES:
            raise query_as_key(lexer, start, clause)
        self._unquoted = None if operand.is_quoted else operand
        return Lookup(operand.items)


_ClauseReader = Callable[[_Parser, PartialQuery, Clause], Any]


_CLAUSE_READERS: dict[Clause, _ClauseReader] = {
    grammar.TABLE: lambda parser, _, clause: read_table_name(parser.lexer, clause),
    grammar.THRESHOLD: lambda parser, _, clause: read_fraction(parser.lexer, clause),
    grammar.LIMIT: lambda parser, _, clause: read_whole_number(parser.lexer, clause, 1, grammar.MAX_LIMIT),
    grammar.WHERE: lambda parser, partial, _: read_filter(parser.lexer, is_inner=partial.outer is not None),
    grammar.SINCE: lambda parser, _, clause: read_time(parser.lexer, clause),
    grammar.UNTIL: lambda parser, _, clause: read_time(parser.lexer, clause),
    grammar.FIELD: lambda parser, _, clause: read_field_name(parser.lexer, clause),
    grammar.MIN_SIMILARITY: lambda parser, _, clause: read_fraction(parser.lexer, clause),
    grammar.MODE: lambda parser, _, clause: read_choice(parser.lexer, clause, grammar.MODES),
    grammar.START_KEY: _Parser.read_start_key,
    grammar.START_QUERY: _Parser.read_start_query,
    grammar.TYPE: lambda parser, _, clause: read_edge_types(parser.lexer, clause),
    grammar.DIRECTION: lambda parser, _, clause: read_choice(parser.lexer, clause, grammar.DIRECTIONS),
    grammar.DEPTH: lambda parser, _, clause: read_whole_number(parser.lexer, clause, 0, grammar.MAX_DEPTH),
    grammar.ORDER: lambda parser, _, clause: read_order_by(parser.lexer, clause),
    grammar.SQL_WHERE: lambda parser, _, clause: read_sql_fragment(parser.lexer, clause),
    grammar.SQL_ORDER: lambda parser, _, clause: read_sql_fragment(parser.lexer, clause),
}
"""The function that reads the value of each clause."""


def _build_tree(lexer: Lexer, partial: PartialQuery) -> Query:
    """Return the tree of a query whose operand and clauses have been read."""
    match partial.verb.name:
        case "LOOKUP":
            return Lookup(_require_operand(partial), **partial.values)
        case "FUZZY":
            return Fuzzy(_require_operand(partial)[0], **partial.values)
        case "SEARCH":
            return Search(_require_operand(partial)[0], **partial.values)
        case "TRAVERSE":
            return _build_traverse(lexer, partial)
    return Sql(_build_select(partial))


def _require_operand(partial: PartialQuery) -> tuple[str, ...]:
    if partial.operand is None:
        end = partial.position + len(partial.verb.name)
        message = f"{partial.verb.name} needs {partial.verb.missing}"
        raise ParseError(partial.position, message, Fix(end, end, f" {partial.verb.example}"))
    return partial.operand.items


def _build_traverse(lexer: Lexer, partial: PartialQuery) -> Traverse:
    values: dict[str, Any] = dict(partial.values)
    if "start" not in values:
        return Traverse(Lookup(_require_operand(partial)), **values)
    start = values.pop("start")
    if partial.operand is not None:
        values["edge_types"] = _take_edge_types(lexer, partial, partial.operand)
    return Traverse(_build_tree(lexer, start) if isinstance(start, PartialQuery) else start, **values)


def _take_edge_types(lexer: Lexer, partial: PartialQuery, operand: Operand) -> tuple[str, ...]:
    """Return the operand before FROM or WITH as edge types."""
    word, start = partial.keywords["start"]
    if operand.start > start:
        fix = Fix(operand.start, operand.start, "TYPE ")
        raise ParseError(operand.start, f"{word} already says where to start: edge types come after TYPE", fix)
    if "edge_types" in partial.values:
        lexer.position = operand.end
        raise given_twice(lexer, grammar.TYPE, " ".join(operand.items), operand.start, "TYPE")
    if operand.has_unquoted_spaces:
        text = " ".join(lexer.text[operand.start : operand.end].split())
        message = f"Edge types before {word} are single words with commas between them, or strings in quotes"
        raise ParseError(operand.start, message, Fix(operand.start, operand.end, quote(text)))
    return operand.items


def _build_select(partial: PartialQuery) -> str:
    """Return the SELECT that `SQL table …` stands for."""
    values = partial.values
    if partial.operand is not None and "table" in values:
        word, start = partial.keywords["table"]
        raise ParseError(max(start, partial.operand.start), f"The table is given twice, once after {word}")
    table = values.get("table") or _require_operand(partial)[0]
    parts = [f"SELECT * FROM {table}"]  # noqa: S608  # the user may write any SELECT; the sandbox restricts it
    for name, keyword in (("where", "WHERE"), ("order_by", "ORDER BY"), ("limit", "LIMIT")):
        if name in values:
            parts.append(f"{keyword} {values[name]}")
    return " ".join(parts)
