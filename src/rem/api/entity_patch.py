"""Create entities from request fields, apply PATCH fields to them, and check their ETags."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from fastapi import HTTPException
from pydantic import ValidationError

from rem.api.errors import MAX_VALIDATION_ERRORS, describe_validation_error
from rem.db.table import IMMUTABLE_COLUMNS
from rem.errors import InvalidInputError
from rem.models import Entity

T = TypeVar("T", bound=Entity)
STORE_FIELDS = IMMUTABLE_COLUMNS - {"id", "created_at"}
"""The fields that only the store sets. A new entity may bring `id` and `created_at`, for example for an import."""


def build_entity(model: type[T], fields: Mapping[str, Any]) -> T:
    """Return a new entity with these fields. Raise InvalidInputError if a field is invalid or set by the store."""
    forbidden = sorted(STORE_FIELDS & set(fields))
    if forbidden:
        raise InvalidInputError(f"{', '.join(forbidden)}: set by the store; leave it out.")
    return _validate(model, fields)


def apply_patch(entity: T, fields: Mapping[str, Any]) -> T:
    """Return the entity with some fields changed.

    `fields` may contain fields of the store with their stored values, so that a client can send back what it read.
    """
    stored = entity.model_dump(mode="json")
    fields = _drop_table(entity, fields)
    if "updated_at" in fields:
        _check_updated_at(entity, fields["updated_at"])
    immutable = (IMMUTABLE_COLUMNS - {"updated_at"}) & set(fields)
    changed = sorted(name for name in immutable if fields[name] != stored[name])
    if changed:
        raise InvalidInputError(f"{', '.join(changed)}: set by the store and cannot change; leave it out.")
    changes = {name: value for name, value in fields.items() if name not in IMMUTABLE_COLUMNS}
    unchanged = {name: value for name, value in stored.items() if name not in IMMUTABLE_COLUMNS}
    validated = _validate(type(entity), {**unchanged, **changes})
    return entity.model_copy(update={name: getattr(validated, name) for name in changes})


def _drop_table(entity: Entity, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields without `table`, which every response contains. Raise an error if it names another table."""
    table = entity.entity_type.table
    if "table" not in fields or "table" in type(entity).model_fields:
        return fields
    if fields["table"] != table:
        raise InvalidInputError(f"table: this entity is in {table} and cannot move; leave it out.")
    return {name: value for name, value in fields.items() if name != "table"}


def _validate(model: type[T], fields: Mapping[str, Any]) -> T:
    unknown = [name for name in fields if name not in model.model_fields]
    # Each unknown field would become an error of its own, which takes long to describe if there are thousands.
    dropped = set(unknown[MAX_VALIDATION_ERRORS:]) if model.model_config.get("extra") == "forbid" else set()
    try:
        return model.model_validate({name: value for name, value in fields.items() if name not in dropped})
    except ValidationError as error:
        message, _field = describe_validation_error(error)
        more = f" And {len(dropped)} more unknown fields." if dropped else ""
        raise InvalidInputError(f"{model.entity_type.table}: {message}{more}") from error


def _check_updated_at(entity: Entity, value: Any) -> None:
    """Raise an error if the entity has changed since `value`."""
    try:
        known = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise InvalidInputError("updated_at: must be the time that was read; or leave it out.") from error
    if known != entity.updated_at:
        raise precondition_failed()


def entity_etag(entity: Entity) -> str:
    """Return the ETag of this version of the entity."""
    return f'"{entity.updated_at.isoformat()}"'


def check_if_match(entity: Entity, if_match: str | None) -> None:
    """Raise a 412 error if the header If-Match names another version of the entity."""
    if if_match is None:
        return
    tags = [tag.strip().removeprefix("W/") for tag in if_match.split(",")]
    if "*" not in tags and entity_etag(entity) not in tags:
        raise precondition_failed()


def precondition_failed() -> HTTPException:
    """Return the error for a client that knows an older version."""
    return HTTPException(412, "The entity has changed since you read it: read it again.")
