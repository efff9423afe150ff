"""fuzzy: names that are nearly right."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rem.errors import InvalidInputError
from rem.query.tree import Fuzzy
from rem.tools.env import ToolEnv
from rem.tools.search_rem import run


async def fuzzy(
    env: ToolEnv,
    text: Annotated[str, Field(description="A name or part of one, possibly misspelt.")],
    limit: Annotated[int, Field(ge=1, le=50, description="At most this many rows.")] = 5,
) -> dict[str, Any]:
    """Find names in memory that are nearly what you have: misspelt, incomplete or spoken ones.

    Use lookup if you have the exact name, and search_rem with SEARCH for a topic rather than a name.
    For example: fuzzy(text="sara chenn") finds sarah-chen.
    """
    if not text.strip():
        raise InvalidInputError("The text is empty: give a name, or a part of one.")
    return await run(env, Fuzzy(text, limit=limit))
