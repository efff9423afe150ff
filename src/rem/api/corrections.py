"""What a client writes of an entity: the fields of its class, without those that the store gives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from rem.api.errors import explained
from rem.api.revisions import stale
from rem.db.table import FIXED
from rem.errors import InvalidInputError
from rem.models import Entity

T = TypeVar("T", bound=Entity)
_GIVEN = FIXED - {"id", "created_at"}
"""What only the store gives. A new entity may bring its id and when it was made, as an imported one does."""


def new_entity(model: type[T], fields: Mapping[str, Any]) -> T:
    """A new entity with these fields."""
    given = sorted(_GIVEN & set(fields))
    if given:
        raise InvalidInputError(f"{', '.join(given)}: given by the store; leave it out.")
    return _validated(model, fields)


def changed(entity: T, fields: Mapping[str, Any]) -> T:
    """The entity with some fields changed. Fields of the store's may be sent back as they were read."""
    stored = entity.model_dump(mode="json")
    fields = _without_table(entity, fields)
    if "updated_at" in fields:
        _check_time(entity, fields["updated_at"])
    touched = sorted(name for name in (FIXED - {"updated_at"}) & set(fields) if fields[name] != stored[name])
    if touched:
        raise InvalidInputError(f"{', '.join(touched)}: given by the store and never changed; leave it out.")
    changes = {name: value for name, value in fields.items() if name not in FIXED}
    kept = {name: value for name, value in stored.items() if name not in FIXED}
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
        message, _field = explained(error)
        raise InvalidInputError(f"{model.entity_type.table}: {message}") from error


def _check_time(entity: Entity, value: Any) -> None:
    """An error if the entity has changed since the time that was read."""
    try:
        known = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise InvalidInputError("updated_at: must be the time that was read; or leave it out.") from error
    if known != entity.updated_at:
        raise stale()
