"""Ingester: files become rows once, changes replace older versions, and deletions last."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rem.app import Rem
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.errors import InvalidAgentError
from rem.ingest.ingester import Ingester
from rem.ingest.models import FetchedFile, IngestOptions
from rem.models import File, Ontology, Resource
from tests.ingest.helpers import PAGE, contents, everything, markdown, only_file


@pytest.fixture
def ingester(rem: Rem) -> Ingester:
    """Return an ingester for Alice."""
    return rem.for_user("alice@example.com").ingester()


async def versions(store: Store) -> dict[str, tuple[object, object]]:
    rows: list[File | Resource] = [*await store.find(Resource, limit=1000), *await store.find(File)]
    return {row.name: (row.id, row.updated_at) for row in rows}


async def test_file_becomes_a_row_and_chunks(ingester: Ingester, alice: Store, bob: Store) -> None:
    text = f"---\ntitle: The guide\ntags: [setup]\ndate: 2024-05-06\n---\n{PAGE}"
    outcome = await ingester.ingest(markdown(text), category="manual", tags=["team"])
    assert (outcome.status, outcome.key, outcome.chunks) == ("added", "guide.md", 3)
    file = await only_file(alice)
    assert (file.name, file.uri, file.mime_type) == ("guide.md", "file:///docs/guide.md", "text/markdown")
    assert (file.processing_status, file.size_bytes, file.tags) == ("completed", len(text), ["setup", "team"])
    assert file.metadata["title"] == "The guide"
    assert file.metadata["headings"] == ["Guide", "Install", "Use"]
    chunks = await alice.find(Resource, order_by="ordinal")
    assert [chunk.name for chunk in chunks] == [f"guide.md#{number}" for number in (1, 2, 3)]
    # Front matter stays with the beginning of the text.
    assert chunks[0].content.startswith("---\ntitle: The guide")
    assert "# Guide" in chunks[0].content
    install = chunks[1]
    assert install.content == "## Install\n\nRun make."
    assert (install.uri, install.ordinal, install.category) == (file.uri, 2, "manual")
    assert (install.origin, install.sources, install.tags) == ("ingest", ["guide.md"], ["setup", "team"])
    assert install.timestamp == datetime(2024, 5, 6, tzinfo=UTC)
    metadata = install.metadata
    assert metadata["heading_path"] == ["Guide", "Install"]
    assert (metadata["file"], metadata["file_id"]) == ("guide.md", str(file.id))
    assert text[metadata["start"] : metadata["end"]] == install.content
    assert [(edge.rel_type, edge.dst, edge.properties["dst_entity_type"]) for edge in install.graph_edges] == [
        ("part_of", "guide.md", "files"),
        ("previous_part", "guide.md#1", "resources"),
        ("next_part", "guide.md#3", "resources"),
    ]
    assert {edge.origin for edge in install.graph_edges} == {"ingest"}
    assert await alice.count_dangling_edges() == 0
    assert not await bob.find(File)
    assert not await bob.find(Resource)


async def test_chunk_timestamp_is_the_time_of_writing(ingester: Ingester, alice: Store) -> None:
    changed = datetime(2023, 2, 1, 9, tzinfo=UTC)
    file = replace(markdown("# Plan\n\nSow in March."), modified_at=changed)
    await ingester.ingest(file)
    (piece,) = await alice.find(Resource)
    assert piece.timestamp == changed
    before = await versions(alice)
    # Copied elsewhere and back: the same bytes are the same file.
    assert (await ingester.ingest(replace(file, modified_at=changed + timedelta(days=9)))).status == "unchanged"
    assert await versions(alice) == before
    await ingester.ingest(replace(markdown("# Plan\n\nSow in May."), modified_at=datetime(2999, 1, 1, tzinfo=UTC)))
    (piece,) = await alice.find(Resource)
    assert piece.timestamp
    assert piece.timestamp <= datetime.now(UTC)


async def test_short_file_is_one_numbered_chunk(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(FetchedFile("note.txt", "file:///note.txt", b"Call Bob."))
    assert await contents(alice) == {"note.txt#1": "Call Bob."}


async def test_chunks_are_found_by_lookup_traverse_and_search(rem: Rem, ingester: Ingester) -> None:
    await ingester.ingest(markdown())
    user = "alice@example.com"
    assert (await rem.for_user(user).query('LOOKUP "guide.md#2"')).count == 1
    walked = await rem.for_user(user).query('TRAVERSE FROM "guide.md#1" TYPE next_part DEPTH 3')
    assert {row.get("key") for row in walked.list_rows()} >= {"guide.md#2", "guide.md#3"}
    found = await rem.for_user(user).query('SEARCH "how is it installed" IN resources LIMIT 1')
    assert found.list_rows()[0]["key"] == "guide.md#2"


async def test_unchanged_file_writes_nothing(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown(), category="manual")
    before = await versions(alice)
    for options in ({}, {"category": "manual"}):
        assert (await ingester.ingest(markdown(), **options)).status == "unchanged"  # type: ignore[arg-type]
    assert await versions(alice) == before
    assert (await ingester.ingest(markdown(), category="other")).status == "changed"
    assert {row.category for row in await alice.find(Resource)} == {"other"}


async def test_changed_file_replaces_its_older_version(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown())
    before = await versions(alice)
    assert (await ingester.ingest(markdown(PAGE.replace("make", "pip")))).status == "changed"
    after = await versions(alice)
    assert {name: row[0] for name, row in after.items()} == {name: row[0] for name, row in before.items()}
    # Unchanged chunks are not written, so they are not indexed again.
    assert after["guide.md#1"] == before["guide.md#1"]
    assert after["guide.md#2"] != before["guide.md#2"]
    await ingester.ingest(markdown("# Guide\n\nShort now."))
    assert await contents(alice) == {"guide.md#1": "# Guide\n\nShort now."}
    assert [edge.rel_type for row in await alice.find(Resource) for edge in row.graph_edges] == ["part_of"]
    assert await alice.count(Resource, with_deleted=True) == 1
    await ingester.ingest(markdown())
    assert list(await contents(alice)) == ["guide.md#1", "guide.md#2", "guide.md#3"]


async def test_changed_chunk_size_cuts_the_file_again(rem: Rem, ingester: Ingester, alice: Store) -> None:
    text = "many words here " * 100
    await ingester.ingest(markdown(text))
    before = len(await contents(alice))
    finer = rem.settings.model_copy(update={"ingest": rem.settings.ingest.model_copy(update={"chunk_tokens": 40})})
    assert (await Ingester(alice, finer).ingest(markdown(text))).status == "changed"
    assert len(await contents(alice)) > 2 * before


async def test_files_with_the_same_name_get_stable_distinct_names(ingester: Ingester, alice: Store) -> None:
    places = ["file:///a/x/notes.md", "file:///b/x/Notes.md", "https://example.com/notes.md"]
    for _ in range(2):
        for place in places:
            await ingester.ingest(markdown(f"# {place}", place.rpartition("/")[2], place))
    assert {row.uri: row.name for row in await alice.find(File)} == {
        places[0]: "notes.md",
        places[1]: "x/Notes.md",
        places[2]: "example.com/notes.md",
    }
    assert await alice.count(Resource) == 3


async def test_existing_rows_with_the_same_key_are_never_overwritten(ingester: Ingester, alice: Store) -> None:
    await alice.upsert(Resource(name="guide.md#2", content="my own note"))
    await ingester.ingest(markdown())
    stored = await contents(alice)
    assert stored["guide.md#2"] == "my own note"
    assert (await only_file(alice)).name == "docs/guide.md"
    assert len(stored) == 4
    # The same for a row that the file reaches only when it grows.
    await ingester.ingest(markdown("# Short", "b.md"))
    await alice.upsert(Resource(name="b.md#3", content="mine, too"))
    await ingester.ingest(markdown(PAGE, "b.md"))
    stored = await contents(alice)
    assert stored["b.md#3"] == "mine, too"
    assert {name for name in stored if name.startswith("docs/b.md")} == {f"docs/b.md#{number}" for number in (1, 2, 3)}
    assert "b.md#1" not in stored


async def test_deleted_file_deletes_its_chunks_and_stays_deleted(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown())
    file = await only_file(alice)
    gone = (await alice.find(Resource, {"name": "guide.md#2"}))[0]
    await alice.delete(gone)
    await alice.delete(file)
    assert await contents(alice) == {}
    for text in (PAGE, PAGE + "\nmore"):
        outcome = await ingester.ingest(markdown(text))
        assert outcome.status == "deleted"
        assert f"rem restore files {file.id}" in str(outcome.error)
    assert await contents(alice) == {}
    await alice.restore(File, file.id)
    assert list(await contents(alice)) == ["guide.md#1", "guide.md#3"]
    await alice.erase(await alice.get(File, file.id))
    assert await alice.count(Resource, with_deleted=True) == 0
    assert (await ingester.ingest(markdown())).status == "added"


async def test_deleted_chunk_stays_deleted(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown())
    await alice.delete((await alice.find(Resource, {"name": "guide.md#2"}))[0])
    await ingester.ingest(markdown())
    await ingester.ingest(markdown(f"{PAGE}\n## More\n\nThere is more.\n"))
    assert await contents(alice) == {
        "guide.md#1": "# Guide\n\nHello.",
        "guide.md#3": "## Use\n\nType rem.",
        "guide.md#4": "## More\n\nThere is more.",
    }
    # Wherever it moves to in the file.
    await ingester.ingest(markdown(f"# New\n\nTop.\n\n{PAGE}"))
    assert "## Install\n\nRun make." not in (await contents(alice)).values()
    # Another text in its place is another text.
    await ingester.ingest(markdown(PAGE.replace("Run make", "Run pip")))
    assert "## Install\n\nRun pip." in (await contents(alice)).values()


async def test_unreadable_file_stores_nothing(ingester: Ingester, alice: Store) -> None:
    for data, status in ((b"", "skipped"), (b"\0\1\2" * 100, "failed"), (b"   \n", "skipped")):
        outcome = await ingester.ingest(FetchedFile("x.txt", "file:///x.txt", data))
        assert outcome.status == status
        assert "x.txt" in str(outcome.error)
    assert await alice.count(File, with_deleted=True) == 0
    assert await alice.count(Resource, with_deleted=True) == 0


async def test_unusual_names_and_texts_are_stored(ingester: Ingester, alice: Store) -> None:
    names = ["---", "é" * 600 + ".md", "日本語.md", "a\nb.md", "  ", "x" * 2000]
    for number, name in enumerate(names):
        outcome = await ingester.ingest(markdown("text İ 👩‍👩‍👧", name, f"file:///{number}/{number}.md"))
        assert outcome.status == "added", outcome
    assert await alice.count(File) == len(names)


async def test_concurrent_ingestion_gives_the_same_result(rem: Rem, alice: Store) -> None:
    files = [markdown(f"{PAGE}\n{number % 3}", "same.md", f"file:///{number % 4}/same.md") for number in range(24)]
    outcomes = await asyncio.gather(*(rem.for_user("alice@example.com").ingester().ingest(file) for file in files))
    assert not [outcome for outcome in outcomes if outcome.status == "failed"]
    names = {row.uri: row.name for row in await alice.find(File)}
    # The first file has the short name.
    assert len(names) == 4
    assert sorted(names.values())[3] == "same.md"
    assert all(name in ("same.md", str(uri)[8:]) for uri, name in names.items())
    assert len(await contents(alice)) == 12
    assert (await check_mirrors(rem.database)).is_exact


async def test_batch_gives_the_same_rows_as_single_files(rem: Rem, alice: Store, bob: Store) -> None:
    places = ["file:///a/n.md", "file:///b/n.md", "file:///a/n.md", "file:///c/N.md"]
    files = [markdown(f"# {number}\n\nText.", "n.md", place) for number, place in enumerate(places)]
    ingester, single = rem.for_user("alice@example.com").ingester(), rem.for_user("bob@example.com").ingester()
    reads = [await ingester.read(file, IngestOptions()) for file in files]
    together = await ingester.store_many(reads)
    apart = [await single.ingest(file) for file in files]
    assert [(one.status, one.name) for one in together] == [(one.status, one.name) for one in apart]
    assert await everything(alice) == await everything(bob)


AGENT = """type: object
description: You answer questions about releases.
properties: {}
json_schema_extra:
  kind: agent
  name: release-helper
