"""AgentRequest and Answer: what an agent is asked, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rem.context import AgentContext

FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "error"]


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """An earlier message that the client sent along."""

    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """One message to an agent, and how it shall be answered."""

    context: AgentContext
    text: str
    agent: str | None = None
    """The context's if not given, else `rem`."""
    model: str | None = None
    """The context's if not given, else the agent's, else the default one."""
    earlier: Sequence[ClientMessage] = ()
    """What the client says was said before; the stored conversation, if there is one, has the last word."""
    instructions: str | None = None
    """What the client adds to the agent's own instructions."""
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] | None = None
    """A JSON schema that the answer shall fulfil; the agent's own if not given."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Stored with the message."""
    is_remembered: bool = True
    """Whether it is part of a conversation that is kept."""


@dataclass(frozen=True, slots=True)
class Usage:
    """How many tokens an answer took, child agents included."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What an agent said in the end."""

    text: str
    agent: str
    model: str
    session_id: str | None
    message_id: str | None = None
    output: dict[str, Any] | None = None
    """The fields of an agent with structured output."""
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    confidence: float | None = None
    usage: Usage = Usage()
    finish_reason: FinishReason = "stop"
