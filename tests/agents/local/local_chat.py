"""Ask `rem:local` a question with real tools, and record the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    FunctionToolCallEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPartDelta,
    UsageLimits,
)
from pydantic_ai.messages import ModelMessage, TextPart

from rem.agents.factory import make_output_type, validate_output
from rem.agents.local.model import get_local_model
from rem.app import Rem
from rem.context import AgentContext
from rem.events import AnyEvent, MetadataEvent
from rem.tools.binding import make_agent_tool
from rem.tools.env import ToolEnv
from rem.tools.registry import AGENT_TOOLS

CONTEXT = AgentContext(user_id="alice")
NO_MODEL_NOTICE = "No language model is configured"

LAUNCH, WATER = "Why did the launch of Atlas slip?", "How often do tomatoes want water?"


class RecordedAnswer:
    """The tool calls, the text and the output of a run on `rem:local`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.pieces: list[str] = []
        self.output: Any = None
        self.messages: list[ModelMessage] = []
        self.notes: list[MetadataEvent] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def tools(self) -> list[str]:
        return [name for name, _ in self.calls]


async def ask(
    memory: Rem | None,
    question: str,
    *,
    tools: Sequence[str] = ("search_rem", "register_metadata"),
    output_schema: dict[str, Any] | None = None,
    history: Sequence[ModelMessage] | None = None,
) -> RecordedAnswer:
    answer = RecordedAnswer()

    async def listen(event: AnyEvent) -> None:
        assert isinstance(event, MetadataEvent)
        answer.notes.append(event)

    agent: Agent[ToolEnv, Any] = Agent(
        get_local_model(),
        deps_type=ToolEnv,
        instructions="Ignored.",
        tools=[make_agent_tool(AGENT_TOOLS[name]) for name in tools],
        output_type=str if output_schema is None else make_output_type("asked", output_schema),
    )
    if output_schema is not None:
        agent.output_validator(lambda data: validate_output(output_schema, data))
    run = agent.run_stream_events(
        question,
        deps=ToolEnv(CONTEXT, memory, emit=listen),
        message_history=history,
        usage_limits=UsageLimits(request_limit=4),
    )
    async with run as events:
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=content)):
                    answer.pieces.append(content)
                case PartDeltaEvent(delta=TextPartDelta(content_delta=content)):
                    answer.pieces.append(content)
                case FunctionToolCallEvent(part=part):
                    answer.calls.append((part.tool_name, part.args_as_dict()))
                case AgentRunResultEvent(result=result):
                    answer.output = result.output
                    answer.messages = result.all_messages()
    return answer


async def build_history(memory: Rem, *user_messages: str) -> list[ModelMessage]:
    """Send these user messages, and return the messages of the session."""
    messages: list[ModelMessage] = []
    for text in user_messages:
        messages = (await ask(memory, text, history=messages)).messages
    return messages
