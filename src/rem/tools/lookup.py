"""lookup: what answers to a key."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rem.errors import InvalidInputError
from rem.query.tree import Lookup
from rem.tools.env import ToolEnv
from rem.tools.search_rem import run


async def lookup(
    env: ToolEnv,
    key: Annotated[str, Field(description="A name or key, such as Sarah Chen, sarah-chen or users/sarah@example.com.")],
    offset: Annotated[
        int, Field(ge=0, le=1_000_000_000, description="Where to read on in a long text: the number in the note.")
    ] = 0,
) -> dict[str, Any]:
    """Get one thing from memory by its exact name or key, with its whole text. Instant; use it whenever you have a key.

    Also for keys that stand in other answers: edges (dst), sources, notes such as
    [Message truncated - REM LOOKUP session-…-msg-4 to recover full content], where the key is session-…-msg-4.
    If nothing answers to the key, use fuzzy (misspelt names) or search_rem with SEARCH (by meaning).
    For example: lookup(key="sarah-chen")
    """
    if not key.strip():
        raise InvalidInputError("The key is empty: give a name such as sarah-chen.")
    return await run(env, Lookup((key,)), offset=offset)
