"""The events of an answer, as clients receive them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

_URL_SCHEMES = ("https://", "http://", "mailto:")


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
    """A button of a card: it submits the inputs, opens an address, or reveals another card."""

    type: Literal["Action.Submit", "Action.OpenUrl", "Action.ShowCard"] = "Action.Submit"
    id: str = Field(min_length=1, max_length=500)
    title: str = Field(min_length=1)
    style: Literal["default", "primary", "secondary", "destructive", "positive"] = "default"
    data: dict[str, Any] | None = None
    url: str | None = Field(default=None, max_length=8000)
    card: ActionCard | None = None

    @model_validator(mode="after")
    def _check_target(self) -> CardAction:
        if self.type == "Action.OpenUrl" and not (self.url or "").startswith(_URL_SCHEMES):
            # Any other scheme, such as javascript:, would run in the user's client.
            raise ValueError("Action.OpenUrl needs a url that begins with https://, http:// or mailto:")
        if self.type == "Action.ShowCard" and self.card is None:
            raise ValueError("Action.ShowCard needs a card")
        return self


class CardChoice(BaseModel):
    """An option of an input."""

    title: str
    value: str = Field(min_length=1)


class CardInput(BaseModel):
    """An input of a card: a text, a choice or a toggle. `value` is what it has at first."""

    type: Literal["Input.Text", "Input.ChoiceSet", "Input.Toggle"] = "Input.Text"
    id: str = Field(min_length=1, max_length=500)
    label: str | None = None
    placeholder: str | None = None
    is_required: bool = False
    is_multiline: bool = False
    choices: list[CardChoice] | None = Field(default=None, max_length=1000)
    value: str | bool | None = None

    @model_validator(mode="after")
    def _check_choices(self) -> CardInput:
        values = [choice.value for choice in self.choices or []]
        if self.type == "Input.ChoiceSet" and not values:
            raise ValueError("Input.ChoiceSet needs choices")
        if self.type == "Input.ChoiceSet" and self.value is not None and self.value not in values:
            raise ValueError("the value of an Input.ChoiceSet must be one of its choices")
        if self.type == "Input.Text" and isinstance(self.value, bool):
            raise ValueError("the value of an Input.Text must be text")
        return self


class ActionCard(BaseModel):
    """A question to the user, with buttons and inputs."""

    id: str = Field(default="card", min_length=1, max_length=500)
    """By which an answer names the card. A card that a button reveals is answered with the one that has the button."""
    prompt: str = ""
    display_style: Literal["inline", "modal", "sidebar"] = "inline"
    actions: list[CardAction] = Field(default_factory=list, max_length=100)
    inputs: list[CardInput] = Field(default_factory=list, max_length=100)
    timeout_ms: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _check_ids(self) -> ActionCard:
        for names in ([action.id for action in self.list_actions()], [field.id for field in self.list_inputs()]):
            duplicate = next((name for name in names if names.count(name) > 1), None)
            if duplicate is not None:
                raise ValueError(f"the id {duplicate!r} is used twice, so an answer could not tell which is meant")
        return self

    def list_actions(self) -> list[CardAction]:
        """Return the buttons of the card and of the cards that they reveal."""
        return [action for part in self._list_parts() for action in part.actions]

    def list_inputs(self) -> list[CardInput]:
        """Return the inputs of the card and of the cards that its buttons reveal."""
        return [field for part in self._list_parts() for field in part.inputs]

    def _list_parts(self) -> list[ActionCard]:
        nested = [action.card for action in self.actions if action.type == "Action.ShowCard" and action.card]
        return [self, *(part for card in nested for part in card._list_parts())]


CardAction.model_rebuild()
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
