"""Answers to action cards: check what a user submitted against the card of the agent, and make a message of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rem.approvals.cards import CARD_PREFIX
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.events import ActionCard, CardAction, CardInput
from rem.models.field_types import utc_now
from rem.models.message import Role
from rem.sessions.message import NewMessage
from rem.text import did_you_mean

if TYPE_CHECKING:
    from rem.sessions.manager import MemoryManager

MAX_INPUT_CHARS = 100_000
CARDS_FIELD = "cards"
"""Metadata of the stored answer of an agent: the cards that it showed."""
ANSWER_FIELD = "action_submit"
"""Metadata of the stored message of the user: the card, the action and the inputs."""
_TOGGLE_VALUES = {True: True, False: False, "true": True, "false": False}


class CardAnswer(BaseModel):
    """An `Action.Submit` of the user: which card, which button, and the values of the inputs."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"card_id": "confirm-delete-123", "action_id": "confirm", "inputs": {"reason": "It is a copy."}}
        },
    )

    card_id: str = Field(min_length=1, max_length=500)
    action_id: str = Field(min_length=1, max_length=500)
    inputs: dict[str, bool | str] = Field(default_factory=dict, max_length=200)


async def prepare_card_answer(memory: MemoryManager, session_id: UUID, answer: CardAnswer) -> NewMessage:
    """Return the message for an answer to a card of a session, to be stored and given to the agent.

    Raise NotFoundError if the session has no such card, ConflictError if the card was answered or has timed out, and
    InvalidInputError if the answer does not fit the card.
    """
    if answer.card_id.startswith(CARD_PREFIX):
        raise InvalidInputError(
            f"The card {answer.card_id!r} asks for an approval: decide with POST /api/v1/approvals/{{id}}/decision, or "
            "with action_submit in the chat."
        )
    card = await _load_open_card(memory, session_id, answer.card_id)
    action, inputs = check_card_answer(card, answer)
    labels = {field.id: field.label or field.id for field in card.list_inputs()}
    lines = [action.title, *(f"{labels[name]}: {_format_value(value)}" for name, value in inputs.items())]
    submitted = {"card_id": card.id, "action_id": action.id, "data": action.data or {}, "inputs": inputs}
    return NewMessage(role=Role.USER, content="\n".join(lines), metadata={ANSWER_FIELD: submitted})


def check_card_answer(card: ActionCard, answer: CardAnswer) -> tuple[CardAction, dict[str, bool | str]]:
    """Return the chosen action and the values of the inputs. Raise InvalidInputError, which names every error."""
    buttons = {action.id: action for action in card.list_actions() if action.type == "Action.Submit"}
    action = buttons.get(answer.action_id)
    if action is None:
        advice = did_you_mean(answer.action_id, list(buttons)) if buttons else " It has none to submit."
        raise InvalidInputError(f"The card {card.id!r} has no action {answer.action_id!r} to submit.{advice}")
    fields = {field.id: field for field in card.list_inputs()}
    issues = [f"{name}: the card has no such input." for name in answer.inputs if name not in fields]
    values: dict[str, bool | str] = {}
    for name, field in fields.items():
        try:
            value = _check_value(field, answer.inputs.get(name, field.value), is_needed=action.style != "secondary")
        except ValueError as error:
            issues.append(f"{name}: {error}.")
        else:
            values |= {} if value is None else {name: value}
    if issues:
        raise InvalidInputError(f"The answer does not fit the card {card.id!r}. {' '.join(issues)}")
    return action, values


async def _load_open_card(memory: MemoryManager, session_id: UUID, card_id: str) -> ActionCard:
    found = await memory.find_card(session_id, card_id)
    if found is None:
        raise NotFoundError(f"There is no card {card_id!r} in this session.")
    card, shown_at, is_answered = found
    if is_answered:
        raise ConflictError(f"The card {card_id!r} was answered before.")
    if card.timeout_ms is not None and shown_at + timedelta(milliseconds=card.timeout_ms) < utc_now():
        raise ConflictError(f"The time to answer the card {card_id!r} is over: ask the agent again.")
    return card


def _check_value(field: CardInput, value: bool | str | None, *, is_needed: bool) -> bool | str | None:
    """Return the value of an input, or None if it is left out. Raise ValueError if it is not allowed."""
    if value is None or (isinstance(value, str) and not value.strip()):
        if field.is_required and is_needed:
            raise ValueError("is required")
        return None
    if field.type == "Input.Toggle":
        toggled = _TOGGLE_VALUES.get(value.strip().lower() if isinstance(value, str) else value)
        if toggled is None:
            raise ValueError("must be true or false")
        return toggled
    if not isinstance(value, str):
        raise ValueError("must be text")
    if len(value) > MAX_INPUT_CHARS:
        raise ValueError(f"has more than {MAX_INPUT_CHARS:,} characters")
    choices = [choice.value for choice in field.choices or []]
    if field.type == "Input.ChoiceSet" and value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")
    return value


def _format_value(value: bool | str) -> str:
    return value if isinstance(value, str) else "yes" if value else "no"


def parse_card(cards: list[dict[str, Any]], card_id: str) -> ActionCard | None:
    """Return the card with this id among stored ones; None if it is not there or cannot be read."""
    for card in cards:
        if card.get("id") == card_id:
            try:
                return ActionCard.model_validate(card)
            except ValidationError:
                return None
    return None
