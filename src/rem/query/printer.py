"""From a tree back to text: the short way to write it, which parses to the same tree."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rem.query.filters import fits_unquoted
from rem.query.grammar import CLAUSE_WORDS, VERBS
from rem.query.sql import begins_select
from rem.query.suggestions import in_quotes
from rem.query.tree import Filter, Fuzzy, Lookup, Query, Search, Sql, Traverse

_DEFAULTS = {(kind, field.name): field.default for kind in (Lookup, Fuzzy, Search, Traverse) for field in fields(kind)}
_NAMES = frozenset({"table", "field"})


def to_text(query: Query) -> str:
    """The query as text. What a clause would say by default is left out."""
    if isinstance(query, Sql):
        return query.statement if begins_select(query.statement, 0, len(query.statement)) else f"SQL {query.statement}"
    verb = VERBS[type(query).__name__.upper()]
    parts = [verb.name, _lead(query)]
    for clause in verb.clauses:
        value = getattr(query, clause.field)
        if clause not in verb.in_lead and value != _DEFAULTS[type(query), clause.field]:
            parts.append(f"{clause.name} {_value(clause.field, value)}")
    return " ".join(parts)


def _lead(query: Lookup | Fuzzy | Search | Traverse) -> str:
    match query:
        case Lookup(keys):
            return _strings(keys)
        case Fuzzy(text) | Search(text):
            return in_quotes(text)
        case Traverse(Lookup(keys, None)):
            return f"FROM {_strings(keys)}"
        case Traverse(start):
            # A comment at the end of SQL would hide the parenthesis.
            closing = "\n)" if isinstance(start, Sql) and "--" in start.statement else ")"
            return f"WITH ({to_text(start)}{closing}"


def _value(field: str, value: Any) -> str:
    match value:
        case Filter(text):
            return text if fits_unquoted(text) else in_quotes(text)
        case tuple():
            return _strings(value)
        case str() if field in _NAMES and value.upper() in CLAUSE_WORDS:
            return in_quotes(value)
    return str(value)


def _strings(items: tuple[str, ...]) -> str:
    return ", ".join(map(in_quotes, items))
