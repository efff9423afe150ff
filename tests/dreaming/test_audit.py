"""The audit finds what has gone wrong with what was dreamt, and fixes it; where nothing has, it finds nothing."""

from __future__ import annotations

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreaming.audit import CHECKS
from rem.models import Edge, Moment, Resource, User
from tests.dreaming.sample_claims import dreamt_edges, edge, field, keys, moment, moments, night_for, note, ref

_CLEAN = dict.fromkeys(CHECKS, 0)


@pytest.fixture
async def dreamt(rem: Rem, alice: Store) -> Resource:
    """A text with a moment and an edge that were dreamt from it."""
    plan, review = await note(alice, "plan"), await note(alice, "review")
    await (await night_for(rem, alice)).store_claims("test", ref(plan), [moment("The plan", plan), edge(plan, review)])
    return plan


async def _counts(rem: Rem, store: Store) -> dict[str, int]:
    found = (await rem.dreamer().audit(store.scope)).counts
    return {check: count for check, count in found.items() if count}


async def _fix(rem: Rem, store: Store) -> None:
    assert (await rem.dreamer().audit(store.scope, fix=True)).fixed > 0
    assert (await rem.dreamer().audit(store.scope)).is_clean


async def test_what_is_in_order_is_clean(rem: Rem, alice: Store, dreamt: Resource) -> None:
    report = await rem.dreamer().audit(alice.scope)
    assert (report.counts, report.is_clean) == (_CLEAN, True)


async def test_duplicates(rem: Rem, alice: Store, dreamt: Resource) -> None:
    other, third = await note(alice, "other"), await note(alice, "third")
    story = "On Monday the team decided to move the billing service to Postgres 18 before the summer"
    night = await night_for(rem, alice)
    await night.store_claims("moments", ref(other), [moment("A", other, summary=f"{story}.")])
    await night.store_claims(
        "moments", ref(third), [moment("B", third, summary=f"{story} ."), moment("C", dreamt, summary=story)]
    )
    await night.store_claims("moments", ref(dreamt), [moment("D", dreamt, other, summary=f"{story}.")])
    found = await _counts(rem, alice)
    assert (found["exact_duplicates"], found["near_duplicates"]) == (1, 3)
    await _fix(rem, alice)
    assert keys(await moments(alice)) == ["a", "the-plan"]


async def test_a_statement_that_lost_its_source(
    rem: Rem, alice: Store, dreamt: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await sql.execute("DELETE FROM statement_sources")
    assert await _counts(rem, alice) == {"without_source": 2}
    await _fix(rem, alice)
    assert await moments(alice) == []
    assert await dreamt_edges(alice, dreamt) == []


async def test_a_source_that_was_removed_past_rem(
    rem: Rem, alice: Store, dreamt: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await sql.execute("SET session_replication_role = replica")
    await sql.execute("DELETE FROM resources WHERE key = 'review'")
    found = await _counts(rem, alice)
    assert found["without_source"] == 1
    assert (await rem.dreamer().audit(alice.scope, fix=True)).fixed > 0
    assert await dreamt_edges(alice, dreamt) == []


async def test_a_row_and_an_edge_that_no_statement_stands_for(rem: Rem, alice: Store, dreamt: Resource) -> None:
    """As a dump that is loaded elsewhere has them."""
    await alice.upsert(Moment(name="From a dump", summary="x", origin="dream:moments"))
    stray = Edge(dst="review", rel_type="stray", origin="dream:affinity")
    await alice.upsert(Resource(name="review", graph_edges=[stray], origin="dream:affinity"))
    found = await _counts(rem, alice)
    assert (found["orphan_rows"], found["orphan_edges"]) == (2, 1)
    await _fix(rem, alice)
    assert keys(await moments(alice)) == ["the-plan"]


async def test_an_edge_to_nothing(rem: Rem, alice: Store, dreamt: Resource) -> None:
    nowhere = Resource(name="nowhere", key="nowhere")
    await (await night_for(rem, alice)).store_claims("affinity", ref(dreamt), [edge(dreamt, nowhere, dreamt)])
    assert await _counts(rem, alice) == {"dangling_edges": 1}
    await _fix(rem, alice)
    assert await dreamt_edges(alice, dreamt) == [("related_to", "review")]


async def test_a_stale_profile(
    rem: Rem, alice: Store, dreamt: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    me = await alice.upsert(User(name="Alice"))
    await (await night_for(rem, alice)).store_claims("profiles", ref(me), [field(me, "summary", "Plans.", dreamt)])
    await sql.execute("UPDATE dream_runs SET dreams = '{profiles}', started_at = now() - interval '30 days'")
    assert await _counts(rem, alice) == {}
    await sql.execute("UPDATE moments SET created_at = now() - interval '20 days'")
    assert await _counts(rem, alice) == {"stale_profiles": 1}


async def test_an_audit_looks_at_one_owner(rem: Rem, alice: Store, bob: Store, dreamt: Resource) -> None:
    await alice.upsert(Moment(name="From a dump", summary="x", origin="dream:moments"))
    assert await _counts(rem, bob) == {}
    assert (await rem.dreamer().audit(bob.scope, fix=True)).fixed == 0
    assert "from-a-dump" in keys(await moments(alice))
