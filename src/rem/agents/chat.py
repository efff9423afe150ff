"""AgentRequest and AgentAnswer: the input and the output of one chat turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rem.agents.tool_gaps import ToolGapReport
from rem.context import AgentContext
from rem.sessions.card_answers import CardAnswer

FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "tool_calls", "error"]


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool of the client. The agent can call it, and the client carries out the call."""

    name: str
    description: str | None
    parameters: Mapping[str, Any]
    """The JSON schema of the arguments."""


@dataclass(frozen=True, slots=True)
class ClientToolCall:
    """A call of a client's tool. `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A message that the client sent with its request, other than the one to answer."""

    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: Sequence[ClientToolCall] = ()
    """The calls of an assistant message."""
    tool_call_id: str | None = None
    """The call that a tool message is the result of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """One user message to an agent, with the options for its answer."""

    context: AgentContext
    text: str
    agent: str | None = None
    """The name of the agent. Default: the context's agent, then `rem`."""
    model: str | None = None
    """The name of the model; the context's model overrides it. Default: the agent's model, then the configured one."""
    client_history: Sequence[ClientMessage] = ()
    """Earlier messages that the client sent. A stored session overrides them."""
    client_tools: Sequence[ClientTool] = ()
    tool_choice: Literal["auto", "required"] | str = "auto"
    """`required`: call one of the client's tools first. Any other text: call the client's tool of this name first."""
    tool_exchange: Sequence[ClientMessage] = ()
    """Calls of client tools with their results, since `text` was said. The turn goes on with them."""
    instructions: str | None = None
    """Instructions of the client, in addition to those of the agent."""
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] | None = None
    """The JSON schema of the answer. Default: the agent's own, if it has one."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Stored with the user message."""
    is_remembered: bool = True
    """Store the turn in a session."""
    is_from_user: bool = True
    """A person wrote the text, so it can confirm a change. False if a model wrote it, for another agent."""
    card_answer: CardAnswer | None = None
    """The user's answer to a card of the session. It comes before `text`, which may be empty."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that an answer used, child runs included."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """The complete answer of an agent to one request."""

    text: str
    agent: str
    model: str
    session_id: str | None
    message_id: str | None = None
    output: dict[str, Any] | None = None
    """The answer of an agent with structured output."""
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    confidence: float | None = None
    usage: Usage = Usage()
    finish_reason: FinishReason = "stop"
    client_calls: Sequence[ClientToolCall] = ()
    """Calls for the client to carry out. The turn goes on when it sends the results."""
    tool_gaps: list[ToolGapReport] = field(default_factory=list)
    """The tools that the agents called but do not have."""
    masked: list[str] = field(default_factory=list)
    """Kinds of secrets that were masked in the stored messages, such as "api key"."""
    approval_id: str | None = None
    """The request for approval on which the answer waits."""
