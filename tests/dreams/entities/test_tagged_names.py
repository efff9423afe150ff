"""People whom the tagger finds become rows, and earlier sessions are linked."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.entities.tagged_names import find_people, is_about_fiction, is_about_own_life, tag_own_words
from rem.errors import InvalidInputError
from rem.models import Moment, Resource
from tests.dreams.entities.sample_sessions import (
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
_MAREK = (
    "The roof leaks. Marek said it needs new tiles.",
    "I called Marek about the gutter.",
    "How much is a gutter? Marek has offered to repair it.",
)


async def people(text: str) -> list[str]:
    """Return the people in a text."""
    (names,) = await tag_own_words([text])
    return [" ".join(item.words) for item in find_people(text, 0, names)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Yesterday Kasper Holm told me a joke.", ["Kasper Holm"]),
        ("i told priya that sarah chen wants the slides", ["Priya", "Sarah Chen"]),
        ("I met Ana de Souza in town.", ["Ana de Souza"]),
        ("We had dinner with Siobhán O'Connor.", ["Siobhán O'Connor"]),
        ("It was Ravi’s birthday.", ["Ravi"]),
        ("Present: Ngozi Eze, Wim Claes and Beatriz.", ["Ngozi Eze", "Wim Claes", "Beatriz"]),
        ("Ich habe gestern Uwe Lau getroffen.", ["Uwe Lau"]),
        ("Lukas und ich kochen.", ["Lukas"]),
    ],
)
async def test_people_in_a_text(text: str, names: list[str]) -> None:
    assert await people(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "The Board told me. My Boss told me. Der Chef hat mir gesagt.",
        "I'll tell you what I'd say. That's what We said.",
        "Mom told me. Siri told me. Jesus told us. Tante Käthe kommt.",
        "Our dog Bella barked at the postman.",
        'He sang "I met Temur" and “Temur told me”.',
        "> Temur told me",
        "Dr. Okafor told me.",
        "Angela Merkel and Elon Musk were in Berlin.",
        "Write to sarah.chen@acme.com today.",
        "",
    ],
)
async def test_text_without_people(text: str) -> None:
    assert await people(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Bernadette, the nurse at the home, says it's antibiotics.",
        "It belongs to a lad called Bernadette who plays at weddings.",
        "My mother-in-law Bernadette rang.",
        "Bernadette who she shares with is getting married.",
        "The plumber is Bernadette.",
        "Conductor: Bernadette. Rehearsals on Mondays.",
        "wiebkes boyfriend bernadette wants to wear a kilt",
        "Bernadette from work says hello.",
        "Die Klempnerin, Frau Mey, und ihre Enkelin Bernadette kommen.",
        "Her name is Bernadette.",
    ],
)
async def test_one_explanation_is_enough_for_a_first_name(text: str) -> None:
    (names,) = await tag_own_words([text])
    found = [item for item in find_people(text, 0, names) if item.words == ("Bernadette",)]
    assert [item.confidence for item in found] == [0.8]


@pytest.mark.parametrize(
    "text",
    [
        "Bernadette is away.",
        "We have a boat called Bernadette.",
        "The puppy from the shelter is called Bernadette.",
        "I sang for Bernadette, a great evening.",
    ],
)
async def test_a_mere_use_of_a_first_name_is_weak(text: str) -> None:
    (names,) = await tag_own_words([text])
    assert all(item.confidence < 0.75 for item in find_people(text, 0, names))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("he wants to buy the car from our neighbour frau wendt", "Frau Wendt"),
        ("Met the new priest, Father Gabrijel, today.", "Father Gabrijel"),
        ("dr brandis moved the appointment", "Dr. Brandis"),
    ],
)
async def test_titles_that_are_written_like_words(text: str, name: str) -> None:
    (names,) = await tag_own_words([text])
    assert [f"{item.title} {item.words[0]}" for item in find_people(text, 0, names)] == [name]


async def test_text_about_the_media_names_people_with_an_everyday_role() -> None:
    text = "The concert is off, Ben's drummer Piet is ill. The band played songs by Paul Weller, who is a singer."
    (names,) = await tag_own_words([text])
    assert not is_about_own_life(text)
    assert [item.words for item in find_people(text, 0, names, is_own_life=False)] == [("Piet",)]


@pytest.mark.parametrize("text", ["In the film Temur told me.", "Translate: Temur told me.", "Temur told me. " * 200])
def test_message_that_is_not_about_own_life(text: str) -> None:
    assert not is_about_own_life(text)


def test_fiction_in_one_message_covers_the_conversation() -> None:
    assert is_about_fiction(["Let us go on.", "It is for my novel."])
    assert not is_about_fiction(["I met Temur.", "He is ill."])


async def test_first_name_in_several_texts_becomes_person(rem: Rem, alice: Store, sql: Connection) -> None:
    sessions = []
    for number, text in enumerate(_MAREK):
        assert await list_entity_keys(alice) == ([] if number < 2 else ["marek"])
        sessions.append(await store_session(rem, alice, text))
        await dream_entities(rem, alice)
    marek = await get_entity(alice, "Marek")
    assert marek.extracted_data == {"entity_type": "person", "aliases": []}
    assert len(marek.sources) == 3
    assert "I called Marek about the gutter." in marek.content
    for session in sessions:
        assert await list_mentions(alice, session) == ["ontologies/marek"]
    before = await dump_statements(sql)
    for rescan in (False, True):
        assert (await dream_entities(rem, alice, rescan=rescan)).statement_count == 0
    assert await dump_statements(sql) == before


async def test_full_name_in_a_short_note_becomes_person(rem: Rem, alice: Store) -> None:
    note = await alice.upsert(Resource(name="fence", content="Ask Graham Pickles about the fence, he did next door's."))
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == ["graham-pickles"]
    found = await alice.get(Resource, note.id)
    assert [edge.dst for edge in found.graph_edges] == ["graham-pickles"]


async def test_number_of_runs_makes_no_difference(rem: Rem, alice: Store, bob: Store, sql: Connection) -> None:
    for text in _MAREK:
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
        [[_MAREK[0]]],
        [["Our hamster Temur is ill."], ["I feed our hamster Temur."]],
        [["I work at Temur, it is a shop. Temur is closed."], ["I work at Temur."]],
        [[text, "What a plot for my novel!"] for text in _MAREK],
    ],
    ids=["once", "an animal", "a shop", "made up"],
)
async def test_other_names_make_no_person(rem: Rem, alice: Store, talks: list[list[str]]) -> None:
    for texts in talks:
        await store_session(rem, alice, *texts)
        await dream_entities(rem, alice)
    assert "person" not in [tag for key in await list_entity_keys(alice) for tag in (await get_entity(alice, key)).tags]


async def test_name_adds_to_an_address(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "Now ngosa.diallo@web.de is here.")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    await store_session(rem, alice, "I met Ngosa Diallo.")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == ["ngosa-diallo"]


async def test_first_name_matches_known_person(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "Temur Okafor <temur@okafor.net> comes at ten. Temur is a roofer.")
    for text in ("Temur and I had lunch.", "I told Temur that he was late.", "Then Temur asked me for water."):
        session = await store_session(rem, alice, text)
        await dream_entities(rem, alice)
        assert await list_mentions(alice, session) == ["ontologies/temur-okafor"]
    assert await list_entity_keys(alice) == ["temur-okafor"]


async def test_person_is_removed_with_sessions_and_stays_away_after_deletion(rem: Rem, alice: Store) -> None:
    sessions = [await store_session(rem, alice, text) for text in _MAREK]
    await dream_entities(rem, alice)
    for session in sessions[1:]:
        await alice.delete(session)
    assert await list_entity_keys(alice) == []
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    await store_session(rem, alice, _MAREK[1])
    await dream_entities(rem, alice)
    await alice.delete(await get_entity(alice, "marek"))
    await store_session(rem, alice, *_MAREK)
    await dream_entities(rem, alice, rescan=True)
    assert await list_entity_keys(alice) == []


async def test_earlier_mentions_are_linked_when_person_becomes_known(rem: Rem, alice: Store, sql: Connection) -> None:
    before = await store_session(
        rem, alice, "Is the train to Ghent late?", "I saw a film with Ngosa Diallo at the station."
    )
    other = await store_session(rem, alice, "Diallo is a name of many people.")
    note = await alice.upsert(Resource(name="minutes", content="In the film we see Ngosa Diallo."))
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
    before = await store_session(rem, alice, "I saw a film with Ngosa Diallo at the station.")
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
    await append_messages(rem, alice, long, "We saw a film with Ngosa Diallo.")
    await dream_entities(rem, alice)
    await store_session(rem, alice, "Ngosa Diallo <ngosa@diallo.net> wrote.")
    report = await dream_entities(rem, alice)
    assert report.changes["entities"].rows == {"row": 2, "edge": 2}
    assert await list_mentions(alice, long) == ["ontologies/ngosa-diallo"]
