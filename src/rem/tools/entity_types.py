"""The kinds of things that a memory holds, as a model needs to know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rem.models import BUILTIN_ENTITIES, Entity
from rem.tools.env import ToolEnv

_OWN_AFFAIRS = frozenset({"tenant_id", "user_id", "deleted_at", "run_id", "embedding"})
"""Columns that the store keeps for itself; a query sees the caller's rows without naming them."""


async def known_types(env: ToolEnv) -> Sequence[type[Entity]]:
    """Those of the database, with the ones that its users registered; without one, those that come with REM."""
    if env.memory is None:
        return BUILTIN_ENTITIES
    types = env.rem.store(env.scope).types
    async with env.rem.database.connection() as connection:
        await types.learn(connection)
    return list(types.models.values())


def outlined(model: type[Entity]) -> dict[str, Any]:
    """A type in a few lines: its own fields, its key and what is searched."""
    kind = model.entity_type
    return {
        "table": kind.table,
        "description": _summary(model),
        "key": list(kind.key_fields),
        "searched": list(kind.search_fields),
        "fields": [name for name in model.model_fields if name not in Entity.model_fields],
    }


def described(model: type[Entity]) -> dict[str, Any]:
    """A type with what each field takes; those that every type has are told apart."""
    properties = model.model_json_schema(mode="serialization").get("properties", {})
    shown = {name: _plain(schema) for name, schema in properties.items() if name not in _OWN_AFFAIRS}
    own = {name: schema for name, schema in shown.items() if name not in Entity.model_fields}
    common = {name: schema for name, schema in shown.items() if name in Entity.model_fields}
    return {**outlined(model), "fields": own, "common_fields": common}


def _summary(model: type[Entity]) -> str:
    text = model.__doc__ if "__doc__" in vars(model) else None
    return (text or "A type of the user's own.").strip().partition("\n")[0]


def _plain(schema: dict[str, Any]) -> str:
    """A type as a person would say it: text, number, list of text, or one of some values."""
    if "anyOf" in schema:
        return " or ".join(_plain(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2]).lower()
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        return f"list of {_plain(schema.get('items', {}))}"
    return {"date-time": "time", "uuid": "uuid"}.get(str(schema.get("format")), _WORDS.get(kind, kind))


_WORDS = {"string": "text", "integer": "whole number", "object": "JSON object"}
