"""Notes: titles, aliases and headings are keys, and links are edges."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import pytest

from rem.app import Rem
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.ingest.ingester import Ingester
from rem.ingest.models import FetchedFile
from rem.models import File, Resource, User

ALICE = "alice@example.com"
MARTA = """---
title: Marta Kowalczyk
aliases: [Marta K., "Kowalczyk, Marta"]
tags: ["#people", team]
created: 2025-03-04
---
# Marta

An architect.

## Allergies

Peanuts. She owns the [[Boat]].
"""
BOAT = "# The boat\n\nMoored in Gdynia.\n\n## Engine\n\nDiesel. See [the plan](plans/spring.md#Paint) and [[nobody]].\n"
PLAN = "Sand it.\n\n## Paint\n\nBlue.\n\n## Engine\n\nOil. Back to [[Marta Kowalczyk#Allergies|her]].\n"


@pytest.fixture
def ingester(rem: Rem) -> Ingester:
    """Return an ingester for Alice."""
    return rem.for_user(ALICE).ingester()


def note(name: str, text: str) -> FetchedFile:
    return FetchedFile(f"notes/{name}", f"file:///home/notes/{quote(name)}", text.encode())


@pytest.fixture
async def notes(ingester: Ingester) -> Ingester:
    """Ingest three notes that link to each other in a circle."""
    for name, text in (("people/marta.md", MARTA), ("boat.md", BOAT), ("plans/spring.md", PLAN)):
        assert (await ingester.ingest(note(name, text))).status == "added"
    return ingester


async def keys(store: Store, label: str) -> list[str]:
    return [f"{entity.entity_type.table}/{entity.key}" for entity in await store.lookup(label)]


async def links(rem: Rem, label: str, direction: str = "out") -> set[str]:
    result = await rem.for_user(ALICE).query(f'TRAVERSE FROM "{label}" TYPE links_to DIRECTION {direction}')
    return {row["key"] for row in result.list_rows()}


@pytest.mark.parametrize(
    "label",
    [
        "Marta Kowalczyk",
        "marta-kowalczyk",
        "Marta K.",
        "Kowalczyk, Marta",
        "marta",
        "marta.md",
        "people/marta",
        "notes/people/marta",
        "notes/people/marta.md",
        "file:///home/notes/people/marta.md",
    ],
)
async def test_note_is_found_by_its_names(notes: Ingester, alice: Store, bob: Store, label: str) -> None:
    assert await keys(alice, label) == ["files/notes/people/marta.md"]
    assert await keys(bob, label) == []


async def test_front_matter_gives_tags_and_time(notes: Ingester, alice: Store) -> None:
    (chunk, *_) = await alice.find(Resource, {"uri": "file:///home/notes/people/marta.md"})
    assert chunk.tags == ["people", "team"]
    assert chunk.timestamp
    assert chunk.timestamp.date().isoformat() == "2025-03-04"


async def test_title_is_the_first_heading_of_level_1_or_the_file_name(notes: Ingester, alice: Store) -> None:
    assert await keys(alice, "The boat") == ["files/notes/boat.md"]
    assert await keys(alice, "Spring") == ["files/notes/plans/spring.md"]


async def test_section_is_found_by_its_heading(notes: Ingester, alice: Store) -> None:
    for label in ("Allergies", "Marta Kowalczyk#Allergies", "marta#allergies"):
        assert await keys(alice, label) == ["resources/notes/people/marta.md#2"]
    # Two notes have this heading, so it does not tell which is meant.
    assert await keys(alice, "Engine") == []
    assert await keys(alice, "The boat#Engine") == ["resources/notes/boat.md#2"]
    assert await keys(alice, "Spring#Engine") == ["resources/notes/plans/spring.md#3"]


async def test_heading_counts_only_where_nothing_else_has_the_key(notes: Ingester, alice: Store, shared: Store) -> None:
    assert await keys(alice, "Paint") == ["resources/notes/plans/spring.md#2"]
    topic = await shared.upsert(Resource(name="Paint", content="Colours"))
    assert await keys(alice, "Paint") == ["resources/paint"]
    await shared.delete(topic)
    assert await keys(alice, "Paint") == ["resources/notes/plans/spring.md#2"]


async def test_same_heading_twice_in_a_note_gives_both_sections(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(note("log.md", "# Log\n\n## Monday\n\nRain.\n\n## Monday\n\nSun.\n"))
    assert await keys(alice, "Monday") == []
    assert len(await keys(alice, "Log#Monday")) == 2


async def test_two_notes_with_one_title_are_both_found(ingester: Ingester, alice: Store) -> None:
    for name in ("a.md", "b.md"):
        await ingester.ingest(note(name, f"# Ideas\n\nOf {name}.\n"))
    assert set(await keys(alice, "Ideas")) == {"files/notes/a.md", "files/notes/b.md"}


async def test_person_and_note_with_one_name_are_both_found(notes: Ingester, alice: Store, shared: Store) -> None:
    await alice.upsert(User(name="Marta Kowalczyk", email="marta@example.com"))
    await shared.upsert(User(name="Marta Kowalczyk", email="other@example.com"))
    own, file, other = await alice.lookup("Marta Kowalczyk")
    assert (own.user_id, file.key, other.user_id) == (file.user_id, "notes/people/marta.md", None)


async def test_own_note_comes_before_a_shared_one(rem: Rem, notes: Ingester, alice: Store) -> None:
    await rem.for_user().ingester().ingest(FetchedFile("m.md", "file:///shared/m.md", b"# Marta Kowalczyk\n"))
    assert await keys(alice, "Marta Kowalczyk") == ["files/notes/people/marta.md", "files/m.md"]


async def test_person_in_a_title_is_found_without_the_honorific_and_by_the_first_name(
    rem: Rem, alice: Store, ingester: Ingester
) -> None:
    await ingester.ingest(note("doctor.md", "# Dr. Petra Kovač\n\nOur doctor.\n"))
    await ingester.ingest(note("loan.md", "# Grace period of the loan\n\nTen days.\n"))
    assert await keys(alice, "Petra Kovač") == await keys(alice, "Dr. Petra Kovač") == ["files/notes/doctor.md"]
    assert len(await keys(alice, "Petra")) == 1
    assert await keys(alice, "Grace") == []


async def test_changed_title_and_alias_replace_the_keys(rem: Rem, notes: Ingester, alice: Store) -> None:
    text = MARTA.replace("Marta Kowalczyk", "Marta Nowak").replace("Marta K.", "Tusia").replace("Allergies", "Food")
    assert (await notes.ingest(note("people/marta.md", text))).status == "changed"
    for label in ("Marta Kowalczyk", "Marta K.", "Allergies", "Marta Kowalczyk#Allergies"):
        assert await keys(alice, label) == []
    assert await keys(alice, "Tusia") == await keys(alice, "Marta Nowak") == ["files/notes/people/marta.md"]
    assert await keys(alice, "Food") == ["resources/notes/people/marta.md#2"]
    assert (await check_mirrors(rem.database)).is_exact


async def test_deleted_note_has_no_keys_until_it_is_restored(rem: Rem, notes: Ingester, alice: Store) -> None:
    (file,) = await alice.lookup("Marta Kowalczyk")
    await alice.delete(file)
    assert await keys(alice, "Marta Kowalczyk") == await keys(alice, "Allergies") == []
    await alice.restore(File, file.id)
    assert await keys(alice, "Marta Kowalczyk") == ["files/notes/people/marta.md"]
    assert await keys(alice, "Allergies") == ["resources/notes/people/marta.md#2"]
    await alice.erase(file)
    assert await keys(alice, "Marta Kowalczyk") == await keys(alice, "Allergies") == []
    assert (await check_mirrors(rem.database)).is_exact


async def test_forgetting_a_name_erases_the_note_about_it(rem: Rem, notes: Ingester, alice: Store) -> None:
    plan = await rem.for_user(ALICE).plan_forget("Marta Kowalczyk")
    assert [row.key for row in plan.rows] == ["notes/people/marta.md"]
    assert (await rem.for_user(plan.scope).forget(plan)).is_gone
    assert await keys(alice, "Marta K.") == []
    # A heading is no name: its text is only a mention.
    assert not (await rem.for_user(ALICE).plan_forget("Paint")).rows


@pytest.mark.parametrize(
    ("front_matter", "names"),
    [
        ("aliases: one name", ["one name"]),
        ("aliases: first, second", ["first", "second"]),
        ("aliases: ['a, b', '[x]', '# hash', 'q\"uote', 2024]", ["a, b", "[x]", "# hash", 'q"uote', "2024"]),
        ("alias: Ἀθῆναι 東京 🦊", ["Ἀθῆναι 東京 🦊"]),
        ("aliases: ['', '   ', '---', null, {a: b}]\ntitle: fine", ["fine"]),
        (f"aliases: ['{'x' * 3000}', short]", ["short"]),
        ("title: 2024", ["2024"]),
        ("aliases: [ON, no, 1.10, 1:30]\ntitle: 007", ["ON", "no", "1.10", "1:30", "007"]),
    ],
)
async def test_unusual_aliases(
    ingester: Ingester, rem: Rem, alice: Store, front_matter: str, names: Sequence[str]
) -> None:
    assert (await ingester.ingest(note("x.md", f"---\n{front_matter}\n---\nText.\n"))).status == "added"
    for name in names:
        assert await keys(alice, name) == ["files/notes/x.md"], name
    assert (await check_mirrors(rem.database)).is_exact


async def test_links_are_edges_in_both_directions(rem: Rem, notes: Ingester, alice: Store) -> None:
    assert await links(rem, "Marta Kowalczyk") == {"notes/boat.md"}
    assert await links(rem, "The boat") == {"notes/plans/spring.md"}
    assert await links(rem, "The boat", "in") == {"notes/people/marta.md"}
    assert await links(rem, "Spring", "in") == {"notes/boat.md"}
    # The circle ends where it began.
    walked = await rem.for_user(ALICE).query('TRAVERSE FROM "Marta Kowalczyk" TYPE links_to DEPTH 9')
    assert [(row["key"], row["depth"]) for row in walked.list_rows()] == [
        ("notes/boat.md", 1),
        ("notes/plans/spring.md", 2),
    ]
    (file,) = await alice.lookup("Spring")
    assert [(edge.dst, edge.properties) for edge in file.graph_edges] == [("Marta Kowalczyk", {"heading": "Allergies"})]


async def test_link_to_a_missing_note_leads_there_once_it_exists(rem: Rem, notes: Ingester, alice: Store) -> None:
    assert [edge.dst for edge in await alice.list_dangling_edges()] == ["nobody"]
    await notes.ingest(note("n.md", "---\naliases: nobody\n---\nHere.\n"))
    assert not await alice.list_dangling_edges()
    assert await links(rem, "nobody", "in") == {"notes/boat.md"}


async def test_link_to_a_heading_is_followed_only_if_it_is_the_only_one(rem: Rem, notes: Ingester) -> None:
    await notes.ingest(note("todo.md", "Check [[Paint]] and [[Engine]].\n"))
    assert await links(rem, "todo") == {"notes/plans/spring.md#2"}
    assert await links(rem, "Spring#Paint", "in") == {"notes/todo.md"}
    assert await links(rem, "Spring#Engine", "in") == set()


async def test_ingesting_again_replaces_only_the_links_of_the_note(rem: Rem, notes: Ingester, alice: Store) -> None:
    (file,) = await alice.lookup("The boat")
    file.graph_edges = [*file.graph_edges, file.graph_edges[0].model_copy(update={"dst": "harbour", "origin": "user"})]
    await alice.upsert(file)
    await notes.ingest(note("boat.md", "# The boat\n\nSold to [[Piotr]].\n"))
    (file,) = await alice.lookup("The boat")
    assert {edge.dst for edge in file.graph_edges} == {"Piotr", "harbour"}
    assert await links(rem, "Spring", "in") == set()
    assert (await check_mirrors(rem.database)).is_exact


async def test_fuzzy_compares_names_but_not_headings_or_addresses(rem: Rem, notes: Ingester) -> None:
    result = await rem.for_user(ALICE).query('FUZZY "Marta Kowalzcyk"')
    assert [row["key"] for row in result.list_rows() if row["matched"] == "key"] == ["notes/people/marta.md"]
    result = await rem.for_user(ALICE).query('FUZZY "Alergies"')
    assert not [row for row in result.list_rows() if row["matched"] == "key"]


async def test_other_formats_are_found_by_file_name(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(FetchedFile("src/main.py", "file:///src/main.py", b"def main() -> None: ...\n"))
    assert await keys(alice, "main.py") == ["files/src/main.py"]
    # The stem of a program is no name: there may be many called main.
    assert await keys(alice, "main") == []
