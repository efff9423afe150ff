"""The tools for metadata of an answer and events for the client: register_metadata and action."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID, uuid4

from loguru import logger
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rem.approvals.cards import CARD_PREFIX
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.events import ActionCard, ActionEvent, ActionRequestEvent, MetadataEvent
from rem.models import Session
from rem.models.field_types import JsonObject, to_json_value
from rem.tools.binding import describe_validation_error, tool
from rem.tools.env import ToolEnv

Confidence: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Keys: TypeAlias = Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=200)]
RiskLevel: TypeAlias = Literal["low", "moderate", "high", "critical", "green", "yellow", "orange", "red"]
RiskScore: TypeAlias = Annotated[int, Field(ge=0, le=100)]
SessionName: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]


class AnswerNote(BaseModel):
    """Metadata of an answer that is stored with the session: its confidence and its sources."""

    model_config = ConfigDict(extra="forbid")

    confidence: Confidence | None = None
    references: Keys | None = None
    sources: Keys | None = None
    flags: Keys | None = None
    risk_level: RiskLevel | None = None
    risk_score: RiskScore | None = None
    session_name: SessionName | None = None
    extra: JsonObject | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return self.model_dump(exclude_none=True)

    def to_event(self, session_id: str | None) -> MetadataEvent:
        """Return the note as an event for the client."""
        return MetadataEvent(session_id=session_id, **self.to_dict())


@tool()
async def register_metadata(
    env: ToolEnv,
    confidence: Annotated[
        Confidence | None, Field(description="How sure you are: 0 is a guess, 1 is certain and read from memory.")
    ] = None,
    references: Annotated[Keys | None, Field(description="Keys of what the answer is about.")] = None,
    sources: Annotated[Keys | None, Field(description="Keys or addresses that the answer was taken from.")] = None,
    flags: Annotated[Keys | None, Field(description="What needs attention, such as needs_review.")] = None,
    risk_level: Annotated[RiskLevel | None, Field(description="How much is at stake if the answer is wrong.")] = None,
    risk_score: Annotated[RiskScore | None, Field(description="The risk as a number; 100 is the worst.")] = None,
    session_name: Annotated[
        SessionName | None, Field(description="A title for the conversation, in a few words; given once.")
    ] = None,
    extra: Annotated[dict[str, Any] | None, Field(description="Anything else worth remembering, as JSON.")] = None,
) -> dict[str, Any]:
    """Take notes on your answer: how sure you are, which keys it is based on, what else should be remembered.

    What tools return is forgotten after this turn; only your notes and your answer stay in the conversation. So call
    this once in every turn in which you searched, before your final words, and put findings that you will need again
    into extra. To store a lasting document use ingest_into_rem instead; to ask the user something, action.
    For example: register_metadata(confidence=0.9, sources=["sarah-chen", "q3-report"], session_name="Q3 planning",
    extra={"decision": "ship hybrid search first"})
    """
    values = {
        "confidence": confidence,
        "references": references,
        "sources": sources,
        "flags": flags,
        "risk_level": risk_level,
        "risk_score": risk_score,
        "session_name": session_name,
        "extra": extra,
    }
    note = _validate_note(values, "The note")
    await _register_note(env, note)
    return {"status": "success", "_metadata_event": True, **note.to_dict()}


@tool()
async def action(
    env: ToolEnv,
    type: Annotated[  # noqa: A002  # the protocol's word
        str,
        Field(
            pattern=r"^[a-z][a-z0-9_-]{0,63}$",
            description="observation, elicit, delegate, or a type that the user's client knows.",
        ),
    ],
    payload: Annotated[dict[str, Any] | None, Field(description="The data of the event; see the description.")] = None,
) -> dict[str, Any]:
    """Send a typed event to the user's client, beside your answer: something happened or is needed.

    - observation: notes on the answer, as register_metadata takes them (confidence, sources, references, flags,
      risk_level, risk_score, session_name, extra).
    - elicit: ask the user for a decision or for input, as a card with buttons or fields:
      {"card": {"prompt": "Send it now?", "actions": [{"id": "yes", "title": "Send"}, {"id": "no", "title": "Wait"}]}}
    - delegate, or any other type that the client knows: the payload is passed on unchanged.
    The event does not do the thing itself: to ask another agent use ask_agent, to search use search_rem.
    For example: action(type="observation", payload={"confidence": 0.85, "sources": ["sarah-chen"]})
    """
    values = _to_plain_json(payload or {})
    note = _validate_note(values, "The payload of an observation") if type == "observation" else None
    card = _parse_card(values["card"]) if type == "elicit" and "card" in values else None
    await env.emit(ActionEvent(action_type=type, payload=values))
    if note is not None:
        await _register_note(env, note)
    if card is not None:
        await env.emit(ActionRequestEvent(card=card))
    return {"status": "success", "_action_event": True, "action_type": type, "payload": values}


def _validate_note(values: dict[str, Any], label: str) -> AnswerNote:
    """Make a note of `values`. Raise InvalidInputError, which begins with `label`, if they are not valid."""
    try:
        return AnswerNote.model_validate(values)
    except ValidationError as error:
        raise InvalidInputError(f"{label} is not valid. {describe_validation_error(error)}") from error


async def _register_note(env: ToolEnv, note: AnswerNote) -> None:
    """Name the session if the note says so, and send the note to the client."""
    if note.session_name:
        await _name_session(env, note.session_name)
    await env.emit(note.to_event(env.context.session_id))


async def _name_session(env: ToolEnv, name: str) -> None:
    """Set the name of the caller's session, if it is stored and has no name yet."""
    if env.memory is None or env.context.session_id is None:
        return

    def set_name(session: Session) -> None:
        session.name = session.name or name

    store = env.rem.for_user(env.scope).store
    try:
        await store.modify(Session, UUID(env.context.session_id), set_name)
    except (NotFoundError, ConflictError) as error:
        # Another session may have this name. The rest of the note matters more than a title.
        logger.debug("The session keeps its name: {}", error)


def _to_plain_json(payload: dict[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = to_json_value(payload)
    except ValueError as error:
        raise InvalidInputError(f"The payload {error}.") from error
    return plain


def _parse_card(value: Any) -> ActionCard:
    """Parse a card. A card without an id gets one, because the client's reply names it."""
    fields = {"id": f"card-{uuid4().hex[:12]}", **value} if isinstance(value, dict) else value
    try:
        card = ActionCard.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(f"The card is not valid. {describe_validation_error(error)}") from error
    if not card.prompt.strip():
        raise InvalidInputError("The card is not valid. prompt: say what the user is asked.")
    if card.id.startswith(CARD_PREFIX):
        # The answer to such a card decides on a request, so only REM writes its words.
        raise InvalidInputError(f"The id of a card must not begin with {CARD_PREFIX!r}: leave it out.")
    return card
