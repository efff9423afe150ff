"""The kinds of things that a memory holds, as a model needs to know them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from rem.errors import NotFoundError
from rem.models import BUILTIN_ENTITIES, Entity
from rem.tools.env import ToolEnv

_OWN_AFFAIRS = frozenset({"tenant_id", "user_id", "deleted_at", "run_id", "embedding"})
"""Columns that the store keeps for itself; a query sees the caller's rows without naming them."""


async def list_entity_types(env: ToolEnv) -> Sequence[type[Entity]]:
    """Those of the database, with the ones that its users registered; without one, those that come with REM."""
    if env.memory is None:
        return BUILTIN_ENTITIES
    types = env.rem.store(env.scope).types
    async with env.rem.database.connection() as connection:
        await types.refresh(connection)
    return list(types.models.values())


def outline_type(model: type[Entity]) -> dict[str, Any]:
    """A type in a few lines: its own fields, its key and what is searched."""
    kind = model.entity_type
    return {
        "table": kind.table,
        "description": _summary(model),
        "key": list(kind.key_fields),
        "searched": list(kind.search_fields),
        "fields": [name for name in model.model_fields if name not in Entity.model_fields],
    }


def describe_type(model: type[Entity]) -> dict[str, Any]:
    """A type with what each field takes; those that every type has are told apart."""
    properties = model.model_json_schema(mode="serialization").get("properties", {})
    shown = {name: _plain(schema) for name, schema in properties.items() if name not in _OWN_AFFAIRS}
    own = {name: schema for name, schema in shown.items() if name not in Entity.model_fields}
    common = {name: schema for name, schema in shown.items() if name in Entity.model_fields}
    return {**outline_type(model), "fields": own, "common_fields": common}


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


async def list_schema(env: ToolEnv) -> dict[str, Any]:
    """List the kinds of things in memory: each table with its fields, its key, and what a search reads of it.

    Use it before you write SQL or a FROM or WHERE clause. get_schema tells the types of one table's fields.
    For example: list_schema()
    """
    types = [outline_type(model) for model in await list_entity_types(env)]
    return {"status": "success", "types": types, "count": len(types)}


async def get_schema(
    env: ToolEnv,
    name: Annotated[str, Field(min_length=1, max_length=255, description="A table, such as moments.")],
) -> dict[str, Any]:
    """Tell the fields of one table in memory, with their types, for SQL and for WHERE clauses.

    list_schema tells which tables there are. For example: get_schema(name="moments")
    """
    models = {model.entity_type.table: model for model in await list_entity_types(env)}
    by_class = {model.__name__.lower(): model for model in models.values()}
    asked = name.strip().lower()
    model = models.get(asked) or by_class.get(asked)
    if model is None:
        near = difflib.get_close_matches(asked, [*models, *by_class], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise NotFoundError(f"There is no table {name[:100]!r}.{hint} The tables: {', '.join(models)}.")
    return {"status": "success", **describe_type(model)}
