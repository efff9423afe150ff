"""get_schema: one kind of thing in detail."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

from pydantic import Field

from rem.errors import NotFoundError
from rem.tools.entity_types import described, known_types
from rem.tools.env import ToolEnv


async def get_schema(
    env: ToolEnv,
    name: Annotated[str, Field(min_length=1, max_length=255, description="A table, such as moments.")],
) -> dict[str, Any]:
    """Tell the fields of one table in memory, with their types, for SQL and for WHERE clauses.

    list_schema tells which tables there are. For example: get_schema(name="moments")
    """
    models = {model.entity_type.table: model for model in await known_types(env)}
    by_class = {model.__name__.lower(): model for model in models.values()}
    asked = name.strip().lower()
    model = models.get(asked) or by_class.get(asked)
    if model is None:
        near = difflib.get_close_matches(asked, [*models, *by_class], n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise NotFoundError(f"There is no table {name[:100]!r}.{hint} The tables: {', '.join(models)}.")
    return {"status": "success", **described(model)}
