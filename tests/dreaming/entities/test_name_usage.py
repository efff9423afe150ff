"""A name that several sessions use as a person's becomes a person, and earlier sessions are linked."""

from __future__ import annotations

import time
from typing import TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreaming.entities.evidence import UsageTrait
from rem.dreaming.entities.name_usage import find_name_uses, is_about_fiction
from rem.errors import InvalidInputError
from rem.models import Moment, Ontology, Resource
from tests.dreaming.entities.sample_sessions import (
    append_messages,
    dream_entities,
    dump_statements,
    dump_without_ids,
    get_entity,
    list_entity_keys,
    list_mentions,
    store_session,
)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_TOM = (
    "The roof leaks. Temur Okafor said it needs new tiles.",
    "I called Temur Okafor about the gutter.",
    "How much is a gutter? Temur Okafor's brother wants to know.",
)


def traits(text: str) -> dict[str, set[str]]:
    """Return the traits of the names in a text."""
    return {" ".join(one.words): {trait.value for trait in one.traits} for one in find_name_uses(text, 0)}


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("Yesterday Temur Okafor told me a joke.", "Temur Okafor", {"personal", "inside"}),
        ("Temur told me a joke.", "Temur", {"personal"}),
        ("Temur said so.", "Temur", set()),
        ("So Temur said so, and he was right.", "Temur", {"human", "inside"}),
        ("I met Ana de Souza in town.", "Ana de Souza", {"human", "personal", "inside"}),
        ("Please remind Temur of it.", "Temur", {"personal", "inside"}),
        ("We had dinner with Siobhán O'Connor.", "Siobhán O'Connor", {"human", "personal", "inside"}),
        ("It was Temur’s birthday.", "Temur", {"human", "inside"}),
        ("Then Temur and I left.", "Temur", {"human", "personal", "inside"}),
        ("Gestern hat es geregnet, und Uwe Lau hat mir geholfen.", "Uwe Lau", {"personal", "inside"}),
        ("Ich habe gestern Uwe Lau getroffen.", "Uwe Lau", {"human", "personal", "inside"}),
        ("Uwe und ich kochen.", "Uwe", {"human", "personal"}),
        ("Our dog Bella told me.", "Bella", {"other"}),
    ],
)
def test_use_shows_traits(text: str, name: str, expected: set[str]) -> None:
    assert traits(text) == {name: expected}


@pytest.mark.parametrize(
    "text",
    [
        "I like Temur Okafor.",
        "Temur Okafor Road is closed.",
        "The Board told me. My Boss told me. Der Chef hat mir gesagt.",
        "I'll tell you what I'd say. That's what We said.",
        "Mom told me. April told me. Siri told me. Jesus told us.",
        "YouTube told me. TOM TOLD ME.",
        'He sang "I met Temur" and “Temur told me”.',
        "> Temur told me",
        "In the film Temur told me.",
        "Translate: Temur told me.",
        "From: a@b.co\nTom told me.",
        "Temur told me. " * 200,
        "Dr. Okafor told me.",
        "I never met Temur Okafor.",
        "If I met Temur Okafor I would tell him.",
        "Ich habe Uwe Lau nie getroffen.",
        "```\nI met Temur Okafor.\n```",
        "",
    ],
)
def test_text_without_name_use(text: str) -> None:
    assert traits(text) == {}


def test_fiction_in_one_message_covers_the_conversation() -> None:
    assert is_about_fiction(["Let us go on.", "It is for my novel."])
    assert not is_about_fiction(["I met Temur.", "He is ill."])


def test_long_messages_are_processed_fast() -> None:
    for piece in ("Temur told me ", "I really just ", "Aa ", "I met Temur, he ", "'a ", '"', "hat mir a ", "ich habe "):
        started = time.perf_counter()
        list(find_name_uses((piece * 1200)[:1200], 0))
        assert time.perf_counter() - started < 1


