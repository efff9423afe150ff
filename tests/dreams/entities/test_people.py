"""People whom the owner mentions in passing are found, with what was said about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.models import Ontology
from tests.dreams.entities.sample_sessions import (
    dream_entities,
    get_entity,
    list_entity_keys,
    store_past_session,
    store_session,
)

_MAY = datetime(2026, 5, 4, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Ingrid Solberg starts as our new buyer, she comes from a tea importer.", "Ingrid Solberg"),
        ("He recommended a physio for my knee, Marek Zielony, behind the station.", "Marek Zielony"),
        ("The plumber, Hugo Daems, 0475 66 02 91, will come on Tuesday.", "Hugo Daems"),
        ("Our contact at the mill is a Mr. Hsin-Yi Kuo.", "Hsin-Yi Kuo"),
        ("My check-up with Dr. Verbruggen is on Thursday.", "Dr. Verbruggen"),
        ("My check-up with Dr Blažič is on Thursday.", "Dr Blažič"),
        ("My partner Mojca rang last night.", "Mojca"),
        ("Ana's brother Luka rang last night.", "Luka"),
        ("My brother Anselm rang last night.", "Anselm"),
        ("Mum is called Edith by the way, Edith Marlowe.", "Edith Marlowe"),
        ("Meine Nachbarin Rosalind Kerckhoff gießt die Blumen.", "Rosalind Kerckhoff"),
    ],
)
async def test_person_is_found_after_one_mention(rem: Rem, alice: Store, text: str, name: str) -> None:
    await store_session(rem, alice, text)
    await dream_entities(rem, alice)
    person = await get_entity(alice, name)
    assert text.split(",")[0][:20] in person.content


@pytest.mark.parametrize(
    "texts",
    [
        ["Marek is away."],
        ["Our dog Hugo is ill.", "Our dog Hugo is well."],
        ["We met in the Maria clinic.", "I waited in the Maria clinic."],
        ["I saw a film with Emma Stone."],
        ["The song is by Freddie Mercury."],
        ['She quoted "Oscar Wilde was right" to me.'],
        ["Did Ingrid Solberg call?", "Where is Ingrid Solberg?"],
        ["I'm Hugo Daems.", "My name is Hugo Daems."],
        ["Search my notes for Ingrid Solberg."],
    ],
)
async def test_other_names_are_no_people(rem: Rem, alice: Store, texts: list[str]) -> None:
    for text in texts:
        await store_session(rem, alice, text)
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []


async def test_content_has_statements_with_the_first_name_alone(rem: Rem, alice: Store) -> None:
    texts = (
        "My sister Ewa Nowak moved to Gdansk.",
        "Ewa bought a red bicycle.",
        "Is Ewa coming to the party?",
        "Yesterday I repaired the bicycle of Ewa.",
    )
    for day, text in enumerate(texts):
        await store_past_session(alice, _MAY + timedelta(days=day), text)
        await dream_entities(rem, alice)
    person = await get_entity(alice, "ewa")
    assert (person.key, (await get_entity(alice, "Ewa Nowak")).id) == ("ewa-nowak", person.id)
    assert person.content.split("\n") == [
        "2026-05-07: Yesterday I repaired the bicycle of Ewa.",
        "2026-05-05: Ewa bought a red bicycle.",
        "2026-05-04: My sister Ewa Nowak moved to Gdansk.",
    ]
    assert await list_entity_keys(alice) == ["ewa-nowak"]
    assert (await dream_entities(rem, alice, rescan=True)).run_id is None


async def test_first_name_is_replaced_by_the_full_name(rem: Rem, alice: Store) -> None:
    for day, text in enumerate(("Marek fixed the gate.", "I paid Marek for the gate.", "Marek Zielony sent a bill.")):
        await store_past_session(alice, _MAY + timedelta(days=day), text)
        await dream_entities(rem, alice)
        assert await list_entity_keys(alice) == [[], ["marek"], ["marek-zielony"]][day]
    person = await get_entity(alice, "marek")
    assert [line.partition(": ")[2] for line in person.content.split("\n")] == [
        "Marek Zielony sent a bill.",
        "I paid Marek for the gate.",
        "Marek fixed the gate.",
    ]


async def test_ambiguous_first_name_is_no_alias_and_adds_nothing(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "Marek Zielony and Marek Dudek came to the fair.")
    await store_session(rem, alice, "Marek left early.")
    await dream_entities(rem, alice)
    assert await alice.lookup("marek", table="ontologies") == []
    for key in ("marek-zielony", "marek-dudek"):
        assert "left early" not in (await get_entity(alice, key)).content


async def test_shared_row_does_not_swallow_private_statements(
    rem: Rem, alice: Store, bob: Store, shared: Store
) -> None:
    await shared.upsert(Ontology(name="Ingrid Solberg", content="Head of Sales.", tags=["person"]))
    await store_session(rem, alice, "My colleague Ingrid Solberg told me that she is leaving.")
    await dream_entities(rem, alice)
    own = [row for row in await alice.lookup("Ingrid Solberg") if row.user_id == alice.scope.user_id]
    assert [row.content.partition(": ")[2] for row in own if isinstance(row, Ontology)] == [
        "My colleague Ingrid Solberg told me that she is leaving."
    ]
    (seen,) = await bob.lookup("Ingrid Solberg")
    assert isinstance(seen, Ontology)
    assert seen.content == "Head of Sales."
    assert (await dream_entities(rem, alice, rescan=True)).run_id is None
