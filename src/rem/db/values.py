"""Python values that PostgreSQL's types take, from what people write in filters."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, TypeAdapter

from rem.models.values import as_json, storable_text

_ADAPTERS: dict[str, TypeAdapter[Any]] = {
    "boolean": TypeAdapter(bool),
    "bigint": TypeAdapter(Annotated[int, Field(ge=-(2**63), lt=2**63)]),
    "double precision": TypeAdapter(float),
    "numeric": TypeAdapter(Decimal),
    "timestamptz": TypeAdapter(datetime),
    "date": TypeAdapter(date),
    "uuid": TypeAdapter(UUID),
}


def fit(value: Any, sql_type: str) -> Any:
    """The value as the type wants it; a ValueError if it cannot be."""
    if sql_type == "jsonb":
        return as_json(value)
    if sql_type.endswith("[]"):
        if not isinstance(value, list | tuple | set | frozenset):
            raise ValueError("not a list")
        return [fit(item, sql_type.removesuffix("[]")) for item in value]
    if value is None:
        raise ValueError("no value")
    if isinstance(value, Enum):
        value = value.value
    if sql_type == "text":
        return _as_text(value)
    if sql_type == "numeric" and isinstance(value, float):
        return Decimal(repr(value))
    if sql_type not in _ADAPTERS:
        raise ValueError("not comparable")
    fitted = _ADAPTERS[sql_type].validate_python(value)
    return fitted.replace(tzinfo=UTC) if isinstance(fitted, datetime) and fitted.tzinfo is None else fitted


def _as_text(value: Any) -> str:
    """Text as `#>>` shows a JSON value: `metadata.done = true` compares with 'true'."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return storable_text(str(value))