"""


async def test_agent_yaml_becomes_an_agent(rem: Rem, alice: Store) -> None:
    saved: list[str] = []

    async def save(text: str) -> str:
        if "nonsense" in text:
            raise InvalidAgentError("line 3: there is no such field")
        saved.append(text)
        return "release-helper"

    ingester = rem.for_user("alice@example.com").ingester(save_agent=save)
    file = FetchedFile("a.yaml", "file:///a.yaml", AGENT.encode())
    assert (await ingester.ingest(file)).status == "added"
    assert (await ingester.ingest(file)).status == "unchanged"
    assert saved == [AGENT]
    assert await contents(alice) == {}
    bad = await ingester.ingest(FetchedFile("b.yml", "file:///b.yml", f"nonsense: 1\n{AGENT}".encode()))
    assert (bad.status, bad.error) == ("failed", "line 3: there is no such field")
    plain = FetchedFile("c.yaml", "file:///c.yaml", b"kind: Deployment\nname: web\n")
    assert (await ingester.ingest(plain)).chunks == 1
    assert [row.name for row in await alice.find(File, order_by="name")] == ["a.yaml", "c.yaml"]


async def test_wiki_pages_become_linked_entries(rem: Rem, ingester: Ingester, alice: Store) -> None:
    pages = {
        "wiki/home.md": "---\ntags: [start]\n---\n# Home\n\nSee [[Deep Work]], [setup](guide/setup.md#x), "
        "[out](https://example.com/a.md) and `[[not this]]`.",
        "wiki/guide/setup.md": "# How to set up\n\nBack [home](../home.md).",
        "wiki/deep.md": "# Deep Work\n\nNothing.",
    }
    for name, text in pages.items():
        outcome = await ingester.ingest(markdown(text, name), form="ontology")
        assert (outcome.status, outcome.chunks) == ("added", 1)
    rows = {row.name: row for row in await alice.find(Ontology)}
    assert set(rows) == {"Home", "How to set up", "Deep Work"}
    assert rows["Home"].content == pages["wiki/home.md"]
    assert rows["Home"].tags == ["start"]
    assert [edge.dst for edge in rows["Home"].graph_edges if edge.rel_type == "links_to"] == [
        "Deep Work",
        "wiki/guide/setup.md",
    ]
    assert await alice.count_dangling_edges() == 0
    assert [row.key for row in await alice.lookup("wiki/guide/setup.md", table="ontologies")] == ["how-to-set-up"]
    walked = await rem.for_user("alice@example.com").query('TRAVERSE FROM "home" TYPE links_to DEPTH 1')
    assert {row.get("key") for row in walked.list_rows()} >= {"deep-work", "how-to-set-up"}
    renamed = pages["wiki/deep.md"].replace("Deep Work", "Shallow Work")
    await ingester.ingest(markdown(renamed, "wiki/deep.md"), form="ontology")
    assert {row.name for row in await alice.find(Ontology, with_deleted=True)} == {
        "Home",
        "How to set up",
        "Shallow Work",
    }
    await alice.delete((await alice.find(File, {"name": "wiki/home.md"}))[0])
    assert {row.name for row in await alice.find(Ontology)} == {"How to set up", "Shallow Work"}


API = """openapi: 3.1.0
info: {title: Pets, version: 1.0.0, description: All about pets.}
paths:
  /pets/{id}:
    get:
      operationId: getPet
      summary: One pet
      tags: [pets]
      parameters: [{name: id, in: path, required: true, description: Which one}]
      responses:
        '200': {description: The pet, content: {application/json: {schema: {$ref: '#/components/schemas/Pet'}}}}
