"""Pages about the agents that a caller can ask."""

from __future__ import annotations

from typing import Any

from rem.errors import ToolFailedError
from rem.tools.env import AgentDirectory, ToolEnv

_LONGEST_SUMMARY = 300


async def agents(env: ToolEnv) -> dict[str, Any]:
    """The agents that can be asked, with what each is for."""
    found = await _directory(env).list(env.scope)
    rows = [
        {"name": agent.name, "description": _summary(agent.description), "uri": f"rem://agents/{agent.name}"}
        for agent in found
    ]
    return {"agents": rows, "count": len(rows)}


async def agent(env: ToolEnv, name: str) -> dict[str, Any]:
    """One agent, as it is defined: the document, and the YAML to start an agent of one's own from."""
    found = await _directory(env).get(name, env.scope)
    return {"name": found.name, "definition": found.as_document(), "yaml": found.as_yaml()}


def _directory(env: ToolEnv) -> AgentDirectory:
    if env.agents is None:
        raise ToolFailedError("There are no agents here.")
    return env.agents


def _summary(text: str) -> str:
    """The first paragraph, in one line."""
    line = " ".join(text.strip().split("\n\n")[0].split())
    return line if len(line) <= _LONGEST_SUMMARY else f"{line[:_LONGEST_SUMMARY]}…"
