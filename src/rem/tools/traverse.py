"""traverse: what is connected with something."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rem.errors import InvalidInputError
from rem.query.tree import Direction, Lookup, Traverse
from rem.tools.env import ToolEnv
from rem.tools.search_rem import run


async def traverse(
    env: ToolEnv,
    key: Annotated[str, Field(description="The name or key to start from.")],
    type: Annotated[  # noqa: A002  # the word of the query language
        str | None, Field(description="Only edges of this type, such as manages; several with commas between them.")
    ] = None,
    depth: Annotated[int, Field(ge=0, le=5, description="How many edges away; 0 lists the types of the edges.")] = 1,
    direction: Annotated[Direction, Field(description="out: what it points at; in: what points at it.")] = "both",
    limit: Annotated[int, Field(ge=1, le=100, description="At most this many rows.")] = 25,
) -> dict[str, Any]:
    """Follow the connections of something in memory: who manages whom, what a project depends on, who was at an event.

    Use depth=0 first if you do not know which types of edges there are. Each row has its depth, the path to it and the
    type of the edge. To find the thing to start from, use lookup or fuzzy.
    For example: traverse(key="sarah-chen", type="manages", depth=2)
    """
    if not key.strip():
        raise InvalidInputError("The key is empty: give the name of the thing to start from.")
    types = tuple(part.strip() for part in (type or "").split(",") if part.strip())
    start = Lookup((key,))
    return await run(env, Traverse(start, types, depth=depth, limit=limit, direction=direction))
