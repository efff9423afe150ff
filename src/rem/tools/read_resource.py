"""read_resource: what MCP clients read as resources, for agents."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rem.tools.env import ToolEnv
from rem.tools.resources import read_page


async def read_resource(
    env: ToolEnv,
    uri: Annotated[str, Field(min_length=1, max_length=4096, description="The address, such as rem://agents.")],
) -> dict[str, Any]:
    """Read a page about the memory itself, its agents, or the user.

    - user://profile/me: who the user is, their interests and preferences
    - rem://agents, rem://agents/{name}: which agents can be asked, and how one is defined
    - rem://schema/entities, rem://schema/query-types: what is stored, and the query language with examples
    - rem://sessions, rem://sessions/{id}: the user's conversations
    - rem://moments/{page}, rem://moments/key/{key}: what happened, the latest first; pages count from 1
    - rem://status: versions, counts, and whether search and a language model are set up
    To find something by name or topic use lookup or search_rem. For example: read_resource(uri="user://profile/me")
    """
    return {"status": "success", "uri": uri, "content": await read_page(env, uri)}
