"""Conditions on the rows of a table, as a tree that compiles to SQL with bound values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from pydantic import Field, TypeAdapter

from rem.db.sql import identifier
from rem.db.table import Table
from rem.errors import InvalidInputError
from rem.models.field_types import check_text, to_json_value

_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    "boolean": TypeAdapter(bool),
    "bigint": TypeAdapter(Annotated[int, Field(ge=-(2**63), lt=2**63)]),
    "double precision": TypeAdapter(float),
    "numeric": TypeAdapter(Decimal),
    "timestamptz": TypeAdapter(datetime),
    "date": TypeAdapter(date),
    "uuid": TypeAdapter(UUID),
}


def convert_value(value: Any, sql_type: str) -> Any:
    """The value as the type wants it; a ValueError if it cannot be."""
    if sql_type == "jsonb":
        return to_json_value(value)
    if sql_type.endswith("[]"):
        if not isinstance(value, list | tuple | set | frozenset):
            raise ValueError("not a list")
        return [convert_value(item, sql_type.removesuffix("[]")) for item in value]
    if value is None:
        raise ValueError("no value")
    if isinstance(value, Enum):
        value = value.value
    if sql_type == "text":
        return _to_text(value)
    if sql_type == "numeric" and isinstance(value, float):
        return Decimal(repr(value))
    if sql_type not in _ADAPTERS:
        raise ValueError("not comparable")
    fitted = _ADAPTERS[sql_type].validate_python(value)
    return fitted.replace(tzinfo=UTC) if isinstance(fitted, datetime) and fitted.tzinfo is None else fitted


def _to_text(value: Any) -> str:
    """Text as `#>>` shows a JSON value: `metadata.done = true` compares with 'true'."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return check_text(str(value))


Operator: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "LIKE", "ILIKE", "CONTAINS"]
MAX_CONDITION_DEPTH = 100
COMPARISON_OPERATORS = frozenset({"=", "<>", "<", "<=", ">", ">=", "LIKE", "ILIKE"})


@dataclass(frozen=True, slots=True)
class Compare:
    """A field beside a value. `CONTAINS` asks whether a list or JSON field holds all of the value."""

    field: str
    operator: Operator
    value: Any


@dataclass(frozen=True, slots=True)
class In:
    """A field among several values."""

    field: str
    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Between:
    """A field within two bounds, both included."""

    field: str
    low: Any
    high: Any


@dataclass(frozen=True, slots=True)
class IsNull:
    """A field without a value."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class And:
    """All of several conditions; true if there are none."""

    conditions: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of several conditions; false if there are none."""

    conditions: Sequence[Condition]


Condition: TypeAlias = Compare | In | Between | IsNull | Not | And | Or
Where: TypeAlias = Condition | Mapping[str, Any] | None


def to_condition(where: Where) -> Condition:
    """The condition that a mapping stands for: equal values, any of a list of values, or None for no value."""
    if where is None:
        return And([])
    if not isinstance(where, Mapping):
        return where
    return And([_to_field_condition(field, value) for field, value in where.items()])


def _to_field_condition(field: str, value: Any) -> Condition:
    if value is None:
        return IsNull(field)
    if isinstance(value, list | tuple | set | frozenset):
        return In(field, list(value))
    return Compare(field, "=", value)


