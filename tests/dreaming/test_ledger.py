"""What a dream says: kept with its sources, gone with what it was made from, never against its owner."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreaming.claims import Claim, EdgeClaim
from rem.models import Edge, Moment, Resource, Session, User
from tests.dreaming.sample_claims import (
    dreamt_edges,
    edge,
    field,
    keys,
    moment,
    moments,
    night_for,
    note,
    ref,
    sources,
    states,
)

_MARCH = datetime(2026, 3, 1, tzinfo=UTC)
_MAY = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
async def plan(alice: Store) -> Resource:
    return await note(alice, "plan", "We migrate to Postgres 18.")


@pytest.fixture
async def review(alice: Store) -> Resource:
    return await note(alice, "review", "The migration went well.")


async def test_a_row_has_its_sources_run_and_confidence(rem: Rem, alice: Store, plan: Resource) -> None:
    night = await night_for(rem, alice)
    changes = await night.store_claims(
        "moments", ref(plan), [moment("The plan", plan, confidence=0.8, valid_from=_MAY)]
    )
    assert (changes.said, changes.rows) == (1, {"row": 1})
    (found,) = await moments(alice)
    assert (found.origin, found.sources, found.run_id) == ("dream:moments", ["plan"], night.run_id)
    assert (found.confidence, found.valid_from, found.user_id) == (0.8, _MAY, alice.scope.user_id)
    assert keys(await alice.lookup("the-plan")) == ["the-plan"]


async def test_saying_the_same_twice_changes_nothing(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    claims: list[Claim] = [moment("The plan", plan, valid_from=_MAY), edge(plan, review)]
    await (await night_for(rem, alice)).store_claims("test", ref(plan), claims)
    before = await alice.get(Resource, plan.id), await moments(alice)
    again = await (await night_for(rem, alice)).store_claims("test", ref(plan), claims)
    assert (again.said, again.ended, again.unchanged) == (0, 0, 2)
    assert (await alice.get(Resource, plan.id), await moments(alice)) == before


async def test_a_new_wording_keeps_the_row_and_its_name(
    rem: Rem, alice: Store, plan: Resource, review: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await (await night_for(rem, alice)).store_claims("moments", ref(plan), [moment("The plan", plan, review)])
    (before,) = await moments(alice)
    claims = [moment("The great plan", plan, review, summary="It went on.")]
    await (await night_for(rem, alice)).store_claims("moments", ref(plan), claims)
    (after,) = await moments(alice)
    assert (after.id, after.name, after.summary) == (before.id, "The plan", "It went on.")
    assert await states(sql) == {"live": 1, "ended": 1}


async def test_what_is_not_said_any_more_goes(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    first: list[Claim] = [moment("The plan", plan), moment("The review", review), edge(plan, review)]
    await (await night_for(rem, alice)).store_claims("test", ref(plan), first)
    changes = await (await night_for(rem, alice)).store_claims("test", ref(plan), [moment("The review", review)])
    assert (changes.unchanged, changes.ended) == (1, 2)
    assert keys(await moments(alice)) == ["the-review"]
    assert await dreamt_edges(alice, plan) == []


async def test_what_is_kept_is_not_replaced(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    night = await night_for(rem, alice)
    await night.store_claims("moments", ref(plan), [moment("The plan", plan)])
    kept = [said.id for said in await night.fetch_statements("moments", plan.id)]
    await night.store_claims("moments", ref(plan), [moment("The review", review)], keep=kept)
    assert keys(await moments(alice)) == ["the-plan", "the-review"]


async def test_two_moments_of_one_name_have_two_keys(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    await alice.upsert(Moment(name="Monday", summary="The user's own."))
    night = await night_for(rem, alice)
    await night.store_claims("moments", ref(plan), [moment("Monday", plan), moment("Monday", review)])
    assert keys(await moments(alice)) == ["monday", "monday-(2)", "monday-(3)"]
    assert (await alice.lookup("monday"))[0].origin == "user"


async def test_an_edge_can_be_walked_both_ways(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    await (await night_for(rem, alice)).store_claims("affinity", ref(plan), [edge(plan, review)])
    user = "alice@example.com"
    there = await rem.query('TRAVERSE FROM "plan" DEPTH 1', user=user)
    back = await rem.query('TRAVERSE FROM "review" DIRECTION in DEPTH 1', user=user)
    assert "review" in {row["key"] for row in there.results}
    assert "plan" in {row["key"] for row in back.results}


async def test_an_edge_of_the_users_own_stays(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    await alice.upsert(Resource(name="plan", graph_edges=[Edge(dst="sarah-chen", rel_type="written_by")]))
    for claims in ([edge(plan, review)], []):
        await (await night_for(rem, alice)).store_claims("affinity", ref(plan), claims)
        stored = await alice.get(Resource, plan.id)
        assert ("written_by", "sarah-chen") in [(line.rel_type, line.dst) for line in stored.graph_edges]
    assert await dreamt_edges(alice, plan) == []


async def test_an_edge_is_no_news_to_the_dreams(rem: Rem, alice: Store, plan: Resource, review: Resource) -> None:
    night = await night_for(rem, alice)
    for row in await night.fetch_new_rows("affinity", Resource):
        await night.mark_seen("affinity", ref(row))
    await night.store_claims("other", ref(plan), [edge(plan, review)])
    assert await night.fetch_new_rows("affinity", Resource) == []
    await alice.upsert(Resource(name="plan", content="Something else."))
    assert keys(await night.fetch_new_rows("affinity", Resource)) == ["plan"]


@pytest.mark.parametrize("erase", [False, True], ids=["deleted", "erased"])
async def test_what_was_made_from_a_gone_source_is_gone_at_once(
    rem: Rem, alice: Store, plan: Resource, review: Resource, erase: bool, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    me = await alice.upsert(User(name="Alice"))
    claims: list[Claim] = [
        moment("The plan", plan, review),
        edge(plan, review),
        field(me, "summary", "Migrates.", review),
    ]
    await (await night_for(rem, alice)).store_claims("test", ref(plan), claims)
    assert (await alice.get(User, me.id)).summary == "Migrates."
    await (alice.erase(review) if erase else alice.delete(review))
    assert await moments(alice) == []
    assert await dreamt_edges(alice, plan) == []
    assert (await alice.get(User, me.id)).summary == ""
    assert await states(sql) == {}


async def test_what_is_made_from_dreamt_rows_goes_with_their_sources(
    rem: Rem, alice: Store, plan: Resource, review: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    night = await night_for(rem, alice)
    await night.store_claims("moments", ref(plan), [moment("The plan", plan)])
    (dreamt,) = await moments(alice)
    await night.store_claims("affinity", ref(review), [edge(review, plan, dreamt)])
    await alice.delete(plan)
    assert await dreamt_edges(alice, review) == []
    assert await states(sql) == {}


async def test_a_lost_source_lets_the_rest_be_looked_at_again(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    night = await night_for(rem, alice)
    await night.store_claims("moments", ref(plan), [moment("Both", plan, review)])
    await night.mark_seen("moments", ref(review))
    assert await night.fetch_new_rows("moments", Resource) == []
    await alice.delete(review)
    assert keys(await night.fetch_new_rows("moments", Resource)) == ["plan"]


async def test_a_claim_from_something_that_is_gone_is_not_said(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    night = await night_for(rem, alice)
    await alice.delete(review)
    changes = await night.store_claims("moments", ref(plan), [moment("Both", plan, review), moment("Nothing")])
    assert (changes.said, changes.vanished) == (0, 2)
    assert await moments(alice) == []


async def test_a_claim_from_anothers_memory_is_not_said(rem: Rem, alice: Store, bob: Store, plan: Resource) -> None:
    secret = await note(bob, "secret")
    changes = await (await night_for(rem, alice)).store_claims("moments", ref(plan), [moment("Theft", plan, secret)])
    assert changes.vanished == 1
    assert await moments(alice) == []


@pytest.mark.parametrize("erase", [False, True], ids=["deleted", "erased"])
async def test_a_deleted_moment_never_comes_back(
    rem: Rem, alice: Store, plan: Resource, review: Resource, erase: bool, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await (await night_for(rem, alice)).store_claims("moments", ref(plan), [moment("The plan", plan, review)])
    (dreamt,) = await moments(alice)
    await (alice.erase(dreamt) if erase else alice.delete(dreamt))
    assert await sql.fetchval("SELECT count(*) FROM statements WHERE value <> '{}'") == 0
    third = await note(alice, "third")
    for claim in (moment("The plan", plan, review), moment("Said in other words", plan, third)):
        changes = await (await night_for(rem, alice)).store_claims("moments", ref(plan), [claim])
        assert changes.refused == 1
        assert await moments(alice) == []
    # What came after it is another thing.
    await (await night_for(rem, alice)).store_claims("moments", ref(third), [moment("The third", third)])
    assert keys(await moments(alice)) == ["the-third"]


async def test_a_refusal_outlives_the_deletion_of_its_source(rem: Rem, alice: Store, plan: Resource) -> None:
    await (await night_for(rem, alice)).store_claims("moments", ref(plan), [moment("The plan", plan)])
    await alice.delete((await moments(alice))[0])
    await alice.delete(plan)
    await alice.restore(Resource, plan.id)
    changes = await (await night_for(rem, alice)).store_claims("moments", ref(plan), [moment("The plan", plan)])
    assert changes.refused == 1


async def test_a_corrected_moment_stays_as_its_owner_wrote_it(rem: Rem, alice: Store, plan: Resource) -> None:
    await (await night_for(rem, alice)).store_claims("moments", ref(plan), [moment("The plan", plan)])
    (dreamt,) = await moments(alice)
    dreamt.summary = "What really happened."
    await alice.upsert(dreamt)
    changes = await (await night_for(rem, alice)).store_claims(
        "moments", ref(plan), [moment("The plan", plan, summary="Anew.")]
    )
    assert changes.refused == 1
    (after,) = await moments(alice)
    assert (after.summary, after.origin) == ("What really happened.", "user")
    await alice.delete(plan)
    assert [found.summary for found in await moments(alice)] == ["What really happened."]


async def test_a_correction_is_seen_when_the_source_goes_first(rem: Rem, alice: Store, plan: Resource) -> None:
    me = await alice.upsert(User(name="Alice"))
    claims: list[Claim] = [moment("The plan", plan), field(me, "summary", "Plans.", plan)]
    await (await night_for(rem, alice)).store_claims("test", ref(plan), claims)
    dreamt = (await moments(alice))[0]
    dreamt.summary = "What really happened."
    await alice.upsert(dreamt)
    await alice.upsert(User(name="Alice", summary="I am Alice."))
    await alice.delete(plan)
    assert [found.summary for found in await moments(alice)] == ["What really happened."]
    assert (await alice.get(User, me.id)).summary == "I am Alice."


async def test_a_removed_edge_is_not_drawn_again_under_another_name(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    await (await night_for(rem, alice)).store_claims("affinity", ref(plan), [edge(plan, review)])

    def without_edges(entity: Resource) -> None:
        entity.graph_edges = []

    await alice.modify(Resource, plan.id, without_edges)
    for rel_type in ("related_to", "continues"):
        claims = [edge(plan, review, rel_type=rel_type)]
        changes = await (await night_for(rem, alice)).store_claims("affinity", ref(plan), claims)
        assert changes.refused == 1
        assert await dreamt_edges(alice, plan) == []


async def test_a_corrected_field_is_not_written_over(rem: Rem, alice: Store, plan: Resource) -> None:
    me = await alice.upsert(User(name="Alice"))
    await (await night_for(rem, alice)).store_claims("profiles", ref(me), [field(me, "interests", ["postgres"], plan)])
    await alice.upsert(User(name="Alice", interests=["sailing"]))
    claims = [field(me, "interests", ["postgres", "rust"], plan), field(me, "summary", "Plans.", plan)]
    changes = await (await night_for(rem, alice)).store_claims("profiles", ref(me), claims)
    assert (changes.refused, changes.said) == (1, 1)
    stored = await alice.get(User, me.id)
    assert (stored.interests, stored.summary) == (["sailing"], "Plans.")


async def test_what_was_believed_before_stays_on_record(
    rem: Rem, alice: Store, plan: Resource, review: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    me = await alice.upsert(User(name="Alice"))
    night = await night_for(rem, alice)
    await night.store_claims("profiles", ref(me), [field(me, "summary", "Lives in Berlin.", plan, valid_from=_MARCH)])
    await night.store_claims("profiles", ref(me), [field(me, "summary", "Lives in Rome.", review, valid_from=_MAY)])
    believed = await sql.fetch("SELECT value #>> '{}', valid_from, valid_to, state FROM statements ORDER BY valid_from")
    assert [tuple(row) for row in believed] == [
        ("Lives in Berlin.", _MARCH, _MAY, "ended"),
        ("Lives in Rome.", _MAY, None, "live"),
    ]
    assert (await alice.get(User, me.id)).summary == "Lives in Rome."


@pytest.mark.parametrize("newest_first", [False, True])
async def test_of_two_that_exclude_each_other_the_newer_stands(
    rem: Rem, alice: Store, plan: Resource, review: Resource, newest_first: bool
) -> None:
    acme, globex = await note(alice, "acme"), await note(alice, "globex")
    march = edge(plan, acme, acme, rel_type="works_at", valid_from=_MARCH, is_exclusive=True)
    may = edge(plan, globex, globex, rel_type="works_at", valid_from=_MAY, is_exclusive=True)
    told = [(review, march), (plan, may)]
    for subject, claim in reversed(told) if newest_first else told:
        await (await night_for(rem, alice)).store_claims("entities", ref(subject), [claim])
    assert await dreamt_edges(alice, plan) == [("works_at", "globex")]


async def test_a_named_thing_needs_evidence_and_is_one_row(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    from rem.dreaming.claims import RowClaim
    from rem.models import Ontology

    def named(name: str, alias: str, source: Resource) -> RowClaim:
        data = {"entity_type": "person", "aliases": [alias]}
        thing = Ontology(name=name, content=f"Seen in {source.name}.", extracted_data=data)
        return RowClaim(entity=thing, sources=sources(source), confidence=0.6, is_named=True)

    await (await night_for(rem, alice)).store_claims(
        "entities", ref(plan), [named("Sarah Chen", "sarah@acme.com", plan)]
    )
    assert await alice.lookup("sarah-chen") == []
    await (await night_for(rem, alice)).store_claims("entities", ref(review), [named("sarah chen", "Sarah", review)])
    (found,) = await alice.lookup("sarah-chen")
    assert [found.id] == [same.id for same in await alice.lookup("sarah@acme.com")]
    assert isinstance(found, Ontology)
    assert found.extracted_data["aliases"] == ["Sarah", "sarah@acme.com"]
    assert found.content == "Seen in plan.\nSeen in review."
    assert found.confidence == pytest.approx(0.84)
    await alice.delete(review)
    assert await alice.lookup("sarah-chen") == []


async def test_a_source_that_lapses_takes_the_moment_along(rem: Rem, alice: Store) -> None:
    soon = datetime(2030, 1, 1, tzinfo=UTC)
    brief = await alice.upsert(Resource(name="brief", content="For a while.", expires_at=soon))
    await (await night_for(rem, alice)).store_claims("moments", ref(brief), [moment("Brief", brief)])
    assert (await moments(alice))[0].expires_at == soon


async def test_deleting_while_a_dream_speaks_leaves_nothing(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    notes = [await note(alice, f"note-{number}") for number in range(12)]
    night = await night_for(rem, alice)

    async def speak(made_from: Resource) -> None:
        await night.store_claims("moments", ref(made_from), [moment(f"Of {made_from.name}", made_from)])

    await asyncio.gather(*(work for made_from in notes for work in (speak(made_from), alice.delete(made_from))))
    assert await moments(alice) == []
    assert await states(sql) == {}


async def test_what_its_owner_put_into_a_dreamt_row_stays_alone(rem: Rem, alice: Store, plan: Resource) -> None:
    await (await night_for(rem, alice)).store_claims("moments", ref(plan), [moment("The plan", plan)])
    dreamt = (await moments(alice))[0]
    dreamt.tags = ["mine"]
    await alice.upsert(dreamt)
    await alice.delete(plan)
    (kept,) = await moments(alice)
    assert (kept.tags, kept.summary, kept.origin, kept.sources) == (["mine"], "", "user", [])


async def test_a_deleted_moment_is_erased_with_its_source(rem: Rem, alice: Store, plan: Resource) -> None:
    await (await night_for(rem, alice)).store_claims("moments", ref(plan), [moment("The plan", plan)])
    await alice.delete((await moments(alice))[0])
    await alice.erase(plan)
    assert await alice.find(Moment, with_deleted=True) == []


async def test_a_restored_row_brings_no_old_edges_back(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    await (await night_for(rem, alice)).store_claims("affinity", ref(plan), [edge(plan, review)])
    await alice.delete(plan)
    await alice.delete(review)
    await alice.restore(Resource, plan.id)
    assert await dreamt_edges(alice, plan) == []


async def test_what_is_edited_while_it_is_dreamt_on_is_news(rem: Rem, alice: Store, plan: Resource) -> None:
    night = await night_for(rem, alice)
    assert keys(await night.fetch_new_rows("moments", Resource)) == ["plan"]
    await alice.upsert(Resource(name="plan", content="Something else."))
    await night.store_claims("moments", ref(plan), [moment("The plan", plan)])
    assert keys(await night.fetch_new_rows("moments", Resource)) == ["plan"]


async def test_what_lost_a_source_while_it_was_dreamt_on_is_looked_at_again(
    rem: Rem, alice: Store, plan: Resource, review: Resource
) -> None:
    night = await night_for(rem, alice)
    await night.fetch_new_rows("moments", Resource)
    await alice.delete(review)
    await night.store_claims("moments", ref(plan), [moment("Both", plan, review)])
    assert keys(await night.fetch_new_rows("moments", Resource)) == ["plan"]


async def test_a_dream_does_not_count_as_writing_to_a_conversation(rem: Rem, alice: Store, plan: Resource) -> None:
    session = await alice.upsert(Session(name="talk"))
    line = EdgeClaim(src=ref(session), edge=Edge(dst="plan", rel_type="mentions"), sources=sources(plan))
    await (await night_for(rem, alice)).store_claims("entities", ref(session), [line], seen_index=0)
    stored = await alice.get(Session, session.id)
    assert [found.dst for found in stored.graph_edges] == ["plan"]
    assert stored.updated_at == session.updated_at


async def test_the_first_year_is_a_time_like_any_other(rem: Rem, alice: Store, plan: Resource) -> None:
    long_ago = datetime(1, 1, 1, tzinfo=UTC)
    claims = [moment("The beginning", plan, valid_from=long_ago)]
    await (await night_for(rem, alice)).store_claims("moments", ref(plan), claims)
    (found,) = await moments(alice)
    assert found.valid_from is not None
    assert found.valid_from.year == 1
    assert (await (await night_for(rem, alice)).store_claims("moments", ref(plan), claims)).unchanged == 1
