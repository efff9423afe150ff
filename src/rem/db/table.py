"""Table: the columns of an entity class, and the encoding of its values for PostgreSQL."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import orjson
from pydantic import BaseModel

from rem.db.sql import identifier
from rem.errors import InvalidInputError
from rem.models.edge import Edge
from rem.models.entity import Entity, EntityType
from rem.models.field_types import Vector, to_json_value

_SCALARS: dict[type, str] = {
    bool: "boolean",
    str: "text",
    int: "bigint",
    float: "double precision",
    Decimal: "numeric",
    datetime: "timestamptz",
    date: "date",
    UUID: "uuid",
}
_ARRAY_ITEMS = frozenset({"text", "uuid"})
READ_ONLY_COLUMNS = frozenset({"key", "tenant_id", "user_id"})
"""Columns that the store sets; values of the entity are ignored."""
IMMUTABLE_COLUMNS = READ_ONLY_COLUMNS | {"id", "created_at", "updated_at", "deleted_at"}
"""Columns that an update of a stored row never changes."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `encode` converts a field value for the driver; None if no conversion is needed."""

    name: str
    sql_type: str
    nullable: bool
    encode: Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The table of an entity class."""

    entity_type: EntityType
    columns: dict[str, Column]

    @property
    def name(self) -> str:
        """Return the name of the table in the schema `rem`."""
        return self.entity_type.table


@cache
def get_table(model: type[Entity]) -> Table:
    """Return the table of a class. Raise InvalidInputError if it has none, or a field without a column type."""
    if not hasattr(model, "entity_type"):
        raise InvalidInputError(
            f'{model.__name__} has no table: write `class {model.__name__}(Entity, table="…")` with a name for it.'
        )
    columns = {name: _create_column(model, name, annotation) for name, annotation in _get_annotations(model).items()}
    return Table(model.entity_type, columns)


def _get_annotations(model: type[Entity]) -> dict[str, Any]:
    """Return the field annotations as written. Pydantic moves their metadata out of `field.annotation`."""
    return {
        name: Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        for name, field in model.model_fields.items()
    }


def _create_column(model: type[Entity], name: str, annotation: Any) -> Column:
    try:
        identifier(name)
    except ValueError as error:
        raise InvalidInputError(
            f"{model.__name__}.{name}: a column's name has at most 63 lower-case letters, digits and underscores: "
            "rename it."
        ) from error
    inner, nullable = _strip_optional(annotation)
    sql_type = _get_sql_type(inner)
    if sql_type is None:
        raise InvalidInputError(
            f"{model.__name__}.{name}: no column type for {annotation}. Use str, int, float, bool, Decimal, datetime, "
            "date, UUID, an Enum of strings, a list, a dict or a Pydantic model, each optionally `| None`."
        )
    return Column(name, sql_type, nullable, _create_encoder(name, sql_type))


def _strip_optional(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is Annotated:
        inner, nullable = _strip_optional(get_args(annotation)[0])
        return (annotation if not nullable and annotation == Vector else inner), nullable
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not types.NoneType]
        if len(members) == 1 and len(get_args(annotation)) == 2:
            return _strip_optional(members[0])[0], True
    return annotation, annotation is Any


def _get_sql_type(annotation: Any) -> str | None:
    if annotation == Vector:
        return "vector"
    if annotation is Any:
        return "jsonb"
    origin = get_origin(annotation) or annotation
    if origin is Literal:
        return "text" if all(isinstance(choice, str) for choice in get_args(annotation)) else None
    if not isinstance(origin, type):
        return None
    if origin in _SCALARS:
        return _SCALARS[origin]
    if issubclass(origin, Enum):
        return "text" if issubclass(origin, str) else None
    if origin is list:
        item = _get_sql_type(_strip_optional(get_args(annotation)[0])[0]) if get_args(annotation) else None
        return f"{item}[]" if item in _ARRAY_ITEMS else "jsonb"
    return "jsonb" if issubclass(origin, dict | BaseModel) else None


def _create_encoder(name: str, sql_type: str) -> Callable[[Any], Any] | None:
    encode = _ENCODERS.get(sql_type)
    if encode is None:
        return None

    def encoder(value: Any) -> Any:
        try:
            return None if value is None else encode(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    return encoder


def _encode_int(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("is an integer beyond 64 bits, which no column can hold: make the field a str")
    return value


def _encode_float(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"is {value}, which JSON cannot hold: use None")
    return value


def _encode_decimal(value: Decimal) -> Decimal:
    """Return the value. Raise ValueError if JSON, whose numbers are floats, would lose digits."""
    if Decimal(repr(float(value))) != value:
        raise ValueError("has more digits than a JSON number keeps: make the field a str")
    return value


def _encode_datetime(value: datetime) -> str:
    """Return the time in ISO format. A time without a zone is UTC; the driver would assume the local zone."""
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value).isoformat()


def _encode_json(value: Any) -> orjson.Fragment:
    """Return the value as JSON text. Custom types may have Pydantic models in it."""
    if isinstance(value, list) and value and isinstance(value[0], Edge):
        value = [edge.__dict__ for edge in value]
    try:
        text = orjson.dumps(value, default=_dump_model)
    except TypeError:
        text = orjson.dumps(to_json_value(_dump_models(value)))
    # The caller may have edited the value after its validation. NaN would silently become null, and PostgreSQL text
    # has no NUL, so a text with one of them is checked again.
    if b"null" in text or b"\\u0000" in text:
        to_json_value(_dump_models(value))
    return orjson.Fragment(text)


def _dump_model(value: Any) -> Any:
    if isinstance(value, Edge):
        return value.__dict__
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


def _dump_models(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _dump_model(value)
    if isinstance(value, list):
        return [_dump_models(item) for item in value]
    if isinstance(value, dict):
        return {key: _dump_models(item) for key, item in value.items()}
    return value


def _encode_vector(value: list[float]) -> str:
    return f"[{','.join(map(repr, value))}]"


_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "bigint": _encode_int,
    "double precision": _encode_float,
    "numeric": _encode_decimal,
    "timestamptz": _encode_datetime,
    "date": date.isoformat,
    "jsonb": _encode_json,
    "vector": _encode_vector,
}
