"""Entity: the base class of all stored types, with the fields and the table settings they share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self
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

MAX_CLOCK_SKEW = timedelta(seconds=5)
"""Clocks of different machines differ; a time may be this far in the future."""
_TEXT_FIELDS = ("text", "content", "body", "summary", "description")
"""Names of the main text among several fields that are searched."""
_TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


@dataclass(frozen=True, slots=True)
class EntityType:
    """The table of an entity class, and how its rows are found."""

    table: str
    key_expression: str = "rem.rem_key(name)"
    """SQL expression over the columns of the table that gives the key."""
    key_fields: tuple[str, ...] = ("name",)
    """Fields that identify a row. The first one gives the key."""
    summary_field: str | None = None
    search_fields: tuple[str, ...] = ()
    text_field: str | None = None
    """The main text, which people read."""


_NO_TYPE = EntityType("")


class _Text:
    """The attribute `Entity.text`. Unlike a property, it lets a subclass have a field of this name."""

    def __get__(self, entity: Entity | None, owner: type[Entity]) -> str:
        if entity is None:
            raise AttributeError("text")
        return owner.find_text(entity.__dict__)


class Entity(BaseModel):
    """A stored thing. REM writes the fields that you set; other fields keep their stored values.

    The store sets `key`, the owner and the times. Subclass it with `table="…"` to define your own type.
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True, ser_json_inf_nan="null", ignored_types=(_Text,))

    entity_type: ClassVar[EntityType]
    if TYPE_CHECKING:

        @property
        def text(self) -> str:
            """Return the text that people read, such as the content of a message; "" if there is none."""
    else:
        text = _Text()

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
        """Accept the table settings. `__pydantic_init_subclass__` reads them, because it knows the fields."""
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
        text: str | None = None,
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
            key_expression or _get_key_expression(key_fields[0]),
            tuple(key_fields),
            summary,
            tuple(search),
            text or _choose_text_field(cls, search, summary),
        )

    @classmethod
    def find_text(cls, values: Mapping[str, object]) -> str:
        """Return the text of fields by name, as `text` does for an entity."""
        name = cls.text_field()
        text = values.get(name) if name is not None else None
        return text if isinstance(text, str) else ""

    @classmethod
    def text_field(cls) -> str | None:
        """Return the name of the field that holds the text."""
        return getattr(cls, "entity_type", _NO_TYPE).text_field

    @property
    def fields_to_write(self) -> frozenset[str]:
        """Return the fields that the caller set, and default lists and objects that the caller has filled."""
        values, set_fields = self.__dict__, self.__pydantic_fields_set__
        filled = [name for name in _get_collection_fields(type(self)) if values[name] and name not in set_fields]
        return frozenset(set_fields).union(filled) if filled else frozenset(set_fields)

    @property
    def revision(self) -> datetime | None:
        """Return the `updated_at` that was read from the store. None for a new entity."""
        # Pydantic's own access to a private attribute is ten times slower, and a bulk load asks for it often.
        return (self.__pydantic_private__ or {}).get("_revision")

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        """Build the entity of a stored row, without the rules for new input. Raise CorruptRowError on a misfit."""
        try:
            stored = _create_row_model(cls).model_validate(row)
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
    def _refuse_future(cls, value: datetime) -> datetime:
        if value > utc_now() + MAX_CLOCK_SKEW:
            raise ValueError("is in the future")
        return value

    def _check_label(self) -> None:
        """Check the key field as a label, also where a custom type declares it as a plain str."""
        name = getattr(type(self), "entity_type", _NO_TYPE).key_fields[0]
        label = self.__dict__.get(name)
        if isinstance(label, str):
            try:
                check_label(label)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error

    @model_validator(mode="after")
    def _check_storable_fields(self) -> Self:
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
"""Columns that the upsert statement adds to the incoming rows."""


def _choose_text_field(model: type[Entity], search: Sequence[str], summary: str | None) -> str | None:
    if "text" in model.model_fields:
        return "text"
    return next((name for name in _TEXT_FIELDS if name in search), search[0] if search else summary)


def _describe_corruption(model: type[Entity], row: dict[str, Any], error: ValidationError) -> str:
    fields = ", ".join(sorted({str(issue["loc"][0]) for issue in error.errors()}))
    return (
        f"The stored row {row.get('id')} of {model.entity_type.table} does not fit {model.__name__} (in {fields}): "
        "something other than REM changed it. Fix the row by SQL, or erase it."
    )


@cache
def _create_row_model(model: type[Entity]) -> type[BaseModel]:
    """Build a model with the field types of `model` but without its rules. It ignores unknown columns."""
    fields: dict[str, Any] = {name: (_get_row_type(field), ...) for name, field in model.model_fields.items()}
    return create_model(f"{model.__name__}Row", __config__=ConfigDict(extra="ignore"), **fields)


def _get_row_type(field: FieldInfo) -> Any:
    return UtcDateTime if field.annotation is datetime else field.annotation


@cache
def _get_collection_fields(model: type[Entity]) -> tuple[str, ...]:
    return tuple(name for name, field in model.model_fields.items() if field.default_factory in (list, dict))


def _get_key_expression(field: str) -> str:
    """Return the SQL of the key. It quotes a field such as `order` or `user`, which is an SQL keyword."""
    return "rem.rem_key(name)" if field == "name" else f'rem.rem_key("{field}")'


def _check_storable(value: Any) -> None:
    """Raise ValueError if a text inside the value cannot be stored by PostgreSQL."""
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, list) and value and isinstance(value[0], str):
        for item in value:
            check_text(item)
    elif isinstance(value, BaseModel):
        to_json_value(value.model_dump(mode="json"))
