"""Run agents on the scripted model, as a library user does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from rem.agents.chat import AgentRequest
from rem.agents.service import Agents
from rem.app import Rem
from rem.context import AgentContext
from rem.settings import Settings
from tests.scripted_model import ScriptedModel


@asynccontextmanager
async def agents_with(settings: Settings, model: ScriptedModel, **changes: Any) -> AsyncIterator[Agents]:
    """Agents of a REM of their own on the scripted model, with other settings than the default ones."""
    llm = {"base_url": model.url, "default_model": "openai:scripted", "max_retries": 0, **changes.pop("llm", {})}
    changed = Settings.model_validate({**settings.model_dump(), "llm": llm, **changes})
    async with Rem.open(changed) as rem:
        yield rem.agents


def make_request(text: str, session: UUID | None = None, **given: Any) -> AgentRequest:
    session_id = str(session) if session else None
    return AgentRequest(context=AgentContext(user_id="alice", session_id=session_id), text=text, **given)
