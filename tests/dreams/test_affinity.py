"""The affinity dream draws edges between related rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import asyncpg
import pytest

from rem.agents.service import Agents
from rem.app import Rem
from rem.db.store import Store
from rem.dreams.affinity import Neighbours, fetch_compared_rows
from rem.dreams.claims import RowRef
from rem.models import Edge, Moment, Ontology, Resource
from rem.settings import Settings
from tests.agents.running_agents import agents_with
from tests.dreams.sample_claims import start_run
from tests.dreams.sample_sessions import fetch_statement_rows, run_dreams
from tests.scripted_model import Call, Refuse, ScriptedModel, Step, last_text, scripted_model

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_TEXTS = {
    "pottery class": "I signed up for a pottery class where we throw bowls of clay and glaze them in the kiln.",
    "kiln repair": "In the pottery class the kiln is broken: our bowls of clay crack when we glaze and fire them.",
    "postgres migration": "We migrate the billing database to Postgres 17 and rehearse the cutover of the ledger.",
    "postgres rehearsal": "The rehearsal of the Postgres 17 migration moved the billing ledger in forty minutes.",
    "marathon": "I train for the Lisbon marathon with long runs of thirty kilometres on Sundays.",
    "tax return": "The accountant found a mistake in the VAT return for the third quarter.",
}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


async def _store_texts(store: Store, names: list[str] | None = None) -> dict[str, Resource]:
    return {name: await store.upsert(Resource(name=name, content=_TEXTS[name])) for name in names or list(_TEXTS)}


async def _fetch_edges(sql: Sql) -> set[tuple[str, str, str]]:
    rows = await sql.fetch("SELECT src_key, rel_type, dst_key FROM edges WHERE origin = 'dream:affinity'")
    return {tuple(row) for row in rows}


async def test_related_texts_get_one_edge_that_traverse_follows_both_ways(rem: Rem, alice: Store, sql: Sql) -> None:
    await _store_texts(alice)
    await run_dreams(rem, alice, "affinity")
    assert await _fetch_edges(sql) == {
        ("pottery-class", "related_to", "kiln-repair"),
        ("postgres-migration", "related_to", "postgres-rehearsal"),
    }
    for start, other in (("pottery-class", "kiln-repair"), ("kiln-repair", "pottery-class")):
        walked = await rem.for_user("alice@example.com").query(f'TRAVERSE related_to FROM "{start}" DIRECTION both')
        assert [row["key"] for row in walked.list_rows()] == [other]
        assert 0.45 <= walked.list_rows()[0]["weight"] <= 1
    outward = await rem.for_user("alice@example.com").query('TRAVERSE related_to FROM "pottery-class"')
    assert [row["key"] for row in outward.list_rows()] == ["kiln-repair"]
    before = await fetch_statement_rows(sql)
    assert (await run_dreams(rem, alice, "affinity")).run_id is None
    assert (await run_dreams(rem, alice, "affinity", rescan=True)).statement_count == 0
    assert await fetch_statement_rows(sql) == before


async def test_run_compares_only_new_rows(rem: Rem, alice: Store, sql: Sql) -> None:
    await _store_texts(alice, ["pottery class", "marathon", "tax return"])
    await run_dreams(rem, alice, "affinity")
    assert await _fetch_edges(sql) == set()
    await _store_texts(alice, ["kiln repair"])
    report = await run_dreams(rem, alice, "affinity")
    assert await _fetch_edges(sql) == {("kiln-repair", "related_to", "pottery-class")}
    assert (report.statement_count, report.changes["affinity"].unchanged) == (1, 0)


async def test_edge_disappears_when_either_end_is_deleted_or_changed(rem: Rem, alice: Store, sql: Sql) -> None:
    stored = await _store_texts(alice)
    await run_dreams(rem, alice, "affinity")
    await alice.delete(stored["kiln repair"])
    assert await _fetch_edges(sql) == {("postgres-migration", "related_to", "postgres-rehearsal")}
    text = "My grandmother's recipe for plum dumplings needs a kilo of floury potatoes and cinnamon sugar."
    await alice.modify(Resource, stored["postgres rehearsal"].id, lambda r: r.model_copy(update={"content": text}))
    await run_dreams(rem, alice, "affinity")
    assert await _fetch_edges(sql) == set()
    assert (await run_dreams(rem, alice, "affinity", rescan=True)).statement_count == 0


async def test_edge_removed_by_owner_never_comes_back(rem: Rem, alice: Store, sql: Sql) -> None:
    stored = await _store_texts(alice, ["pottery class", "kiln repair"])
    await run_dreams(rem, alice, "affinity")

    def without_dreams(resource: Resource) -> Resource:
        return resource.model_copy(update={"graph_edges": [Edge(dst="marathon", rel_type="knows")]})

    await alice.modify(Resource, stored["pottery class"].id, without_dreams)
    await run_dreams(rem, alice, "affinity")
    await run_dreams(rem, alice, "affinity", rescan=True)
    assert ("pottery-class", "related_to", "kiln-repair") not in await _fetch_edges(sql)
    kept = await alice.get(Resource, stored["pottery class"].id)
    assert [(edge.rel_type, edge.dst) for edge in kept.graph_edges] == [("knows", "marathon")]


async def test_chunks_of_one_file_get_no_edge_and_copies_get_same_as(rem: Rem, alice: Store, sql: Sql) -> None:
    file_id = "5b6949e5-976b-4e7f-96ea-a58e8a000000"
    for name in ("pottery class", "kiln repair"):
        await alice.upsert(Resource(name=name, content=_TEXTS[name], metadata={"file_id": file_id}))
    await alice.upsert(Resource(name="copy of marathon", content=_TEXTS["marathon"]))
    await _store_texts(alice, ["marathon"])
    await run_dreams(rem, alice, "affinity")
    assert await _fetch_edges(sql) == {("copy-of-marathon", "same_as", "marathon")}


async def test_moments_and_shared_entries_are_linked_but_not_rows_of_other_users(
    rem: Rem, alice: Store, bob: Store, shared: Store, sql: Sql
) -> None:
    await alice.upsert(Moment(name="Kiln broke", summary=_TEXTS["kiln repair"]))
    await shared.upsert(Ontology(name="Pottery", content=_TEXTS["pottery class"]))
    await bob.upsert(Resource(name="Bob's kiln", content=_TEXTS["kiln repair"] + " Bob says so."))
    await run_dreams(rem, alice, "affinity")
    assert await _fetch_edges(sql) == {("kiln-broke", "related_to", "pottery")}
    walked = await rem.for_user("alice@example.com").query('TRAVERSE related_to FROM "kiln-broke"')
    assert [(row["table"], row["key"]) for row in walked.list_rows()] == [("ontologies", "pottery")]
    # Shared rows get no edges to private ones.
    await run_dreams(rem, shared, "affinity")
    assert await _fetch_edges(sql) == {("kiln-broke", "related_to", "pottery")}


async def test_row_has_at_most_three_edges(rem: Rem, alice: Store, sql: Sql) -> None:
    for number in range(8):
        text = f"{_TEXTS['postgres migration']} This is note {number} of the migration rehearsal."
        await alice.upsert(Resource(name=f"note {number}", content=text))
    await _store_texts(alice, ["marathon", "tax return", "pottery class"])
    await run_dreams(rem, alice, "affinity")
    rows = await sql.fetch("SELECT src_key, count(*) FROM edges WHERE origin = 'dream:affinity' GROUP BY src_key")
    assert rows
    assert all(row[1] <= 3 for row in rows)


async def test_empty_and_tiny_texts_get_no_edges(rem: Rem, alice: Store, sql: Sql) -> None:
    for number, text in enumerate(("", "ok", "ok!", "Thanks.", "👍", "東京", "東京")):
        await alice.upsert(Resource(name=f"tiny {number}", content=text))
    await run_dreams(rem, alice, "affinity")
    assert await _fetch_edges(sql) == set()


async def test_report_says_that_nothing_is_embedded(settings: Settings) -> None:
    changed = Settings.model_validate({**settings.model_dump(), "embedding": {"provider": "none"}})
    async with Rem.open(changed) as rem:
        alice = rem.for_user("alice@example.com").store
        await _store_texts(alice)
        report = await run_dreams(rem, alice, "affinity")
    assert report.statement_count == 0
    assert any("nothing is embedded" in note for note in report.notes)


async def _dream_with_model(agents: Agents, alice: Store) -> Any:
    return await agents.rem.dreamer().dream(alice.scope, ["affinity"])


async def test_model_names_the_relation_or_rejects_the_pair(
    rem: Rem, settings: Settings, alice: Store, sql: Sql, model: ScriptedModel
) -> None:
    prompts: list[str] = []

    def script(body: dict[str, Any]) -> list[Step]:
        text = last_text(body)
        prompts.append(text)
        relation = "supersedes" if "Postgres" in text else "none"
        answer = {"relation": relation, "strength": 0.9 if relation != "none" else 0, "reason": "Both are of one move."}
        return [Call(body["tools"][0]["function"]["name"], answer)]

    model.script = script
    await _store_texts(alice)
    async with agents_with(settings, model) as agents:
        report = await _dream_with_model(agents, alice)
        assert report.model is not None
        assert await _fetch_edges(sql) == {("postgres-migration", "supersedes", "postgres-rehearsal")}
        stored = await alice.find(Resource, {"key": "postgres-migration"})
        edge = next(edge for edge in stored[0].graph_edges if edge.origin == "dream:affinity")
        assert (edge.weight, edge.properties["reason"]) == (0.9, "Both are of one move.")
        calls = len(prompts)
        assert calls <= 3 * len(_TEXTS)
        await _dream_with_model(agents, alice)
        assert len(prompts) == calls, "a pair is judged once"
    assert all("<memories>" in text for text in prompts)


async def test_next_run_retries_after_model_failure(
    rem: Rem, settings: Settings, alice: Store, sql: Sql, model: ScriptedModel
) -> None:
    model.script = lambda _body: [Refuse(500, "tired")]
    await _store_texts(alice, ["pottery class", "kiln repair"])
    async with agents_with(settings, model) as agents:
        report = await _dream_with_model(agents, alice)
    assert await _fetch_edges(sql) == set()
    assert any("the next run tries again" in note for note in report.notes)
    await run_dreams(rem, alice, "affinity")
    assert len(await _fetch_edges(sql)) == 1


async def test_index_finds_the_same_neighbours_as_full_scan(rem: Rem, alice: Store) -> None:
    texts = await _store_texts(alice)
    await rem.for_user("alice@example.com").index()
    run = await start_run(rem, alice)
    (subject,) = await fetch_compared_rows(run, [RowRef("resources", texts["pottery class"].id)])
    keys = []
    for max_scanned_passages in (0, 20_000):
        neighbours = await Neighbours.load(run, max_scanned_passages)
        assert neighbours is not None
        keys.append([row.key for row, _ in await neighbours.find_nearest(subject, 0.0, -1.0)])
    assert keys[0] == keys[1]
    assert keys[0][0] == "kiln-repair"
