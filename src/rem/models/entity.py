"""Entity: what every stored thing has, and what a class says of the table that keeps it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Self
from uuid import UUID, uuid4

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from rem.errors import CorruptRowError, InvalidInputError
from rem.models.edge import Edge
from rem.models.field_types import JsonObject, UtcDateTime, check_label, check_text, to_json_value, utc_now

_CLOCK_SKEW = timedelta(seconds=5)
_TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


@dataclass(frozen=True, slots=True)
class EntityType:
    """Where a class is stored and how its rows are found."""

    table: str
    key_expression: str = "rem.rem_key(name)"
    """SQL over the table's own columns: the natural key."""
    key_fields: tuple[str, ...] = ("name",)
    """The fields that a row may be known by, the natural one first."""
    summary_field: str | None = None
    search_fields: tuple[str, ...] = ()


_NO_TYPE = EntityType("")


class Entity(BaseModel):
    """A stored thing. Fields that you set are written; fields that you leave out keep their stored values.

    `id`, `key`, the owner and the times are given by the store. Subclass it with `table="…"` for a type of your own.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True, ser_json_inf_nan="null")

    entity_type: ClassVar[EntityType]

    id: UUID = Field(default_factory=uuid4)
    tenant_id: str = "default"
    user_id: str | None = None
    key: str | None = Field(default=None, description="the normalised key; read-only")
    created_at: UtcDateTime = Field(default_factory=utc_now)
    updated_at: UtcDateTime = Field(default_factory=utc_now)
    deleted_at: UtcDateTime | None = None
    expires_at: UtcDateTime | None = None
    graph_edges: list[Edge] = Field(default_factory=list)
    metadata: JsonObject = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    origin: str = Field(default="user", min_length=1, max_length=255)
    sources: list[str] = Field(default_factory=list)
    run_id: UUID | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    valid_from: UtcDateTime | None = None
    valid_to: UtcDateTime | None = None

    _revision: datetime | None = PrivateAttr(default=None)

    def __init_subclass__(cls, **settings: Any) -> None:
        """The table settings are read in `__pydantic_init_subclass__`, when the fields are known."""
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        *,
        table: str | None = None,
        key_expression: str | None = None,
        key_fields: tuple[str, ...] = ("name",),
        summary: str | None = None,
        search: tuple[str, ...] | list[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if table is None:
            return
        if not _TABLE_NAME.match(table):
            raise InvalidInputError(
                f"{cls.__name__}: the table name {table!r} must be 1 to 40 lower-case letters, digits and underscores."
            )
        reserved = _RESERVED_FIELDS & set(cls.model_fields)
        if reserved:
            raise InvalidInputError(f"{cls.__name__}: the names {', '.join(sorted(reserved))} are REM's own.")
        for field in (*key_fields, *search, *([summary] if summary else [])):
            if field not in cls.model_fields:
                raise InvalidInputError(f"{cls.__name__} has no field {field!r}, which its table settings name.")
        cls.entity_type = EntityType(
            table,
            key_expression or _key_expression(key_fields[0]),
            tuple(key_fields),
            summary,
            tuple(search),
        )

    @property
    def fields_to_write(self) -> frozenset[str]:
        """The fields that were set, and the lists and objects that were empty by default and have been filled since."""
        values, given = self.__dict__, self.__pydantic_fields_set__
        filled = [name for name in _empty_by_default(type(self)) if values[name] and name not in given]
        return frozenset(given).union(filled) if filled else frozenset(given)

    @property
    def revision(self) -> datetime | None:
        """The version that was read from the store; None for an entity that was not."""
        return self._revision

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        """The entity that a stored row stands for. The rules for new input do not apply to it."""
        try:
            stored = _row_model(cls).model_validate(row)
        except ValidationError as error:
            raise CorruptRowError(_describe_corruption(cls, row, error)) from error
        entity = cls.__new__(cls)
        entity.__setstate__(
            {
                "__dict__": stored.__dict__,
                "__pydantic_fields_set__": stored.__pydantic_fields_set__,
                "__pydantic_extra__": None,
                "__pydantic_private__": {"_revision": stored.__dict__["updated_at"]},
            }
        )
        return entity

    @field_validator("created_at", "updated_at")
    @classmethod
    def _not_in_the_future(cls, value: datetime) -> datetime:
        if value > utc_now() + _CLOCK_SKEW:
            raise ValueError("is in the future")
        return value

    def _check_label(self) -> None:
        """The natural key of a class of the user's own may be a plain str; it is a label all the same."""
        name = getattr(type(self), "entity_type", _NO_TYPE).key_fields[0]
        label = self.__dict__.get(name)
        if isinstance(label, str):
            try:
                check_label(label)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error

    @model_validator(mode="after")
    def _storable(self) -> Self:
        for name in self.model_fields_set:
            try:
                _check_storable(self.__dict__[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        self._check_label()
        if "updated_at" in self.model_fields_set and self.updated_at < self.created_at:
            raise ValueError("updated_at: is before created_at")
        if self.valid_from and self.valid_to and self.valid_to < self.valid_from:
            raise ValueError("valid_to: is before valid_from")
        return self


_RESERVED_FIELDS = frozenset({"rem_row", "rem_revision"})


def _describe_corruption(model: type[Entity], row: dict[str, Any], error: ValidationError) -> str:
    fields = ", ".join(sorted({str(problem["loc"][0]) for problem in error.errors()}))
    return (
        f"The stored row {row.get('id')} of {model.entity_type.table} does not fit {model.__name__} (in {fields}), so "
        "it was changed past REM: mend the row by SQL, or erase it."
    )


@cache
def _row_model(model: type[Entity]) -> type[BaseModel]:
    """The fields of a class as the database has them: types, but no rules; columns that the class lacks are ignored."""
    fields: dict[str, Any] = {name: (_row_type(field), ...) for name, field in model.model_fields.items()}
    return create_model(f"{model.__name__}Row", __config__=ConfigDict(extra="ignore"), **fields)


def _row_type(field: FieldInfo) -> Any:
    return UtcDateTime if field.annotation is datetime else field.annotation


@cache
def _empty_by_default(model: type[Entity]) -> tuple[str, ...]:
    return tuple(name for name, field in model.model_fields.items() if field.default_factory in (list, dict))


def _key_expression(field: str) -> str:
    """The key of a label. `name` needs no quotes; `order` or `user` would be read as SQL."""
    return "rem.rem_key(name)" if field == "name" else f'rem.rem_key("{field}")'


def _check_storable(value: Any) -> None:
    """Text must be text that PostgreSQL holds, wherever it hides in a field of any type."""
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, list) and value and isinstance(value[0], str):
        for item in value:
            check_text(item)
    elif isinstance(value, BaseModel):
        to_json_value(value.model_dump(mode="json"))
