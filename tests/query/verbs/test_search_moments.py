"""SEARCH finds messages and sessions by the moments that were derived from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rem import Message, Moment, Rem
from rem.db.store import Store
from rem.models.results import Result
from rem.query.tree import Search
from rem.settings import Settings
from tests.agents.running_agents import agents_with
from tests.dreams.sample_sessions import list_moments, run_dreams, store_session
from tests.scripted_model import Call, ScriptedModel, Step, last_text, scripted_model

ALICE = "alice@example.com"
BOB = "bob@example.com"
_SOLD = "The family bakery in Graz was sold to Ms. Huber for 300,000 euros."
_ASKED = 'SEARCH "Who bought the bakery in Graz?" FROM {}'


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


async def _dream(rem: Rem, settings: Settings, model: ScriptedModel, store: Store, summaries: dict[str, str]) -> None:
    """Run the moments dream with a scripted model: a session with a given word gets a moment with that summary."""

    def script(body: dict[str, Any]) -> list[Step]:
        lines = last_text(body).split("<entries>\n")[1].rsplit("\n</entries>", 1)[0].splitlines()
        entries = [json.loads(line) for line in lines]
        said = [
            {
                "name": word,
                "moment_type": "event",
                "summary": summary,
                "starts_timestamp": "2026-03-14T09:00:00Z",
                "ends_timestamp": "2026-03-14T09:01:00Z",
                "topic_tags": [],
                "present_persons": [],
                "source_keys": [entry["key"] for entry in entries],
            }
            for word, summary in summaries.items()
            if any(word in entry["text"] for entry in entries)
        ]
        return [Call(body["tools"][0]["function"]["name"], {"moments": said})]

    model.script = script
    async with agents_with(settings, model) as agents:
        await agents.rem.dreamer().dream(store.scope, ["moments"])


async def _store_two_sessions(store: Store) -> str:
    """Store two sessions, and return the key of the one whose messages do not name their topic."""
    signed = await store_session(
        store, "signed", "user: It is done, we signed at noon.", "user: I could cry, but Dad is happy."
    )
    await store_session(
        store, "violin", "user: Mia starts violin lessons with Mr. Tanaka on Tuesday, in the music school."
    )
    return str(signed)


def _ids(result: Result) -> list[str]:
    return [row["record"]["id"] for row in result.list_rows()]


def _step(result: Result, name: str) -> list[int | None]:
    return [step.rows for step in result.steps if step.name == name]


async def test_session_is_found_by_its_moment(
    rem: Rem, settings: Settings, alice: Store, bob: Store, model: ScriptedModel
) -> None:
    signed = await _store_two_sessions(alice)
    await store_session(bob, "bob", "user: We signed something, too, and my father is happy.")
    before = await rem.for_user(ALICE).query(_ASKED.format("sessions"))
    assert signed not in _ids(before)
    assert _step(before, "moments") == []
    await _dream(rem, settings, model, alice, {"signed": _SOLD})
    found = await rem.for_user(ALICE).query(_ASKED.format("sessions"))
    assert _ids(found)[0] == signed
    assert _step(found, "moments") == [2]
    (moment,) = await list_moments(alice)
    passage = found.list_rows()[0]["passage"]
    assert (passage["table"], passage["key"], passage["text"]) == ("moments", moment.key, _SOLD)
    messages = await rem.for_user(ALICE).query(_ASKED.format("messages"))
    assert {row["record"]["session_id"] for row in messages.list_rows()} == {signed}
    assert {row["table"] for row in messages.list_rows()} == {"messages"}
    assert len(messages.list_rows()) == 2
    assert signed not in _ids(await rem.for_user(BOB).query(_ASKED.format("sessions")))
    assert _ids(await rem.for_user(ALICE).query(_ASKED.format("sessions WHERE metadata.test = 'violin'"))) == []


async def test_search_uses_current_text_of_existing_moments(
    rem: Rem, settings: Settings, alice: Store, model: ScriptedModel
) -> None:
    signed = await _store_two_sessions(alice)
    await _dream(rem, settings, model, alice, {"signed": _SOLD})
    (moment,) = await list_moments(alice)
    await alice.modify(Moment, moment.id, lambda row: row.model_copy(update={"summary": "Our sawmill was sold."}))
    await run_dreams(rem, alice, rescan=True)
    assert _ids(await rem.for_user(ALICE).query('SEARCH "sawmill" FROM sessions MODE text')) == [signed]
    assert _ids(await rem.for_user(ALICE).query('SEARCH "Huber" FROM sessions MODE text')) == []
    await alice.delete(moment)
    assert _ids(await rem.for_user(ALICE).query('SEARCH "sawmill" FROM sessions MODE text')) == []


async def test_hit_shows_message_passage_before_moment_passage(rem: Rem, alice: Store) -> None:
    await store_session(
        alice, "plan", "user: We migrate the billing database to Postgres 17 on 4 April, Sarah Chen leads it."
    )
    asked = 'SEARCH "billing database migration" FROM messages'
    (before,) = (await rem.for_user(ALICE).query(asked)).list_rows()
    await run_dreams(rem, alice)
    assert len(await list_moments(alice)) == 1
    (after,) = (await rem.for_user(ALICE).query(asked)).list_rows()
    assert (after["passage"], after["score"]) == (before["passage"], pytest.approx(before["score"], abs=0.02))


async def test_session_is_found_by_a_related_moment(
    rem: Rem, settings: Settings, alice: Store, model: ScriptedModel
) -> None:
    await _store_two_sessions(alice)
    oven = str(await store_session(alice, "oven", "user: The apprentices stay, thank God."))
    kept = "The family bakery in Graz was sold with its wood oven, and both apprentices stay."
    violin = "Mia starts violin lessons with Mr. Tanaka."
    await _dream(rem, settings, model, alice, {"signed": _SOLD, "apprentices": kept, "violin": violin})

    async def scores() -> dict[str, float]:
        asked = Search("Did Huber pay 300,000 euros?", table="sessions", min_similarity=0)
        return {row["record"]["id"]: row["score"] for row in (await rem.for_user(ALICE).query(asked)).list_rows()}

    before = await scores()
    assert (await run_dreams(rem, alice, "affinity")).statement_count == 1
    after = await scores()
    assert after.pop(oven) > before.pop(oven) + 0.01
    assert after == before


async def test_moment_adds_messages_that_are_no_candidates(
    rem_without_embedder: Rem, settings: Settings, model: ScriptedModel
) -> None:
    store = rem_without_embedder.for_user(ALICE).store
    signed = await _store_two_sessions(store)
    for number in range(45):
        # More messages with a word of the query than become candidates.
        session = await store_session(store, f"graz {number}")
        await store.upsert_many(
            Message(
                session_id=session, message_index=place, role="user", content=f"Graz, visit number {number} {place}."
            )
            for place in range(10)
        )
    await _dream(rem_without_embedder, settings, model, store, {"signed": _SOLD})
    found = await rem_without_embedder.for_user(ALICE).query(
        'SEARCH "Who bought the bakery in Graz from Huber?" FROM sessions'
    )
    assert signed in _ids(found)
    assert len(found.list_rows()) == 10
