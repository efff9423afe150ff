"""What a dream says: kept with its sources, gone with what it was made from, never against its owner."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.claims import Claim, EdgeClaim
from rem.models import Edge, Moment, Resource, Session, User
from tests.dreams.sample_claims import (
    claim_edge,
    claim_field,
    claim_moment,
    count_states,
    list_derived_edges,
    list_keys,
    list_moments,
    start_run,
    store_note,
    to_ref,
    to_sources,
)

_MARCH = datetime(2026, 3, 1, tzinfo=UTC)
_MAY = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
async def plan(alice: Store) -> Resource:
    return await store_note(alice, "plan", "We migrate to Postgres 18.")


@pytest.fixture
async def review(alice: Store) -> Resource:
    return await store_note(alice, "review", "The migration went well.")


async def test_row_has_sources_run_and_confidence(rem: Rem, alice: Store, plan: Resource) -> None:
    run = await start_run(rem, alice)
    changes = await run.store_claims(
        "moments", to_ref(plan), [claim_moment("The plan", plan, confidence=0.8, valid_from=_MAY)]
    )
    assert (changes.said, changes.rows) == (1, {"row": 1})
    (found,) = await list_moments(alice)
    assert (found.origin, found.sources, found.run_id) == ("dream:moments", ["plan"], run.run_id)
    assert (found.confidence, found.valid_from, found.user_id) == (0.8, _MAY, alice.scope.user_id)
    assert list_keys(await alice.lookup("the-plan")) == ["the-plan"]


async def test_same_claims_twice_change_nothing(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    claims: list[Claim] = [claim_moment("The plan", plan, valid_from=_MAY), claim_edge(plan, review)]
    await (await start_run(rem, alice)).store_claims("test", to_ref(plan), claims)
    before = await alice.get(Resource, plan.id), await list_moments(alice)
    second = await (await start_run(rem, alice)).store_claims("test", to_ref(plan), claims)
    assert (second.said, second.ended, second.unchanged) == (0, 0, 2)
    assert (await alice.get(Resource, plan.id), await list_moments(alice)) == before


async def test_new_wording_keeps_row_and_name(
    rem: Rem, alice: Store, plan: Resource, review: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), [claim_moment("The plan", plan, review)])
    (before,) = await list_moments(alice)
    claims = [claim_moment("The great plan", plan, review, summary="It went on.")]
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), claims)
    (after,) = await list_moments(alice)
    assert (after.id, after.name, after.summary) == (before.id, "The plan", "It went on.")
    assert await count_states(sql) == {"live": 1, "ended": 1}


async def test_statement_without_claim_ends(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    first: list[Claim] = [claim_moment("The plan", plan), claim_moment("The review", review), claim_edge(plan, review)]
    await (await start_run(rem, alice)).store_claims("test", to_ref(plan), first)
    changes = await (await start_run(rem, alice)).store_claims(
        "test", to_ref(plan), [claim_moment("The review", review)]
    )
    assert (changes.unchanged, changes.ended) == (1, 2)
    assert list_keys(await list_moments(alice)) == ["the-review"]
    assert await list_derived_edges(alice, plan) == []


async def test_kept_statements_are_not_replaced(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    run = await start_run(rem, alice)
    await run.store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    kept = [said.id for said in await run.fetch_statements("moments", plan.id)]
    await run.store_claims("moments", to_ref(plan), [claim_moment("The review", review)], keep=kept)
    assert list_keys(await list_moments(alice)) == ["the-plan", "the-review"]


async def test_two_moments_of_one_name_get_two_keys(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    await alice.upsert(Moment(name="Monday", summary="The user's own."))
    run = await start_run(rem, alice)
    await run.store_claims("moments", to_ref(plan), [claim_moment("Monday", plan), claim_moment("Monday", review)])
    assert list_keys(await list_moments(alice)) == ["monday", "monday-(2)", "monday-(3)"]
    assert (await alice.lookup("monday"))[0].origin == "user"


async def test_traverse_follows_derived_edge_both_ways(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    await (await start_run(rem, alice)).store_claims("affinity", to_ref(plan), [claim_edge(plan, review)])
    user = "alice@example.com"
    there = await rem.for_user(user).query('TRAVERSE FROM "plan" DEPTH 1')
    back = await rem.for_user(user).query('TRAVERSE FROM "review" DIRECTION in DEPTH 1')
    assert "review" in {row.key for row in there.hits}
    assert "plan" in {row.key for row in back.hits}


async def test_edges_of_owner_stay(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    await alice.upsert(Resource(name="plan", graph_edges=[Edge(dst="sarah-chen", rel_type="written_by")]))
    for claims in ([claim_edge(plan, review)], []):
        await (await start_run(rem, alice)).store_claims("affinity", to_ref(plan), claims)
        stored = await alice.get(Resource, plan.id)
        assert ("written_by", "sarah-chen") in [(line.rel_type, line.dst) for line in stored.graph_edges]
    assert await list_derived_edges(alice, plan) == []


async def test_derived_edge_does_not_make_row_new(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    run = await start_run(rem, alice)
    for row in await run.fetch_new_rows("affinity", Resource):
        await run.mark_seen("affinity", to_ref(row))
    await run.store_claims("other", to_ref(plan), [claim_edge(plan, review)])
    assert await run.fetch_new_rows("affinity", Resource) == []
    await alice.upsert(Resource(name="plan", content="Something else."))
    assert list_keys(await run.fetch_new_rows("affinity", Resource)) == ["plan"]


@pytest.mark.parametrize("erase", [False, True], ids=["deleted", "erased"])
async def test_statements_disappear_with_their_source(
    rem: Rem, alice: Store, plan: Resource, review: Resource, erase: bool, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    me = await alice.upsert(User(name="Alice"))
    claims: list[Claim] = [
        claim_moment("The plan", plan, review),
        claim_edge(plan, review),
        claim_field(me, "summary", "Migrates.", review),
    ]
    await (await start_run(rem, alice)).store_claims("test", to_ref(plan), claims)
    assert (await alice.get(User, me.id)).summary == "Migrates."
    await (alice.erase(review) if erase else alice.delete(review))
    assert await list_moments(alice) == []
    assert await list_derived_edges(alice, plan) == []
    assert (await alice.get(User, me.id)).summary == ""
    assert await count_states(sql) == {}


async def test_statements_about_derived_rows_disappear_with_the_first_source(
    rem: Rem, alice: Store, plan: Resource, review: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    run = await start_run(rem, alice)
    await run.store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    (dreamt,) = await list_moments(alice)
    await run.store_claims("affinity", to_ref(review), [claim_edge(review, plan, dreamt)])
    await alice.delete(plan)
    assert await list_derived_edges(alice, review) == []
    assert await count_states(sql) == {}


async def test_remaining_sources_are_read_again_after_one_is_deleted(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    run = await start_run(rem, alice)
    await run.store_claims("moments", to_ref(plan), [claim_moment("Both", plan, review)])
    await run.mark_seen("moments", to_ref(review))
    assert await run.fetch_new_rows("moments", Resource) == []
    await alice.delete(review)
    assert list_keys(await run.fetch_new_rows("moments", Resource)) == ["plan"]


async def test_claim_with_deleted_source_is_not_stored(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    run = await start_run(rem, alice)
    await alice.delete(review)
    changes = await run.store_claims(
        "moments", to_ref(plan), [claim_moment("Both", plan, review), claim_moment("Nothing")]
    )
    assert (changes.said, changes.vanished) == (0, 2)
    assert await list_moments(alice) == []


async def test_claim_with_source_of_another_user_is_not_stored(
    rem: Rem, alice: Store, bob: Store, plan: Resource
) -> None:
    secret = await store_note(bob, "secret")
    changes = await (await start_run(rem, alice)).store_claims(
        "moments", to_ref(plan), [claim_moment("Theft", plan, secret)]
    )
    assert changes.vanished == 1
    assert await list_moments(alice) == []


@pytest.mark.parametrize("erase", [False, True], ids=["deleted", "erased"])
async def test_deleted_moment_never_comes_back(
    rem: Rem, alice: Store, plan: Resource, review: Resource, erase: bool, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), [claim_moment("The plan", plan, review)])
    (dreamt,) = await list_moments(alice)
    await (alice.erase(dreamt) if erase else alice.delete(dreamt))
    assert await sql.fetchval("SELECT count(*) FROM statements WHERE value <> '{}'") == 0
    third = await store_note(alice, "third")
    for claim in (claim_moment("The plan", plan, review), claim_moment("Said in other words", plan, third)):
        changes = await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), [claim])
        assert changes.refused == 1
        assert await list_moments(alice) == []
    # A later source gives another moment.
    await (await start_run(rem, alice)).store_claims("moments", to_ref(third), [claim_moment("The third", third)])
    assert list_keys(await list_moments(alice)) == ["the-third"]


async def test_refusal_survives_deletion_and_restore_of_source(rem: Rem, alice: Store, plan: Resource) -> None:
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    await alice.delete((await list_moments(alice))[0])
    await alice.delete(plan)
    await alice.restore(Resource, plan.id)
    changes = await (await start_run(rem, alice)).store_claims(
        "moments", to_ref(plan), [claim_moment("The plan", plan)]
    )
    assert changes.refused == 1


async def test_moment_corrected_by_owner_stays(rem: Rem, alice: Store, plan: Resource) -> None:
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    (dreamt,) = await list_moments(alice)
    dreamt.summary = "What really happened."
    await alice.upsert(dreamt)
    changes = await (await start_run(rem, alice)).store_claims(
        "moments", to_ref(plan), [claim_moment("The plan", plan, summary="Anew.")]
    )
    assert changes.refused == 1
    (after,) = await list_moments(alice)
    assert (after.summary, after.origin) == ("What really happened.", "user")
    await alice.delete(plan)
    assert [row.summary for row in await list_moments(alice)] == ["What really happened."]


async def test_corrections_survive_deletion_of_the_source(rem: Rem, alice: Store, plan: Resource) -> None:
    me = await alice.upsert(User(name="Alice"))
    claims: list[Claim] = [claim_moment("The plan", plan), claim_field(me, "summary", "Plans.", plan)]
    await (await start_run(rem, alice)).store_claims("test", to_ref(plan), claims)
    dreamt = (await list_moments(alice))[0]
    dreamt.summary = "What really happened."
    await alice.upsert(dreamt)
    await alice.upsert(User(name="Alice", summary="I am Alice."))
    await alice.delete(plan)
    assert [row.summary for row in await list_moments(alice)] == ["What really happened."]
    assert (await alice.get(User, me.id)).summary == "I am Alice."


async def test_removed_edge_is_not_drawn_again_with_another_relation(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    await (await start_run(rem, alice)).store_claims("affinity", to_ref(plan), [claim_edge(plan, review)])

    def without_edges(entity: Resource) -> None:
        entity.graph_edges = []

    await alice.modify(Resource, plan.id, without_edges)
    for rel_type in ("related_to", "continues"):
        claims = [claim_edge(plan, review, rel_type=rel_type)]
        changes = await (await start_run(rem, alice)).store_claims("affinity", to_ref(plan), claims)
        assert changes.refused == 1
        assert await list_derived_edges(alice, plan) == []


async def test_field_corrected_by_owner_is_not_overwritten(rem: Rem, alice: Store, plan: Resource) -> None:
    me = await alice.upsert(User(name="Alice"))
    await (await start_run(rem, alice)).store_claims(
        "profiles", to_ref(me), [claim_field(me, "interests", ["postgres"], plan)]
    )
    await alice.upsert(User(name="Alice", interests=["sailing"]))
    claims = [claim_field(me, "interests", ["postgres", "rust"], plan), claim_field(me, "summary", "Plans.", plan)]
    changes = await (await start_run(rem, alice)).store_claims("profiles", to_ref(me), claims)
    assert (changes.refused, changes.said) == (1, 1)
    stored = await alice.get(User, me.id)
    assert (stored.interests, stored.summary) == (["sailing"], "Plans.")


async def test_replaced_value_stays_on_record_with_its_period(
    rem: Rem, alice: Store, plan: Resource, review: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    me = await alice.upsert(User(name="Alice"))
    run = await start_run(rem, alice)
    await run.store_claims(
        "profiles", to_ref(me), [claim_field(me, "summary", "Lives in Berlin.", plan, valid_from=_MARCH)]
    )
    await run.store_claims(
        "profiles", to_ref(me), [claim_field(me, "summary", "Lives in Rome.", review, valid_from=_MAY)]
    )
    rows = await sql.fetch("SELECT value #>> '{}', valid_from, valid_to, state FROM statements ORDER BY valid_from")
    assert [tuple(row) for row in rows] == [
        ("Lives in Berlin.", _MARCH, _MAY, "ended"),
        ("Lives in Rome.", _MAY, None, "live"),
    ]
    assert (await alice.get(User, me.id)).summary == "Lives in Rome."


@pytest.mark.parametrize("newest_first", [False, True])
async def test_newer_exclusive_edge_ends_the_older(
    rem: Rem, alice: Store, plan: Resource, review: Resource, newest_first: bool
) -> None:
    acme, globex = await store_note(alice, "acme"), await store_note(alice, "globex")
    march = claim_edge(plan, acme, acme, rel_type="works_at", valid_from=_MARCH, is_exclusive=True)
    may = claim_edge(plan, globex, globex, rel_type="works_at", valid_from=_MAY, is_exclusive=True)
    claims = [(review, march), (plan, may)]
    for subject, claim in reversed(claims) if newest_first else claims:
        await (await start_run(rem, alice)).store_claims("entities", to_ref(subject), [claim])
    assert await list_derived_edges(alice, plan) == [("works_at", "globex")]


async def test_named_entity_needs_evidence_and_is_one_row(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    from rem.dreams.claims import RowClaim
    from rem.models import Ontology

    def named(name: str, alias: str, source: Resource) -> RowClaim:
        data = {"entity_type": "person", "aliases": [alias]}
        thing = Ontology(name=name, content=f"Seen in {source.name}.", extracted_data=data)
        return RowClaim(entity=thing, sources=to_sources(source), confidence=0.6, is_named=True)

    await (await start_run(rem, alice)).store_claims(
        "entities", to_ref(plan), [named("Sarah Chen", "sarah@acme.com", plan)]
    )
    assert await alice.lookup("sarah-chen") == []
    await (await start_run(rem, alice)).store_claims("entities", to_ref(review), [named("sarah chen", "Sarah", review)])
    (found,) = await alice.lookup("sarah-chen")
    assert [found.id] == [same.id for same in await alice.lookup("sarah@acme.com")]
    assert isinstance(found, Ontology)
    assert found.extracted_data["aliases"] == ["Sarah", "sarah@acme.com"]
    assert found.content == "Seen in review.\nSeen in plan."
    assert found.confidence == pytest.approx(0.84)
    await alice.delete(review)
    assert await alice.lookup("sarah-chen") == []


async def test_moment_expires_with_its_source(rem: Rem, alice: Store) -> None:
    soon = datetime(2030, 1, 1, tzinfo=UTC)
    brief = await alice.upsert(Resource(name="brief", content="For a while.", expires_at=soon))
    await (await start_run(rem, alice)).store_claims("moments", to_ref(brief), [claim_moment("Brief", brief)])
    assert (await list_moments(alice))[0].expires_at == soon


async def test_sources_deleted_during_a_run_leave_no_statements(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    notes = [await store_note(alice, f"note-{number}") for number in range(12)]
    run = await start_run(rem, alice)

    async def store(made_from: Resource) -> None:
        await run.store_claims("moments", to_ref(made_from), [claim_moment(f"Of {made_from.name}", made_from)])

    await asyncio.gather(*(work for made_from in notes for work in (store(made_from), alice.delete(made_from))))
    assert await list_moments(alice) == []
    assert await count_states(sql) == {}


async def test_fields_added_by_owner_survive_deletion_of_source(rem: Rem, alice: Store, plan: Resource) -> None:
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    dreamt = (await list_moments(alice))[0]
    dreamt.tags = ["mine"]
    await alice.upsert(dreamt)
    await alice.delete(plan)
    (kept,) = await list_moments(alice)
    assert (kept.tags, kept.summary, kept.origin, kept.sources) == (["mine"], "", "user", [])


async def test_deleted_moment_is_erased_with_its_source(rem: Rem, alice: Store, plan: Resource) -> None:
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    await alice.delete((await list_moments(alice))[0])
    await alice.erase(plan)
    assert await alice.find(Moment, with_deleted=True) == []


async def test_restored_row_has_no_stale_edges(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    await (await start_run(rem, alice)).store_claims("affinity", to_ref(plan), [claim_edge(plan, review)])
    await alice.delete(plan)
    await alice.delete(review)
    await alice.restore(Resource, plan.id)
    assert await list_derived_edges(alice, plan) == []


async def test_row_edited_during_a_run_is_read_again(rem: Rem, alice: Store, plan: Resource) -> None:
    run = await start_run(rem, alice)
    assert list_keys(await run.fetch_new_rows("moments", Resource)) == ["plan"]
    await alice.upsert(Resource(name="plan", content="Something else."))
    await run.store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    assert list_keys(await run.fetch_new_rows("moments", Resource)) == ["plan"]


async def test_subject_is_read_again_if_a_source_is_deleted_during_a_run(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    run = await start_run(rem, alice)
    await run.fetch_new_rows("moments", Resource)
    await alice.delete(review)
    await run.store_claims("moments", to_ref(plan), [claim_moment("Both", plan, review)])
    assert list_keys(await run.fetch_new_rows("moments", Resource)) == ["plan"]


async def test_derived_edge_does_not_change_updated_at_of_session(rem: Rem, alice: Store, plan: Resource) -> None:
    session = await alice.upsert(Session(name="talk"))
    line = EdgeClaim(src=to_ref(session), edge=Edge(dst="plan", rel_type="mentions"), sources=to_sources(plan))
    await (await start_run(rem, alice)).store_claims("entities", to_ref(session), [line], seen_index=0)
    stored = await alice.get(Session, session.id)
    assert [edge.dst for edge in stored.graph_edges] == ["plan"]
    assert stored.updated_at == session.updated_at


async def test_first_instant_of_year_one_is_stored_unchanged(rem: Rem, alice: Store, plan: Resource) -> None:
    long_ago = datetime(1, 1, 1, tzinfo=UTC)
    claims = [claim_moment("The beginning", plan, valid_from=long_ago)]
    await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), claims)
    (found,) = await list_moments(alice)
    assert found.valid_from is not None
    assert found.valid_from.year == 1
    assert (await (await start_run(rem, alice)).store_claims("moments", to_ref(plan), claims)).unchanged == 1
