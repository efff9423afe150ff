"""From a condition back to text, which states the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rem.db.conditions import And, Between, Compare, Condition, In, IsNull, Not, Or
from rem.query.problems import Problem
from rem.query.suggestions import in_quotes
from rem.query.where import parse_condition

_CONSTANTS = {None: "NULL", True: "TRUE", False: "FALSE"}


def condition_text(condition: Condition) -> str:
    """The condition as it stands after WHERE."""
    match condition:
        case And(conditions):
            return _joined(" AND ", conditions)
        case Or(conditions):
            return _joined(" OR ", conditions)
        case Not(inner):
            return f"NOT ({condition_text(inner)})"
        case IsNull(field):
            return f"{_field(field)} IS NULL"
        case In(field, values):
            return f"{_field(field)} IN {_list(values)}"
        case Between(field, low, high):
            return f"{_field(field)} BETWEEN {_value(low)} AND {_value(high)}"
        case Compare(field, operator, list(values)):
            return f"{_field(field)} {operator} {_list(values)}"
        case Compare(field, operator, value):
            return f"{_field(field)} {operator} {_value(value)}"


def _joined(separator: str, conditions: Sequence[Condition]) -> str:
    parts = (condition_text(part) for part in conditions)
    return separator.join(
        f"({text})" if isinstance(part, And | Or) else text for part, text in zip(conditions, parts, strict=True)
    )


def _field(name: str) -> str:
    """The field without quotes if it is read as the same field so."""
    try:
        is_plain = parse_condition(f"{name} IS NULL") == IsNull(name)
    except Problem:
        is_plain = False
    return name if is_plain else in_quotes(name)


def _list(values: Sequence[Any]) -> str:
    return f"({', '.join(map(_value, values))})"


def _value(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "''")
        return f"'{escaped}'"
    return _CONSTANTS[value] if value is None or isinstance(value, bool) else str(value)
