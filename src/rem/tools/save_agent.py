"""save_agent: keep an agent that was written in a conversation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rem.errors import ToolFailedError
from rem.tools.env import ToolEnv


async def save_agent(
    env: ToolEnv,
    definition: Annotated[str, Field(min_length=1, max_length=200_000, description="The agent's YAML, whole.")],
) -> dict[str, Any]:
    """Keep an agent that you wrote for the user, who can then talk to it by its name. Saving it again changes it.

    Look at an existing one first: read_resource(uri="rem://agents/rem"). The definition is checked before it is kept,
    and errors name the line. For example:
    save_agent(definition="type: object\\ndescription: You answer questions about releases, from memory only.\\n
    properties:\\n  answer: {type: string}\\nrequired: [answer]\\njson_schema_extra:\\n  kind: agent\\n
      name: release-helper\\n  tools:\\n    - name: search_rem\\n")
    """
    if env.agents is None:
        raise ToolFailedError("Agents cannot be saved from here.")
    saved = await env.agents.save(definition, env.scope)
    return {"status": "success", "name": saved.name, "uri": f"rem://agents/{saved.name}"}