class ConditionCompiler:
    """Turns conditions on one table into SQL over the alias `r`; the values collect in `parameters`."""

    def __init__(self, table: Table, parameters: list[Any]) -> None:
        self._table = table
        self._depth = 0
        self.parameters = parameters

    def compile(self, condition: Condition) -> str:
        """The SQL of a condition."""
        if self._depth > MAX_CONDITION_DEPTH:
            raise InvalidInputError(
                f"The condition is nested more than {MAX_CONDITION_DEPTH} levels deep: simplify it."
            )
        self._depth += 1
        text = self._compile(condition)
        self._depth -= 1
        return text

    def _compile(self, condition: Condition) -> str:
        match condition:
            case And(conditions):
                return self._join(" AND ", conditions, "true")
            case Or(conditions):
                return self._join(" OR ", conditions, "false")
            case Not(inner):
                return f"NOT ({self.compile(inner)})"
            case IsNull(field):
                return f"{self._field(field).text} IS NULL"
            case In(field, values):
                return self._in(field, values)
            case Between(field, low, high):
                return self.compile(And([Compare(field, ">=", low), Compare(field, "<=", high)]))
            case Compare(field, operator, value):
                return self._compare(field, operator, value)

    def compile_order(self, order_by: str) -> str:
        """The SQL of "created_at" or "-created_at, name"; ties are broken by id, so that pages do not overlap."""
        terms = []
        for term in filter(None, (part.strip() for part in order_by.split(","))):
            direction = "DESC" if term.startswith("-") else "ASC"
            terms.append(f"{self._field(term.lstrip('-+')).text} {direction} NULLS LAST")
        return ", ".join([*terms, 'r."id"'])

    def _join(self, separator: str, conditions: Sequence[Condition], empty: str) -> str:
        return separator.join(f"({self.compile(condition)})" for condition in conditions) or empty

    def _in(self, field: str, values: Sequence[Any]) -> str:
        if any(value is None for value in values):
            return self.compile(Or([IsNull(field), In(field, [value for value in values if value is not None])]))
        reference = self._field(field, *values)
        if reference.sql_type.endswith("[]"):
            # A list field is "among" some values if it has one of them.
            return f"{reference.text} && {self._bind(list(values), reference.sql_type, field)}"
        return f"{reference.text} = ANY ({self._bind(list(values), f'{reference.sql_type}[]', field)})"

    def _compare(self, field: str, operator: Operator, value: Any) -> str:
        if value is None and operator in ("=", "<>"):
            return self.compile(IsNull(field) if operator == "=" else Not(IsNull(field)))
        reference = self._field(field, value)
        if operator in ("LIKE", "ILIKE") and (reference.sql_type != "text" or not isinstance(value, str)):
            raise InvalidInputError(f"{field}: {operator} compares text with a pattern such as 'a%'.")
        if operator == "CONTAINS":
            if reference.sql_type not in ("jsonb", "text[]", "uuid[]"):
                raise InvalidInputError(f"{field} is {reference.sql_type}: CONTAINS works on lists and JSON fields.")
            wanted = value if reference.sql_type == "jsonb" or isinstance(value, list) else [value]
            return f"{reference.text} @> {self._bind(wanted, reference.sql_type, field)}"
        if operator not in COMPARISON_OPERATORS:
            raise InvalidInputError(
                f"There is no operator {operator!r}: use one of {', '.join(sorted(COMPARISON_OPERATORS))}."
            )
        return f"{reference.text} {operator} {self._bind(value, reference.sql_type, field)}"

    def _bind(self, value: Any, sql_type: str, field: str) -> str:
        self.parameters.append(_convert_field_value(value, sql_type, field))
        return f"${len(self.parameters)}::{sql_type}"

    def _field(self, path: str, *values: Any) -> _Reference:
        """The SQL of a column or of a place inside a JSON column, as the type that the values ask for."""
        name, dot, rest = path.partition(".")
        column = self._table.columns.get(name)
        if column is None:
            known = ", ".join(self._table.columns)
            raise InvalidInputError(f"{self._table.name} has no field {name!r}. Its fields: {known}.")
        text = f"r.{identifier(name)}"
        if not dot:
            return _Reference(text, column.sql_type)
        if column.sql_type != "jsonb":
            raise InvalidInputError(f"{name} is {column.sql_type}, so there is no {path!r} in it.")
        self.parameters.append(rest.split("."))
        place = f"${len(self.parameters)}::text[]"
        if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            # Compared as a number, so that 10 is more than 9; what is no number there is no match.
            number = f"(CASE WHEN jsonb_typeof({text} #> {place}) = 'number' THEN ({text} #>> {place})::numeric END)"
            return _Reference(number, "numeric")
        return _Reference(f"({text} #>> {place})", "text")


@dataclass(frozen=True, slots=True)
class _Reference:
    text: str
    sql_type: str


def _convert_field_value(value: Any, sql_type: str, field: str) -> Any:
    """A value that the driver takes for the type, or an error that names the field."""
    try:
        return convert_value(value, sql_type)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{field}: {value!r} is not a {sql_type}.") from error
