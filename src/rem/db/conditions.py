"""Conditions on the rows of a table: a tree, and its compiler to SQL with bound values."""

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

Operator: TypeAlias = Literal["=", "<>", "<", "<=", ">", ">=", "LIKE", "ILIKE", "CONTAINS"]
MAX_CONDITION_DEPTH = 100
MAX_ORDER_FIELDS = 50
"""Deeper trees would overflow the stack of the compiler."""
COMPARISON_OPERATORS = frozenset({"=", "<>", "<", "<=", ">", ">=", "LIKE", "ILIKE"})


@dataclass(frozen=True, slots=True)
class Compare:
    """Compares a field with a value. `CONTAINS` is true if a list or JSON field holds all of the value."""

    field: str
    operator: Operator
    value: Any


@dataclass(frozen=True, slots=True)
class In:
    """True if a field has one of several values."""

    field: str
    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Between:
    """True if a field lies between two bounds, both included."""

    field: str
    low: Any
    high: Any


@dataclass(frozen=True, slots=True)
class IsNull:
    """True if a field has no value."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    """Negates a condition."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class And:
    """True if all conditions are true, and if there are none."""

    conditions: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class Or:
    """True if one of the conditions is true, and false if there are none."""

    conditions: Sequence[Condition]


Condition: TypeAlias = Compare | In | Between | IsNull | Not | And | Or
Where: TypeAlias = Condition | Mapping[str, Any] | None
"""A condition, or a mapping of fields to required values (see `to_condition`), or None for all rows."""


def to_condition(where: Where) -> Condition:
    """Convert a mapping to a condition: an equal value, one of a list of values, or None for no value."""
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


class UnknownFieldError(InvalidInputError):
    """The table has no such field."""

    def __init__(self, table: Table, field: str) -> None:
        self.field = field
        super().__init__(f"{table.name} has no field {field!r}. Its fields: {', '.join(table.columns)}.")


class ConditionCompiler:
    """Compiles conditions on one table to SQL over the alias `r`, and appends their values to `parameters`."""

    def __init__(self, table: Table, parameters: list[Any]) -> None:
        self._table = table
        self._depth = 0
        self.parameters = parameters

    def compile(self, condition: Condition) -> str:
        """Return the SQL of a condition. Raise InvalidInputError if a field or value does not fit the table."""
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
                return f"{self._resolve_field(field).text} IS NULL"
            case In(field, values):
                return self._compile_in(field, values)
            case Between(field, low, high):
                return self.compile(And([Compare(field, ">=", low), Compare(field, "<=", high)]))
            case Compare(field, operator, value):
                return self._compile_compare(field, operator, value)

    def compile_order(self, order_by: str) -> str:
        """Return the SQL of an order such as "created_at" or "-created_at, name".

        The id comes last, so that pages do not overlap when values are equal.
        """
        terms = []
        parts = list(filter(None, (part.strip() for part in order_by.split(","))))
        if len(parts) > MAX_ORDER_FIELDS:
            raise InvalidInputError(f"An order has at most {MAX_ORDER_FIELDS} fields.")
        for term in parts:
            direction = "DESC" if term.startswith("-") else "ASC"
            terms.append(f"{self._resolve_field(term.lstrip('-+')).text} {direction} NULLS LAST")
        return ", ".join([*terms, 'r."id"'])

    def _join(self, separator: str, conditions: Sequence[Condition], empty: str) -> str:
        return separator.join(f"({self.compile(condition)})" for condition in conditions) or empty

    def _compile_in(self, field: str, values: Sequence[Any]) -> str:
        if any(value is None for value in values):
            return self.compile(Or([IsNull(field), In(field, [value for value in values if value is not None])]))
        reference = self._resolve_field(field, *values)
        if reference.sql_type.endswith("[]"):
            # A list field matches if it has one of the values.
            return f"{reference.text} && {self._bind(list(values), reference.sql_type, field)}"
        return f"{reference.text} = ANY ({self._bind(list(values), f'{reference.sql_type}[]', field)})"

    def _compile_compare(self, field: str, operator: Operator, value: Any) -> str:
        if value is None and operator in ("=", "<>"):
            return self.compile(IsNull(field) if operator == "=" else Not(IsNull(field)))
        reference = self._resolve_field(field, value)
        if operator in ("LIKE", "ILIKE") and (reference.sql_type != "text" or not isinstance(value, str)):
            raise InvalidInputError(f"{field}: {operator} compares text with a pattern such as 'a%'.")
        if operator == "CONTAINS":
            if reference.sql_type not in ("jsonb", "text[]", "uuid[]"):
                raise InvalidInputError(f"{field} is {reference.sql_type}: CONTAINS works on lists and JSON fields.")
            contained = value if reference.sql_type == "jsonb" or isinstance(value, list) else [value]
            return f"{reference.text} @> {self._bind(contained, reference.sql_type, field)}"
        if operator not in COMPARISON_OPERATORS:
            raise InvalidInputError(
                f"There is no operator {operator!r}: use one of {', '.join(sorted(COMPARISON_OPERATORS))}."
            )
        return f"{reference.text} {operator} {self._bind(value, reference.sql_type, field)}"

    def _bind(self, value: Any, sql_type: str, field: str) -> str:
        self.parameters.append(_convert_field_value(value, sql_type, field))
        return f"${len(self.parameters)}::{sql_type}"

    def _resolve_field(self, path: str, *values: Any) -> _FieldReference:
        """Return the SQL of a column, or of a path inside a JSON column, with a type that fits the values."""
        name, dot, rest = path.partition(".")
        column = self._table.columns.get(name)
        if column is None:
            raise UnknownFieldError(self._table, name)
        text = f"r.{identifier(name)}"
        if not dot:
            return _FieldReference(text, column.sql_type)
        if column.sql_type != "jsonb":
            raise InvalidInputError(f"{name} is {column.sql_type}, so there is no {path!r} in it.")
        self.parameters.append(rest.split("."))
        path_sql = f"${len(self.parameters)}::text[]"
        if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            # As numbers, 10 is greater than 9. A stored value that is not a number does not match.
            number = (
                f"(CASE WHEN jsonb_typeof({text} #> {path_sql}) = 'number' THEN ({text} #>> {path_sql})::numeric END)"
            )
            return _FieldReference(number, "numeric")
        return _FieldReference(f"({text} #>> {path_sql})", "text")


@dataclass(frozen=True, slots=True)
class _FieldReference:
    """The SQL of a field and its type."""

    text: str
    sql_type: str


def _convert_field_value(value: Any, sql_type: str, field: str) -> Any:
    """Convert a value for the driver. Raise InvalidInputError that names the field."""
    try:
        return convert_value(value, sql_type)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{field}: {value!r} is not a {sql_type}.") from error


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
    """Convert a value from a filter to the Python type that the driver takes for `sql_type`, or raise ValueError."""
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
    converted = _ADAPTERS[sql_type].validate_python(value)
    is_naive = isinstance(converted, datetime) and converted.tzinfo is None
    return converted.replace(tzinfo=UTC) if is_naive else converted


def _to_text(value: Any) -> str:
    """Return the text that `#>>` gives for a JSON value: `metadata.done = true` compares with 'true'."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return check_text(str(value))
