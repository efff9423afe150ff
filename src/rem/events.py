"""The events of an answer, as clients receive them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field


class Event(BaseModel):
    """Base of all events. `agent` is the agent that caused it: the requested one, or one that it called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    agent: str | None = None


class TextEvent(Event):
    """The next part of the text."""

    type: Literal["text_delta"] = "text_delta"
    content: str


class ReasoningEvent(Event):
    """Reasoning of the model."""

    type: Literal["reasoning"] = "reasoning"
    content: str
    step: int = 1


class ProgressEvent(Event):
    """Progress of a task with known steps."""

    type: Literal["progress"] = "progress"
    step: int
    total_steps: int
    label: str
    status: Literal["pending", "in_progress", "completed", "failed"] = "in_progress"


class ToolCallEvent(Event):
    """Start or end of a tool call. Both events have the same `tool_id`."""

    type: Literal["tool_call"] = "tool_call"
    tool_name: str
    tool_id: str
    status: Literal["started", "completed", "failed"]
    arguments: dict[str, Any] | None = None
    result: Any = None


class ActionRequestEvent(Event):
    """A question to the user: a card with buttons and inputs."""

    type: Literal["action_request"] = "action_request"
    card: ActionCard


class ActionEvent(Event):
    """An event that an agent sends with the tool `action`: observation, elicit, delegate, …"""

    type: Literal["action"] = "action"
    action_type: str
    payload: dict[str, Any] = Field(default_factory=dict)


class MetadataEvent(Event):
    """Metadata of the answer, and the ids of the stored message and session."""

    type: Literal["metadata"] = "metadata"
    message_id: str | None = None
    session_id: str | None = None
    session_name: str | None = None
    agent_schema: str | None = None
    confidence: float | None = None
    sources: list[str] | None = None
    references: list[str] | None = None
    flags: list[str] | None = None
    risk_level: str | None = None
    risk_score: int | None = None
    model_version: str | None = None
    latency_ms: int | None = None
    token_count: int | None = None
    extra: dict[str, Any] | None = None
    hidden: bool = False


class ErrorEvent(Event):
    """The answer failed."""

    type: Literal["error"] = "error"
    code: str
    message: str
    details: dict[str, Any] | None = None
    recoverable: bool = True


class DoneEvent(Event):
    """The end of the answer."""

    type: Literal["done"] = "done"
    reason: Literal["stop", "length", "error", "cancelled"] = "stop"


class CardAction(BaseModel):
    """A button of a card."""

    type: Literal["Action.Submit", "Action.OpenUrl", "Action.ShowCard"] = "Action.Submit"
    id: str
    title: str
    style: Literal["default", "primary", "secondary", "destructive", "positive"] = "default"
    data: dict[str, Any] | None = None
    url: str | None = None
    card: dict[str, Any] | None = None


class CardChoice(BaseModel):
    """An option of an input."""

    title: str
    value: str


class CardInput(BaseModel):
    """An input of a card."""

    type: Literal["Input.Text", "Input.ChoiceSet", "Input.Toggle"] = "Input.Text"
    id: str
    label: str | None = None
    placeholder: str | None = None
    is_required: bool = False
    is_multiline: bool = False
    choices: list[CardChoice] | None = None
    value: str | bool | None = None


class ActionCard(BaseModel):
    """A question to the user, with buttons and inputs."""

    id: str
    prompt: str
    display_style: Literal["inline", "modal", "sidebar"] = "inline"
    actions: list[CardAction] = Field(default_factory=list)
    inputs: list[CardInput] = Field(default_factory=list)
    timeout_ms: int | None = None


ActionRequestEvent.model_rebuild()

NamedEvent: TypeAlias = (
    ReasoningEvent
    | ProgressEvent
    | ToolCallEvent
    | ActionRequestEvent
    | ActionEvent
    | MetadataEvent
    | ErrorEvent
    | DoneEvent
)
AnyEvent: TypeAlias = TextEvent | NamedEvent
