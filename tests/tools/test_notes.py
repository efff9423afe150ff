"""The tools register_metadata and action."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from rem import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Session
from rem.tools.env import ToolEnv
from rem.tools.notes import action, register_metadata
from tests.tools.tool_env import RecordingClient, env_for

ALICE = "alice@example.com"


@pytest.fixture
def client() -> RecordingClient:
    """The user's client."""
    return RecordingClient()


@pytest.fixture
def env(client: RecordingClient) -> ToolEnv:
    """A run without a database, whose events the client sees."""
    return env_for(None, ALICE, emit=client.emit)


NOTE: dict[str, Any] = {
    "confidence": 0.95,
    "references": ["sarah-chen", "q3-report"],
    "sources": ["REM database"],
    "risk_level": "green",
    "extra": {"topics": ["quarterly-review"], "größe": None},
}


async def test_note_is_returned_and_emitted(env: ToolEnv, client: RecordingClient) -> None:
    assert await register_metadata(env, **NOTE) == {"status": "success", "_metadata_event": True, **NOTE}
    assert client.seen_events == [NOTE]


async def test_observation_emits_action_and_metadata(env: ToolEnv, client: RecordingClient) -> None:
    done = await action(env, "observation", NOTE)
    assert done == {"status": "success", "_action_event": True, "action_type": "observation", "payload": NOTE}
    assert client.seen_events == [{"action_type": "observation", "payload": NOTE}, NOTE]
    assert [event.type for event in client.events] == ["action", "metadata"]


async def test_elicit_emits_a_card(env: ToolEnv, client: RecordingClient) -> None:
    card = {"prompt": "Send it?", "actions": [{"id": "yes", "title": "Send"}], "inputs": [{"id": "why"}]}
    await action(env, "elicit", {"card": card})
    assert [event.type for event in client.events] == ["action", "action_request"]
    shown = client.events[1].model_dump()["card"]
    assert (shown["prompt"], shown["actions"][0]["title"], shown["inputs"][0]["id"]) == ("Send it?", "Send", "why")
    assert shown["id"].startswith("card-")


async def test_other_actions_are_passed_on_unchanged(env: ToolEnv, client: RecordingClient) -> None:
    await action(env, "delegate", {"to": "summarizer"})
    await action(env, "play-sound")
    assert client.seen_events == [
        {"action_type": "delegate", "payload": {"to": "summarizer"}},
        {"action_type": "play-sound"},
    ]


@pytest.mark.parametrize(
    ("note", "named"),
    [
        ({"confidence": 1.5}, "confidence"),
        ({"confidence": float("nan")}, "confidence"),
        ({"risk_score": 101}, "risk_score"),
        ({"risk_level": "enormous"}, "risk_level"),
        ({"sources": ["x"] * 201}, "sources"),
        ({"session_name": ""}, "session_name"),
        ({"confidnce": 1}, "confidnce"),
        ({"extra": {"bad": "\ud800"}}, "extra|payload"),
    ],
)
async def test_invalid_note_names_its_field_and_emits_nothing(
    env: ToolEnv, client: RecordingClient, note: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInputError, match=named):
        await action(env, "observation", note)
    if "confidnce" not in note:
        with pytest.raises(InvalidInputError, match=named):
            await register_metadata(env, **note)
    assert client.events == []


@pytest.mark.parametrize("card", [{}, {"prompt": "x", "actions": [{"id": "a"}]}, "a card", None])
async def test_invalid_card_is_rejected(env: ToolEnv, client: RecordingClient, card: Any) -> None:
    with pytest.raises(InvalidInputError, match="The card is not valid"):
        await action(env, "elicit", {"card": card})
    assert client.events == []


async def test_only_the_first_title_names_the_session(rem: Rem, alice: Store) -> None:
    session, client = await alice.upsert(Session()), RecordingClient()
    env = env_for(rem, ALICE, session_id=str(session.id), emit=client.emit)
    await register_metadata(env, session_name="Q3 planning")
    await action(env, "observation", {"session_name": "Something else"})
    assert (await alice.get(Session, session.id)).name == "Q3 planning"
    assert client.seen_events[0] == {"session_id": str(session.id), "session_name": "Q3 planning"}


async def test_session_of_another_user_is_not_named(rem: Rem, bob: Store) -> None:
    foreign = await bob.upsert(Session())
    await register_metadata(env_for(rem, ALICE, session_id=str(foreign.id)), session_name="Mine now")
    await register_metadata(env_for(rem, ALICE, session_id=str(uuid4())), session_name="Nowhere")
    assert (await bob.get(Session, foreign.id)).name is None


async def test_taken_title_does_not_fail_the_note(rem: Rem, alice: Store) -> None:
    await alice.upsert(Session(name="Q3 planning"))
    session = await alice.upsert(Session())
    done = await register_metadata(env_for(rem, ALICE, session_id=str(session.id)), session_name="Q3 planning")
    assert done["status"] == "success"
