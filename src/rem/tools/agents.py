"""The tools for other agents: ask_agent and save_agent."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import Field

from rem.errors import InvalidInputError, ToolFailedError
from rem.tools.binding import tool
from rem.tools.env import ToolEnv
from rem.tools.progress import report_step


@tool(open_world=True)
async def ask_agent(
    env: ToolEnv,
    agent_name: Annotated[str, Field(min_length=1, max_length=255, description="The agent, as rem://agents lists it.")],
    input_text: Annotated[str, Field(min_length=1, description="The task; the agent does not see your thoughts.")],
    input_data: Annotated[
        dict[str, Any] | None, Field(description="Facts that the agent needs, as JSON; they are added to the text.")
    ] = None,
    timeout_seconds: Annotated[int, Field(ge=1, le=3600, description="How long it may take.")] = 300,
) -> dict[str, Any]:
    """Let a specialised agent do a part of the work, in the same conversation and for the same user.

    Use it when an agent's description fits the task better than yours; read_resource(uri="rem://agents") lists them.
    The user may already see what it says as it says it: do not repeat its answer, add to it. For a plain search use
    search_rem instead, which is faster.
    For example: ask_agent(agent_name="summarizer", input_text="Summarise our talks about Project Atlas.")
    """
    if env.delegate is None:
        raise ToolFailedError("Other agents cannot be asked from here: answer yourself, with search_rem.")
    try:
        async with report_step(env, f"Asking {agent_name}"):
            return await env.delegate(agent_name, _append_data(input_text, input_data), timeout_seconds)
    except TimeoutError as error:
        raise ToolFailedError(f"{agent_name} did not answer within {timeout_seconds} seconds.") from error


@tool(destructive=True)
async def save_agent(
    env: ToolEnv,
    definition: Annotated[str, Field(min_length=1, max_length=200_000, description="The complete YAML of the agent.")],
) -> dict[str, Any]:
    """Store an agent that you wrote for the user, who can then talk to it by its name. Saving it again changes it.

    Look at an existing one first: read_resource(uri="rem://agents/rem"). The definition is checked before it is stored,
    and errors name the line. For example:
    save_agent(definition="type: object\\ndescription: You answer questions about releases, from memory only.\\n
    properties:\\n  answer: {type: string}\\nrequired: [answer]\\njson_schema_extra:\\n  kind: agent\\n
      name: release-helper\\n  tools:\\n    - name: search_rem\\n")
    """
    if env.agents is None:
        raise ToolFailedError("Agents cannot be saved from here.")
    agent = await env.agents.save(definition, env.scope)
    return {"status": "success", "name": agent.name, "uri": f"rem://agents/{agent.name}"}


def _append_data(text: str, data: dict[str, Any] | None) -> str:
    if not data:
        return text
    try:
        return f"{text}\n\n```json\n{orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()}\n```"
    except orjson.JSONEncodeError as error:
        raise InvalidInputError(f"input_data cannot be written as JSON: {error}.") from error
