"""The tools that describe the tables of the memory: list_schema and get_schema."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from rem.errors import NotFoundError
from rem.models import BUILTIN_ENTITIES, Entity
from rem.tools.binding import tool
from rem.tools.env import ToolEnv

_INTERNAL_COLUMNS = frozenset({"tenant_id", "user_id", "deleted_at", "run_id", "embedding"})
"""Columns that a query does not need: it sees only the caller's live rows anyway."""
_TYPE_WORDS = {"string": "text", "integer": "whole number", "object": "JSON object"}


@tool(read_only=True)
async def list_schema(env: ToolEnv) -> dict[str, Any]:
    """List the tables in memory: each with its fields, its key, and the fields that SEARCH reads.

    Use it before you write SQL or a FROM or WHERE clause. get_schema gives the types of one table's fields.
    For example: list_schema()
    """
    types = [outline_entity_type(model) for model in await list_entity_types(env)]
    return {"status": "success", "types": types, "count": len(types)}


@tool(read_only=True)
async def get_schema(
    env: ToolEnv,
    name: Annotated[str, Field(min_length=1, max_length=255, description="A table, such as moments.")],
) -> dict[str, Any]:
    """Describe the fields of one table in memory, with their types, for SQL and for WHERE clauses.

    list_schema lists the tables. For example: get_schema(name="moments")
    """
    models = {model.entity_type.table: model for model in await list_entity_types(env)}
    models_by_class = {model.__name__.lower(): model for model in models.values()}
    wanted = name.strip().lower()
    model = models.get(wanted) or models_by_class.get(wanted)
    if model is None:
        similar = difflib.get_close_matches(wanted, [*models, *models_by_class], n=1)
        hint = f" Did you mean {similar[0]!r}?" if similar else ""
        raise NotFoundError(f"There is no table {name[:100]!r}.{hint} The tables: {', '.join(models)}.")
    return {"status": "success", **_describe_entity_type(model)}


async def list_entity_types(env: ToolEnv) -> Sequence[type[Entity]]:
    """Return the entity types of the database, registered ones included; without a database, the built-in ones."""
    if env.memory is None:
        return BUILTIN_ENTITIES
    types = env.rem.for_user(env.scope).store.types
    async with env.rem.database.connection() as connection:
        await types.refresh(connection)
    return list(types.models.values())


def outline_entity_type(model: type[Entity]) -> dict[str, Any]:
    """Return an entity type in short: its table, its own fields, its key and the fields that SEARCH reads."""
    entity_type = model.entity_type
    return {
        "table": entity_type.table,
        "description": _get_summary(model),
        "key": list(entity_type.key_fields),
        "searched": list(entity_type.search_fields),
        "fields": [name for name in model.model_fields if name not in Entity.model_fields],
    }


def _describe_entity_type(model: type[Entity]) -> dict[str, Any]:
    """Return an entity type with the type of each field; fields that all entities have are listed separately."""
    properties = model.model_json_schema(mode="serialization").get("properties", {})
    types = {name: _describe_type(schema) for name, schema in properties.items() if name not in _INTERNAL_COLUMNS}
    own = {name: text for name, text in types.items() if name not in Entity.model_fields}
    common = {name: text for name, text in types.items() if name in Entity.model_fields}
    return {**outline_entity_type(model), "fields": own, "common_fields": common}


def _get_summary(model: type[Entity]) -> str:
    text = model.__doc__ if "__doc__" in vars(model) else None
    return (text or "A type of the user's own.").strip().partition("\n")[0]


def _describe_type(schema: dict[str, Any]) -> str:
    """Return a JSON schema in words: "text", "list of text", "one of a, b"."""
    if "anyOf" in schema:
        return " or ".join(_describe_type(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2]).lower()
    name = str(schema.get("type", "anything"))
    if name == "array":
        return f"list of {_describe_type(schema.get('items', {}))}"
    return {"date-time": "time", "uuid": "uuid"}.get(str(schema.get("format")), _TYPE_WORDS.get(name, name))
