"""action: something that the user's client shall do or show."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import uuid4

from pydantic import Field, ValidationError

from rem.errors import InvalidInputError
from rem.events import ActionCard, ActionEvent, ActionRequestEvent
from rem.models.values import as_json
from rem.tools.env import ToolEnv
from rem.tools.note import Note, checked, explained
from rem.tools.session_name import name_session


async def action(
    env: ToolEnv,
    type: Annotated[  # noqa: A002  # the protocol's word
        str,
        Field(
            pattern=r"^[a-z][a-z0-9_-]{0,63}$",
            description="observation, elicit, delegate, or a kind that the user's client knows.",
        ),
    ],
    payload: Annotated[dict[str, Any] | None, Field(description="What belongs to it; see the description.")] = None,
) -> dict[str, Any]:
    """Tell the user's client that something happened or is needed, as a typed event beside your answer.

    - observation: notes on the answer, as register_metadata takes them (confidence, sources, references, flags,
      risk_level, risk_score, session_name, extra).
    - elicit: ask the user for a decision or for input, as a card with buttons or fields:
      {"card": {"prompt": "Send it now?", "actions": [{"id": "yes", "title": "Send"}, {"id": "no", "title": "Wait"}]}}
    - delegate, or any other type that the client knows: the payload is passed on as it is.
    The event does not do the thing itself: to ask another agent use ask_agent, to search use search_rem.
    For example: action(type="observation", payload={"confidence": 0.85, "sources": ["sarah-chen"]})
    """
    given = _plain(payload or {})
    note = checked(Note, given, "The payload of an observation") if type == "observation" else None
    card = _card(given["card"]) if type == "elicit" and "card" in given else None
    await env.emit(ActionEvent(action_type=type, payload=given))
    if note is not None:
        if note.session_name:
            await name_session(env, note.session_name)
        await env.emit(note.event(env.context.session_id))
    if card is not None:
        await env.emit(ActionRequestEvent(card=card))
    return {"status": "success", "_action_event": True, "action_type": type, "payload": given}


def _plain(payload: dict[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = as_json(payload)
    except ValueError as error:
        raise InvalidInputError(f"The payload {error}.") from error
    return plain


def _card(value: Any) -> ActionCard:
    """The card; one that has no id gets one, so that the answer to it can be told apart."""
    given = {"id": f"card-{uuid4().hex[:12]}", **value} if isinstance(value, dict) else value
    try:
        return ActionCard.model_validate(given)
    except ValidationError as error:
        raise InvalidInputError(f"The card is not valid. {explained(error)}") from error
