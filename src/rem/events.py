"""What happens while an agent answers, in the order in which the user may see it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field


class Event(BaseModel):
    """Something that happened. `agent` is who did it: the one that was asked, or one that it called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    agent: str | None = None


class TextEvent(Event):
    """Some more of the answer's text."""

    type: Literal["text_delta"] = "text_delta"
    content: str


class ReasoningEvent(Event):
    """What the model thinks before it answers."""

    type: Literal["reasoning"] = "reasoning"
    content: str
    step: int = 1


class ProgressEvent(Event):
    """How far a task with known steps is."""

    type: Literal["progress"] = "progress"
    step: int
    total_steps: int
    label: str
    status: Literal["pending", "in_progress", "completed", "failed"] = "in_progress"


class ToolCallEvent(Event):
    """A tool was called, or has answered. Both have the same `tool_id`."""

    type: Literal["tool_call"] = "tool_call"
    tool_name: str
    tool_id: str
    status: Literal["started", "completed", "failed"]
    arguments: dict[str, Any] | None = None
    result: Any = None


class ActionRequestEvent(Event):
    """The user is asked for something, by a card with buttons and inputs."""

    type: Literal["action_request"] = "action_request"
    card: ActionCard


class ActionEvent(Event):
    """An agent did something of a kind that the client knows: observation, elicit, delegate, …"""

    type: Literal["action"] = "action"
    action_type: str
    payload: dict[str, Any] = Field(default_factory=dict)


class MetadataEvent(Event):
    """What an agent notes of its answer, and where the answer is kept."""

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
    """The answer cannot go on."""

    type: Literal["error"] = "error"
    code: str
    message: str
    details: dict[str, Any] | None = None
    recoverable: bool = True


class DoneEvent(Event):
    """The answer is complete, or at its end."""

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
    """One of the answers that an input offers."""

    title: str
    value: str


class CardInput(BaseModel):
    """A field of a card."""

    type: Literal["Input.Text", "Input.ChoiceSet", "Input.Toggle"] = "Input.Text"
    id: str
    label: str | None = None
    placeholder: str | None = None
    is_required: bool = False
    is_multiline: bool = False
    choices: list[CardChoice] | None = None
    value: str | bool | None = None


class ActionCard(BaseModel):
    """What the user is asked, and the answers on offer."""

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
