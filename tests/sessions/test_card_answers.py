"""Answers to action cards are checked against the card."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from rem.app import Rem
from rem.errors import ConflictError, InvalidInputError, NotFoundError
from rem.events import ActionCard
from rem.models import Message
from rem.models.field_types import utc_now
from rem.sessions.card_answers import CardAnswer, check_card_answer, prepare_card_answer
from rem.sessions.manager import MemoryManager
from tests.sessions.sample_messages import assistant_message

CARD: dict[str, Any] = {
    "id": "delete-1",
    "prompt": "Delete this item?",
    "actions": [
        {"type": "Action.Submit", "id": "confirm", "title": "Delete", "data": {"action": "delete", "item_id": "7"}},
        {"type": "Action.Submit", "id": "cancel", "title": "Cancel", "style": "secondary"},
        {"type": "Action.OpenUrl", "id": "docs", "title": "Read", "url": "https://example.com"},
        {
            "type": "Action.ShowCard",
            "id": "more",
            "title": "More",
            "card": {
                "actions": [{"id": "archive", "title": "Archive"}],
                "inputs": [{"id": "folder", "label": "Folder"}],
            },
        },
    ],
    "inputs": [
        {"id": "reason", "label": "Reason", "is_required": True},
        {
            "type": "Input.ChoiceSet",
            "id": "scope",
            "choices": [{"title": "One", "value": "one"}, {"title": "All", "value": "all"}],
        },
        {"type": "Input.Toggle", "id": "notify", "label": "Notify", "value": False},
    ],
}


def answer(action: str = "confirm", **inputs: bool | str) -> CardAnswer:
    return CardAnswer(card_id="delete-1", action_id=action, inputs=inputs)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (answer(reason="A copy"), {"reason": "A copy", "notify": False}),
        (answer(reason="x", scope="all", notify="TRUE"), {"reason": "x", "scope": "all", "notify": True}),
        (answer("cancel"), {"notify": False}),
        (answer("archive", reason="x", folder="old"), {"reason": "x", "notify": False, "folder": "old"}),
    ],
)
def test_valid_answer_gives_the_values(given: CardAnswer, values: dict[str, Any]) -> None:
    action, checked = check_card_answer(ActionCard.model_validate(CARD), given)
    assert (action.id, checked) == (given.action_id, values)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (answer(), "reason: is required"),
        (answer(reason="  "), "reason: is required"),
        (answer(reason=True), "reason: must be text"),
        (answer(reason="x", scope="some"), "scope: must be one of one, all"),
        (answer(reason="x", notify="perhaps"), "notify: must be true or false"),
        (answer(reason="x", colour="red"), "colour: the card has no such input"),
        (answer(reason="x" * 100_001), "more than 100,000 characters"),
        (answer("confrim", reason="x"), r"no action 'confrim' to submit\. Did you mean confirm\?"),
        (answer("docs", reason="x"), "no action 'docs' to submit"),
    ],
)
def test_wrong_answer_is_refused_with_the_reason(given: CardAnswer, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_card_answer(ActionCard.model_validate(CARD), given)


def test_all_errors_are_named_at_once() -> None:
    with pytest.raises(InvalidInputError, match=r"colour: .*reason: .*scope: "):
        check_card_answer(ActionCard.model_validate(CARD), answer(scope="some", colour="red"))


async def show_card(memory: MemoryManager, session_id: UUID, **changes: Any) -> None:
    message = assistant_message("Shall I?", metadata={"cards": [{**CARD, **changes}]})
    await memory.append(session_id, [message], create_session=True)


async def test_card_of_the_session_is_answered_once(alice: MemoryManager, bob: MemoryManager, session_id: UUID) -> None:
    await show_card(alice, session_id)
    message = await prepare_card_answer(alice, session_id, answer(reason="A copy", notify=True))
    assert message.content == "Delete\nReason: A copy\nNotify: yes"
    assert message.metadata["action_submit"] == {
        "card_id": "delete-1",
        "action_id": "confirm",
        "data": {"action": "delete", "item_id": "7"},
        "inputs": {"reason": "A copy", "notify": True},
    }
    with pytest.raises(NotFoundError):
        await prepare_card_answer(bob, session_id, answer(reason="x"))
    with pytest.raises(NotFoundError, match="'other'"):
        await prepare_card_answer(alice, session_id, CardAnswer(card_id="other", action_id="confirm"))
    await alice.save_message(session_id, message)
    with pytest.raises(ConflictError, match="answered before"):
        await prepare_card_answer(alice, session_id, answer(reason="x"))
    await show_card(alice, session_id)
    assert await prepare_card_answer(alice, session_id, answer("cancel")), "it was asked again"


async def test_card_times_out(rem: Rem, alice: MemoryManager, session_id: UUID) -> None:
    await show_card(alice, session_id, timeout_ms=60_000)
    assert await prepare_card_answer(alice, session_id, answer(reason="x"))
    (message,) = await alice.load_session(session_id)
    await alice.store.erase(message)
    later = message.model_copy(update={"created_at": utc_now() - timedelta(minutes=2), "message_index": 1})
    await alice.store.upsert(Message.model_validate(later.model_dump(exclude={"key", "updated_at"})))
    with pytest.raises(ConflictError, match="time to answer"):
        await prepare_card_answer(alice, session_id, answer(reason="x"))
