"""list_schema: what kinds of things are stored."""

from __future__ import annotations

from typing import Any

from rem.tools.entity_types import known_types, outlined
from rem.tools.env import ToolEnv


async def list_schema(env: ToolEnv) -> dict[str, Any]:
    """List the kinds of things in memory: each table with its fields, its key, and what a search reads of it.

    Use it before you write SQL or a FROM or WHERE clause. get_schema tells the types of one table's fields.
    For example: list_schema()
    """
    types = [outlined(model) for model in await known_types(env)]
    return {"status": "success", "types": types, "count": len(types)}