async def test_name_used_in_several_sessions_becomes_person(rem: Rem, alice: Store, sql: Connection) -> None:
    sessions = []
    for text in _TOM:
        assert await list_entity_keys(alice) == []
        sessions.append(await store_session(rem, alice, text))
        await dream_entities(rem, alice)
    tom = await get_entity(alice, "Temur Okafor")
    assert tom.extracted_data == {"entity_type": "person", "aliases": ["Temur"]}
    assert len(tom.sources) == 3
    assert "I called Temur Okafor about the gutter." in tom.content
    for session in sessions:
        assert await list_mentions(alice, session) == ["ontologies/temur-okafor"]
    before = await dump_statements(sql)
    for rescan in (False, True):
        assert (await dream_entities(rem, alice, rescan=rescan)).statement_count == 0
    assert await dump_statements(sql) == before


async def test_number_of_runs_makes_no_difference(rem: Rem, alice: Store, bob: Store, sql: Connection) -> None:
    for text in _TOM:
        await store_session(rem, alice, text)
        await dream_entities(rem, alice)
        await store_session(rem, bob, text)
    await dream_entities(rem, bob)
    assert [row[:4] for row in await dump_without_ids(alice, sql)][:1] == [
        row[:4] for row in await dump_without_ids(bob, sql)
    ][:1]


@pytest.mark.parametrize(
    "talks",
    [
        [_TOM],
        [[_TOM[0]], [_TOM[0]], [_TOM[1]], [_TOM[1]]],
        [["So Temur Okafor said no."], [_TOM[2]], [_TOM[2]], ["So Temur Okafor said yes."]],
        [[_TOM[1]], [_TOM[2]]],
        [["Temur told me so. Temur and I agree."], ["Temur's brother agrees."], ["Temur said no."]],
        [*[[text] for text in _TOM], ["Our hamster Temur Okafor is ill."]],
        [*[[text] for text in _TOM], ["I work at Temur Okafor, it is a shop."]],
        [[text, "What a plot for my novel!"] for text in _TOM],
        [
            ["I called Amazon and she was rude."],
            ["Tomorrow Amazon will call me."],
            ["Then I called Amazon. He was nice."],
        ],
    ],
    ids=[
        "one talk",
        "a firm?",
        "famous?",
        "two messages",
        "starts only",
        "an animal",
        "a shop",
        "made up",
        "a hotline",
    ],
)
async def test_too_few_uses_make_no_person(rem: Rem, alice: Store, talks: list[list[str]]) -> None:
    for texts in talks:
        await store_session(rem, alice, *texts)
        await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []


async def test_uses_add_to_an_introduction(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "Now ngosa.diallo@web.de is here.")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    await store_session(rem, alice, "I met Ngosa Diallo.", "Then Ngosa Diallo asked me to help.")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == ["ngosa-diallo"]


async def test_used_first_name_matches_known_person(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "Temur Okafor <temur@okafor.net> comes at ten. Temur is a roofer.")
    for text in ("Temur and I had lunch.", "I told Temur that he was late.", "Then Temur asked me for water."):
        session = await store_session(rem, alice, text)
        await dream_entities(rem, alice)
        assert await list_mentions(alice, session) == ["ontologies/temur-okafor"]
    assert await list_entity_keys(alice) == ["temur-okafor"]


async def test_person_is_removed_with_sessions_and_stays_away_after_deletion(rem: Rem, alice: Store) -> None:
    sessions = [await store_session(rem, alice, text) for text in _TOM]
    await dream_entities(rem, alice)
    await alice.delete(sessions[1])
    assert await list_entity_keys(alice) == []
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    await store_session(rem, alice, _TOM[1])
    await dream_entities(rem, alice)
    await alice.delete(await get_entity(alice, "temur-okafor"))
    await store_session(rem, alice, *_TOM)
    await dream_entities(rem, alice, rescan=True)
    assert await list_entity_keys(alice) == []


