"""Note: what an agent says of its own answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID, uuid4

from loguru import logger
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.events import ActionCard, ActionEvent, ActionRequestEvent, MetadataEvent
from rem.models import Session
from rem.models.field_types import JsonObject, to_json_value
from rem.tools.env import ToolEnv

Confidence: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Keys: TypeAlias = Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=200)]
RiskLevel: TypeAlias = Literal["low", "moderate", "high", "critical", "green", "yellow", "orange", "red"]
RiskScore: TypeAlias = Annotated[int, Field(ge=0, le=100)]
SessionName: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]


class AnswerNote(BaseModel):
    """What is worth keeping of a turn: how sure the answer is, and what it rests on."""

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
        """What was said."""
        return self.model_dump(exclude_none=True)

    def to_event(self, session_id: str | None) -> MetadataEvent:
        """The note as the user's client gets it."""
        return MetadataEvent(session_id=session_id, **self.to_dict())


def validate_note(model: type[AnswerNote], values: dict[str, Any], what: str) -> AnswerNote:
    """The note that these values are; an InvalidInputError names what is wrong with them."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InvalidInputError(f"{what} is not valid. {describe_validation_error(error)}") from error


def describe_validation_error(error: ValidationError) -> str:
    """What is wrong, field by field."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return " ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'value'}: {problem['msg']}." for problem in problems[:5]
    )


async def name_session(env: ToolEnv, name: str) -> None:
    """Name the caller's conversation, if it is stored and has no name yet: one that a person gave it stays."""
    if env.memory is None or env.context.session_id is None:
        return

    def rename(session: Session) -> None:
        session.name = session.name or name

    store = env.rem.store(env.scope)
    try:
        await store.modify(Session, UUID(env.context.session_id), rename)
    except (NotFoundError, ConflictError) as error:
        # It is a title: the note that it came with matters more, and another conversation may have it.
        logger.debug("The session keeps its name: {}", error)


async def register_metadata(
    env: ToolEnv,
    confidence: Annotated[
        Confidence | None, Field(description="How sure you are: 0 is a guess, 1 is certain and read from memory.")
    ] = None,
    references: Annotated[Keys | None, Field(description="Keys of what the answer is about.")] = None,
    sources: Annotated[Keys | None, Field(description="Keys or places that the answer was taken from.")] = None,
    flags: Annotated[Keys | None, Field(description="What needs attention, such as needs_review.")] = None,
    risk_level: Annotated[RiskLevel | None, Field(description="How much is at stake if the answer is wrong.")] = None,
    risk_score: Annotated[RiskScore | None, Field(description="The same as a number, 100 the worst.")] = None,
    session_name: Annotated[
        SessionName | None, Field(description="A title for the conversation, in a few words; given once.")
    ] = None,
    extra: Annotated[dict[str, Any] | None, Field(description="Anything else worth remembering, as JSON.")] = None,
) -> dict[str, Any]:
    """Take notes on your answer: how sure you are, which keys it rests on, what else should be remembered.

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
    note = validate_note(AnswerNote, values, "The note")
    if note.session_name:
        await name_session(env, note.session_name)
    await env.emit(note.to_event(env.context.session_id))
    return {"status": "success", "_metadata_event": True, **note.to_dict()}


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
    note = validate_note(AnswerNote, given, "The payload of an observation") if type == "observation" else None
    card = _card(given["card"]) if type == "elicit" and "card" in given else None
    await env.emit(ActionEvent(action_type=type, payload=given))
    if note is not None:
        if note.session_name:
            await name_session(env, note.session_name)
        await env.emit(note.to_event(env.context.session_id))
    if card is not None:
        await env.emit(ActionRequestEvent(card=card))
    return {"status": "success", "_action_event": True, "action_type": type, "payload": given}


def _plain(payload: dict[str, Any]) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = to_json_value(payload)
    except ValueError as error:
        raise InvalidInputError(f"The payload {error}.") from error
    return plain


def _card(value: Any) -> ActionCard:
    """The card; one that has no id gets one, so that the answer to it can be told apart."""
    given = {"id": f"card-{uuid4().hex[:12]}", **value} if isinstance(value, dict) else value
    try:
        return ActionCard.model_validate(given)
    except ValidationError as error:
        raise InvalidInputError(f"The card is not valid. {describe_validation_error(error)}") from error
