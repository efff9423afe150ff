"""The tools ask_agent and save_agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rem import Rem
from rem.agents.catalog import AgentCatalog
from rem.errors import (
    InvalidAgentError,
    NotFoundError,
    ToolFailedError,
)
from rem.settings import Settings
from rem.tools.agents import ask_agent, save_agent
from rem.tools.resources import read_resource
from tests.agents.sample_agents import COMPLETE
from tests.tools.tool_env import RecordingDelegate, env_for

ALICE, BOB = "alice@example.com", "bob@example.com"


async def test_saved_agent_belongs_to_its_user(rem: Rem, settings: Settings) -> None:
    agents = AgentCatalog(settings, rem)
    env = env_for(rem, ALICE, agents=agents)
    saved = await save_agent(env, COMPLETE)
    assert saved == {"status": "success", "name": "release-helper", "uri": "rem://agents/release-helper"}
    page = (await read_resource(env, "rem://agents/release-helper"))["content"]
    assert page["definition"]["json_schema_extra"]["tools"][0]["name"] == "search_rem"
    assert "release-helper" in page["yaml"]
    with pytest.raises(NotFoundError):
        await read_resource(env_for(rem, BOB, agents=agents), "rem://agents/release-helper")
    with pytest.raises(InvalidAgentError, match="line"):
        await save_agent(env, COMPLETE.replace("search_rem", "serch_rem"))


async def test_ask_agent_sends_text_and_data() -> None:
    delegate = RecordingDelegate({"status": "success", "output": "done"})
    env = env_for(None, ALICE, delegate=delegate)
    assert await ask_agent(env, "summarizer", "Sum it up.", {"n": 1}, 20) == {"status": "success", "output": "done"}
    assert delegate.requests == [("summarizer", 'Sum it up.\n\n```json\n{\n  "n": 1\n}\n```', 20)]


async def test_ask_agent_reports_a_timeout() -> None:
    async def sleeps(_name: str, _text: str, timeout_seconds: float) -> dict[str, Any]:
        async with asyncio.timeout(timeout_seconds / 100):
            await asyncio.sleep(60)
        return {}

    with pytest.raises(ToolFailedError, match="did not answer within 1 seconds"):
        await ask_agent(env_for(None, ALICE, delegate=sleeps), "rem", "hello", timeout_seconds=1)
    with pytest.raises(ToolFailedError, match="answer yourself"):
        await ask_agent(env_for(None, ALICE), "rem", "hello")