async def test_number_of_source_sessions_is_limited(rem: Rem, alice: Store, sql: Connection) -> None:
    for number in range(16):
        session = await store_session(
            rem, alice, f"I met Temur Okafor and paid {number}.", "Then Temur Okafor told me to wait."
        )
        await dream_entities(rem, alice)
    assert await list_mentions(alice, session) == ["ontologies/temur-okafor"]
    count = (
        "SELECT count(*) FROM statements WHERE kind = 'row' AND state = 'live' AND value -> 'extracted_data' ? 'uses'"
    )
    assert await sql.fetchval(count) == 10
    assert (await dream_entities(rem, alice, rescan=True)).statement_count == 0


async def test_earlier_mentions_are_linked_when_person_becomes_known(rem: Rem, alice: Store, sql: Connection) -> None:
    before = await store_session(rem, alice, "Is the train to Ghent late?", "I saw Ngosa Diallo at the station.")
    other = await store_session(rem, alice, "Diallo is a name of many people.")
    note = await alice.upsert(Resource(name="minutes", content="Present: Ngosa Diallo."))
    past = await alice.upsert(Moment(name="A talk", summary="Ngosa Diallo spoke of trains."))
    await rem.dreamer().dream(alice.scope)
    assert await list_mentions(alice, before) == []
    after = await store_session(rem, alice, "Ngosa Diallo <ngosa@diallo.net> wrote.")
    await rem.dreamer().dream(alice.scope)
    for session in (before, after):
        assert await list_mentions(alice, session) == ["ontologies/ngosa-diallo"]
    assert await list_mentions(alice, other) == []
    for document in (await alice.get(Resource, note.id), await alice.get(Moment, past.id)):
        assert [edge.dst for edge in document.graph_edges if edge.rel_type == "mentions"] == ["ngosa-diallo"]
    seen = [row for row in await alice.find(Moment) if "station" in row.summary]
    assert [row.present_persons for row in seen] == [["ngosa-diallo"]]
    linked = await dump_statements(sql)
    assert (await rem.dreamer().dream(alice.scope)).statement_count == 0
    assert (await dream_entities(rem, alice, rescan=True)).statement_count == 0
    assert await dump_statements(sql) == linked


async def test_earlier_mentions_are_linked_after_failed_run(rem: Rem, alice: Store, sql: Connection) -> None:
    before = await store_session(rem, alice, "I saw Ngosa Diallo at the station.")
    await dream_entities(rem, alice)
    await store_session(rem, alice, "Ngosa Diallo <ngosa@diallo.net> wrote.")
    await sql.execute("ALTER TABLE statements ADD CONSTRAINT no_edges CHECK (kind <> 'edge') NOT VALID")
    try:
        with pytest.raises(InvalidInputError):
            await dream_entities(rem, alice)
    finally:
        await sql.execute("ALTER TABLE statements DROP CONSTRAINT no_edges")
    assert await list_entity_keys(alice) == ["ngosa-diallo"]
    await dream_entities(rem, alice)
    assert await list_mentions(alice, before) == ["ontologies/ngosa-diallo"]
    assert (await dream_entities(rem, alice)).statement_count == 0


async def test_rescan_cost_does_not_depend_on_history(rem: Rem, alice: Store) -> None:
    long = await store_session(rem, alice, *(f"What about item {number}?" for number in range(250)))
    await append_messages(rem, alice, long, "Ngosa Diallo asked for it.")
    await dream_entities(rem, alice)
    await store_session(rem, alice, "Ngosa Diallo <ngosa@diallo.net> wrote.")
    report = await dream_entities(rem, alice)
    assert report.changes["entities"].rows == {"row": 1, "edge": 2}
    assert await list_mentions(alice, long) == ["ontologies/ngosa-diallo"]
    (found,) = await alice.find(Ontology)
    assert found.confidence is not None
    assert UsageTrait.HUMAN.value not in found.extracted_data
