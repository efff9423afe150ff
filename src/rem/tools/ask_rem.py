"""ask_rem: a question in plain language."""

from __future__ import annotations

from typing import Annotated, Any

from loguru import logger
from pydantic import Field

from rem.errors import AgentNotFoundError, ModelError
from rem.tools.env import ToolEnv
from rem.tools.search_rem import answered, ask

QUERY_AGENT = "query-agent"
_SECONDS = 120


async def ask_rem(
    env: ToolEnv,
    question: Annotated[str, Field(min_length=1, description="The question, in plain words and any language.")],
) -> dict[str, Any]:
    """Ask the memory a question in plain language, without knowing how it is organised.

    Use it for open questions ("what did we decide about pricing?"). If you know a name or the query language, use
    lookup or search_rem, which are exact and faster. The notes say how the question was understood.
    For example: ask_rem(question="who works on Project Atlas?")
    """
    notes: tuple[str, ...] = ()
    # The agent that writes queries must not be asked by itself.
    if env.delegate is not None and env.has_model and env.context.agent_schema_uri != QUERY_AGENT:
        try:
            return await env.delegate(QUERY_AGENT, question, _SECONDS)
        except (AgentNotFoundError, ModelError, TimeoutError) as error:
            logger.warning("The question is answered without a language model: {}", type(error).__name__)
            notes = (f"Answered without a language model: {error or 'it took too long.'}",)
    answer = answered(await ask(env, question))
    return {**answer, "notes": [*notes, *answer["notes"]]} if notes else answer
