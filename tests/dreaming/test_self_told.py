"""What users say of themselves is in their profile: said as a fact, of now, and until they say otherwise."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreaming.claim import Ref, Source
from rem.dreaming.profiles.self_told import told
from rem.dreaming.record import statements
from rem.models import Message, Role, Session, User
from tests.dreaming.talks import talk, talk_at

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_MAY = datetime(2026, 5, 4, 9, tzinfo=UTC)


def lines(*messages: str) -> list[str]:
    """What a profile would say after these messages."""
    source = Source(Ref("messages", uuid4()), "m")
    return [one.text for one in told((text, _MAY, source) for text in messages)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("I live in Porto with my wife.", "lives in Porto"),
        ("We now live in São Paulo, Brazil.", "lives in São Paulo, Brazil"),
        ("Ich wohne seit drei Jahren in Köln.", "lives in Köln"),
        ("I work as a nurse, mostly at night.", "works as a nurse"),
        ("Ich arbeite jetzt als Lehrerin.", "works as Lehrerin"),
        ("I'm working for Globex Labs now.", "works at Globex Labs"),
        ("Ich arbeite bei der Hansen Logistik GmbH.", "works at Hansen Logistik GmbH"),
        ("I am studying marine biology in Porto", "studies marine biology"),
        ("I have two kids and no time.", "has two kids"),
        ("Ich habe einen Hund.", "has einen Hund"),
        ("I’m vegetarian, what can I cook.", "is vegetarian"),
        ("I am learning Rust these days.", "is learning Rust"),
        ("I'm learning how to sail", "is learning to sail"),
        ("Ich lerne gerade Portugiesisch.", "is learning Portugiesisch"),
        ("I play the violin!", "plays the violin"),
        ("I speak fluent Polish.", "speaks Polish"),
        ("My hobbies are chess and bread baking.", "hobby: chess and bread baking"),
    ],
)
def test_what_is_said_in_so_many_words(text: str, line: str) -> None:
    assert lines(text) == [line]


def test_two_things_in_one_sentence_and_the_order_of_a_profile() -> None:
    assert lines("I play chess.", "I live in Porto and work as a nurse.") == [
        "lives in Porto",
        "works as a nurse",
        "plays chess",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Do I live in Porto?",
        "I used to live in Porto. I lived in Porto. I worked as a nurse.",
        "I don't live in Porto. I am not vegan.",
        "If I live in Porto, what then. Imagine I work as a nurse.",
        "She said I live in Porto. My mother says I am vegan.",
        '"I live in Porto", sang the nurse. “I play the violin” is a line.',
        "> I live in Porto",
        "Translate: I live in Porto.",
        "A story: I live in Porto.",
        "From: a@b.co\nI live in Porto.",
        "I live in a house. I live in fear. I work at Night. I work for Myself. I work as hard as I can.",
        "I'm learning a lot. I am learning about it. I'm learning that the hard way. I'm studying for an exam.",
        "I play a role. I have two questions. I have two kids' tickets. My friend lives in Porto.",
        "I am learning to live with depression. I work as a therapist. My hobby is politics.",
        "My hobby is that my password is hunter22.",
        "",
    ],
)
def test_what_is_no_line_of_a_profile(text: str) -> None:
    assert lines(text) == []


def test_the_newer_takes_the_place_of_the_older_and_what_is_taken_back_ends() -> None:
    assert lines("I live in Porto.", "I live in Lisbon.") == ["lives in Lisbon"]
    assert lines("I have one kid.", "I have two kids.") == ["has two kids"]
    assert lines("I play chess.", "I play golf.") == ["plays golf", "plays chess"]
    assert lines("I am learning Rust.", "I am not learning Rust anymore.") == []
    assert lines("I live in Porto.", "I live in Lisbon.", "I no longer live in Porto.") == ["lives in Lisbon"]
    assert lines("Ich wohne in Köln.", "Ich wohne nicht mehr in Köln.") == []
    assert lines("I live in Porto.", "I no longer live in Porto.", "I live in Porto again.") == ["lives in Porto"]


def test_no_message_takes_long() -> None:
    for piece in ("I live in ", "I now still ", "I live in a and ", "ich wohne seit a ", "I have ", "nicht mehr ", "'"):
        started = time.perf_counter()
        lines((piece * 1000)[:1000])
        assert time.perf_counter() - started < 1


async def dream(rem: Rem, store: Store, **more: Any) -> int:
    """A night of profiles; how much it said."""
    return (await rem.dreamer().dream(store.scope, ["profiles"], **more)).said


async def profile(store: Store) -> User:
    """The owner's own row."""
    (found,) = await store.lookup(str(store.scope.user_id), table="users")
    assert isinstance(found, User)
    return found


async def test_a_profile_tells_it_with_its_source_and_says_it_once(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, "I live in Porto.", "I am learning Rust. Why does it not compile?")
    await talk(rem, alice, "I live in Rome.", role=Role.ASSISTANT)
    await talk(rem, alice, "I live in Oslo.", speaker="Caroline")
    await dream(rem, alice)
    user = await profile(alice)
    assert user.metadata["profile"]["about"] == ["lives in Porto", "is learning Rust"]
    assert user.summary == "Lives in Porto, is learning Rust."
    (summary,) = [one for one in await statements(alice, user.key) if one.name == "summary"]
    assert len(summary.sources) == 2
    for again in (False, True):
        assert await dream(rem, alice, again=again) == 0


async def test_what_was_believed_in_may_is_on_record(rem: Rem, alice: Store) -> None:
    await talk_at(alice, _MAY, "I live in Porto.")
    await dream(rem, alice)
    await talk_at(alice, _MAY + timedelta(days=60), "I live in Lisbon now.")
    await dream(rem, alice)
    user = await profile(alice)
    assert user.metadata["profile"]["about"] == ["lives in Lisbon"]
    believed = await statements(alice, user.key, at=_MAY + timedelta(days=1))
    assert "Lives in Porto." in [one.value for one in believed]
    assert "Lives in Lisbon." not in [one.value for one in believed]


async def test_it_goes_with_its_message(rem: Rem, alice: Store) -> None:
    session = await talk(rem, alice, "I live in Porto.")
    await talk(rem, alice, "I play chess.")
    await dream(rem, alice)
    await alice.delete(session)
    assert "Porto" not in str(await profile(alice))
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["plays chess"]


async def test_it_holds_however_much_is_said_after_it(rem: Rem, alice: Store) -> None:
    await talk_at(alice, _MAY, "I live in Porto.")
    await dream(rem, alice)
    later = _MAY + timedelta(days=1)
    session = await alice.upsert(Session(name="much", created_at=later))
    await alice.upsert_many(
        [
            Message(
                session_id=session.id, message_index=index, role=Role.USER, content=f"And {index}?", created_at=later
            )
            for index in range(1001)
        ]
    )
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["lives in Porto"]
    await talk_at(alice, later + timedelta(days=1), "I live in Lisbon.")
    await dream(rem, alice)
    assert (await profile(alice)).metadata["profile"]["about"] == ["lives in Lisbon"]