components:
  schemas:
    Pet:
      type: object
      required: [name]
      properties: {name: {type: string}, owner: {$ref: '#/components/schemas/Owner'}}
    Owner: {type: object, description: Who feeds it.}
"""


async def test_api_description_becomes_operations_and_schemas(ingester: Ingester, alice: Store) -> None:
    file = FetchedFile("api.yaml", "file:///api.yaml", API.encode())
    assert (await ingester.ingest(file, form="ontology")).chunks == 4
    rows = {row.name: row for row in await alice.find(Ontology)}
    assert set(rows) == {"Pets", "GET /pets/{id}", "Pet", "Owner"}
    operation = rows["GET /pets/{id}"]
    assert "One pet" in operation.content
    assert "- id (in path, required): Which one" in operation.content
    assert {(edge.rel_type, edge.dst) for edge in operation.graph_edges} == {
        ("part_of", "api.yaml"),
        ("part_of", "pets"),
        ("uses", "pet"),
    }
    assert ("uses", "owner") in {(edge.rel_type, edge.dst) for edge in rows["Pet"].graph_edges}
    assert [row.key for row in await alice.lookup("getPet")] == [operation.key]
    assert (await ingester.ingest(file, form="ontology")).status == "unchanged"
    # As a resource: the entries are erased.
    assert (await ingester.ingest(file, form="resource")).status == "changed"
    assert await alice.count(Ontology, with_deleted=True) == 0
    assert await alice.count(Resource) >= 1


async def test_known_file_keeps_its_form_unless_another_is_requested(ingester: Ingester, alice: Store) -> None:
    await ingester.ingest(markdown(), form="ontology")
    (entry,) = await alice.find(Ontology)
    assert (await ingester.ingest(markdown())).status == "unchanged"
    assert (await ingester.ingest(markdown(f"{PAGE}\nMore.\n"))).status == "changed"
    (again,) = await alice.find(Ontology)
    assert (again.id, again.content[-6:]) == (entry.id, "More.\n")
    assert await contents(alice) == {}
    assert (await ingester.ingest(markdown(f"{PAGE}\nMore.\n"), form="resource")).status == "changed"
    assert (await ingester.ingest(markdown())).status == "changed"
    assert (await alice.find(Ontology), len(await contents(alice))) == ([], 3)
