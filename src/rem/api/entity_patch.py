"""What a client writes of an entity: the fields of its class, without those that the store gives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from fastapi import HTTPException
from pydantic import ValidationError

from rem.api.errors import describe_validation_error
from rem.db.table import IMMUTABLE_COLUMNS
from rem.errors import InvalidInputError
from rem.models import Entity


def entity_etag(entity: Entity) -> str:
    """The ETag of an entity as it was read."""
    return f'"{entity.updated_at.isoformat()}"'


def check_if_match(entity: Entity, if_match: str | None) -> None:
    """An error if the client knows another version of the entity than this."""
    if if_match is None:
        return
    known = [tag.strip().removeprefix("W/") for tag in if_match.split(",")]
    if "*" not in known and entity_etag(entity) not in known:
        raise precondition_failed()


def precondition_failed() -> HTTPException:
    """The error for who knows an older version."""
    return HTTPException(412, "It was changed since it was read: read it again.")


T = TypeVar("T", bound=Entity)
STORE_FIELDS = IMMUTABLE_COLUMNS - {"id", "created_at"}
"""What only the store gives. A new entity may bring its id and when it was made, as an imported one does."""


def build_entity(model: type[T], fields: Mapping[str, Any]) -> T:
    """A new entity with these fields."""
    given = sorted(STORE_FIELDS & set(fields))
    if given:
        raise InvalidInputError(f"{', '.join(given)}: given by the store; leave it out.")
    return _validated(model, fields)


def apply_patch(entity: T, fields: Mapping[str, Any]) -> T:
    """The entity with some fields changed. Fields of the store's may be sent back as they were read."""
    stored = entity.model_dump(mode="json")
    fields = _without_table(entity, fields)
    if "updated_at" in fields:
        _check_time(entity, fields["updated_at"])
    touched = sorted(
        name for name in (IMMUTABLE_COLUMNS - {"updated_at"}) & set(fields) if fields[name] != stored[name]
    )
    if touched:
        raise InvalidInputError(f"{', '.join(touched)}: given by the store and never changed; leave it out.")
    changes = {name: value for name, value in fields.items() if name not in IMMUTABLE_COLUMNS}
    kept = {name: value for name, value in stored.items() if name not in IMMUTABLE_COLUMNS}
    checked = _validated(type(entity), {**kept, **changes})
    return entity.model_copy(update={name: getattr(checked, name) for name in changes})


def _without_table(entity: Entity, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields without the table, which every answer names beside them; an error if it is another one."""
    table = entity.entity_type.table
    if "table" not in fields or "table" in type(entity).model_fields:
        return fields
    if fields["table"] != table:
        raise InvalidInputError(f"table: this one is in {table}, and stays there; leave it out.")
    return {name: value for name, value in fields.items() if name != "table"}


def _validated(model: type[T], fields: Mapping[str, Any]) -> T:
    try:
        return model.model_validate(dict(fields))
    except ValidationError as error:
        message, _field = describe_validation_error(error)
        raise InvalidInputError(f"{model.entity_type.table}: {message}") from error


def _check_time(entity: Entity, value: Any) -> None:
    """An error if the entity has changed since the time that was read."""
    try:
        known = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise InvalidInputError("updated_at: must be the time that was read; or leave it out.") from error
    if known != entity.updated_at:
        raise precondition_failed()
