"""Print a query tree as text that parses to the same tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rem.db.conditions import And, Between, Compare, Condition, In, IsNull, Not, Or
from rem.query.grammar import CLAUSE_WORDS, VERBS
from rem.query.sql_lexer import starts_with_select
from rem.query.syntax_errors import ParseError, quote
from rem.query.tree import Filter, Fuzzy, Lookup, Query, Search, Sql, Traverse
from rem.query.where import can_print_unquoted, parse_condition

_DEFAULTS = {(tree, field.name): field.default for tree in (Lookup, Fuzzy, Search, Traverse) for field in fields(tree)}
_NAME_FIELDS = frozenset({"table", "field"})
_TIME_FIELDS = frozenset({"since", "until"})
_PLAIN_TIME = re.compile(r"\A[\w:.+-]+\Z")
"""A time of one word needs no quotes."""
_CONSTANTS = {None: "NULL", True: "TRUE", False: "FALSE"}


def print_query(query: Query) -> str:
    """Return the query as text, without the clauses that have their default values."""
    if isinstance(query, Sql):
        is_select = starts_with_select(query.statement, 0, len(query.statement))
        return query.statement if is_select else f"SQL {query.statement}"
    verb = VERBS[type(query).__name__.upper()]
    parts = [verb.name, _print_operand(query)]
    for clause in verb.clauses:
        value = getattr(query, clause.field)
        if clause not in verb.operand_clauses and value != _DEFAULTS[type(query), clause.field]:
            parts.append(f"{clause.name} {_print_value(clause.field, value)}")
    return " ".join(parts)


def _print_operand(query: Lookup | Fuzzy | Search | Traverse) -> str:
    match query:
        case Lookup(keys):
            return _print_strings(keys)
        case Fuzzy(text) | Search(text):
            return quote(text)
        case Traverse(Lookup(keys, None)):
            return f"FROM {_print_strings(keys)}"
        case Traverse(start):
            # A comment at the end of SQL would hide the parenthesis.
            closing = "\n)" if isinstance(start, Sql) and "--" in start.statement else ")"
            return f"WITH ({print_query(start)}{closing}"


def _print_value(field: str, value: Any) -> str:
    match value:
        case Filter(text):
            return text if can_print_unquoted(text) else quote(text)
        case tuple():
            return _print_strings(value)
        case str() if field in _TIME_FIELDS and not _PLAIN_TIME.match(value):
            return quote(value)
        case str() if field in _NAME_FIELDS and value.upper() in CLAUSE_WORDS:
            return quote(value)
    return str(value)


def _print_strings(items: tuple[str, ...]) -> str:
    return ", ".join(map(quote, items))


def print_condition(condition: Condition) -> str:
    """Return the condition as text for WHERE."""
    match condition:
        case And(conditions):
            return _print_conditions(" AND ", conditions)
        case Or(conditions):
            return _print_conditions(" OR ", conditions)
        case Not(inner):
            return f"NOT ({print_condition(inner)})"
        case IsNull(field):
            return f"{_print_field(field)} IS NULL"
        case In(field, values):
            return f"{_print_field(field)} IN {_print_list(values)}"
        case Between(field, low, high):
            return f"{_print_field(field)} BETWEEN {_print_literal(low)} AND {_print_literal(high)}"
        case Compare(field, operator, list(values)):
            return f"{_print_field(field)} {operator} {_print_list(values)}"
        case Compare(field, operator, value):
            return f"{_print_field(field)} {operator} {_print_literal(value)}"


def _print_conditions(separator: str, conditions: Sequence[Condition]) -> str:
    parts = (print_condition(part) for part in conditions)
    return separator.join(
        f"({text})" if isinstance(part, And | Or) else text for part, text in zip(conditions, parts, strict=True)
    )


def _print_field(name: str) -> str:
    """Return the name of a field, in quotes if it would be parsed differently without them."""
    try:
        is_plain = parse_condition(f"{name} IS NULL") == IsNull(name)
    except ParseError:
        is_plain = False
    return name if is_plain else quote(name)


def _print_list(values: Sequence[Any]) -> str:
    return f"({', '.join(map(_print_literal, values))})"


def _print_literal(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"
    return _CONSTANTS[value] if value is None or isinstance(value, bool) else str(value)
