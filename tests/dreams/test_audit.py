"""The audit finds and fixes statements that are wrong."""

from __future__ import annotations

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.audit import CHECKS
from rem.models import Edge, Moment, Resource, User
from tests.dreams.sample_claims import (
    claim_edge,
    claim_field,
    claim_moment,
    list_derived_edges,
    list_keys,
    list_moments,
    start_run,
    store_note,
    to_ref,
)

_CLEAN = dict.fromkeys(CHECKS, 0)


@pytest.fixture
async def dreamt(rem: Rem, alice: Store) -> Resource:
    """Store a text with a derived moment and a derived edge."""
    plan, review = await store_note(alice, "plan"), await store_note(alice, "review")
    await (await start_run(rem, alice)).store_claims(
        "test", to_ref(plan), [claim_moment("The plan", plan), claim_edge(plan, review)]
    )
    return plan


async def _count_issues(rem: Rem, store: Store) -> dict[str, int]:
    counts = (await rem.dreamer().audit(store.scope)).counts
    return {check: count for check, count in counts.items() if count}


async def _fix(rem: Rem, store: Store) -> None:
    assert (await rem.dreamer().audit(store.scope, fix=True)).fixed > 0
    assert (await rem.dreamer().audit(store.scope)).is_clean


async def test_audit_of_valid_statements_is_clean(rem: Rem, alice: Store, dreamt: Resource) -> None:
    report = await rem.dreamer().audit(alice.scope)
    assert (report.counts, report.is_clean) == (_CLEAN, True)


async def test_exact_and_near_duplicates_are_removed(rem: Rem, alice: Store, dreamt: Resource) -> None:
    other, third = await store_note(alice, "other"), await store_note(alice, "third")
    story = "On Monday the team decided to move the billing service to Postgres 18 before the summer"
    run = await start_run(rem, alice)
    await run.store_claims("moments", to_ref(other), [claim_moment("A", other, summary=f"{story}.")])
    await run.store_claims(
        "moments",
        to_ref(third),
        [claim_moment("B", third, summary=f"{story} ."), claim_moment("C", dreamt, summary=story)],
    )
    await run.store_claims("moments", to_ref(dreamt), [claim_moment("D", dreamt, other, summary=f"{story}.")])
    counts = await _count_issues(rem, alice)
    assert (counts["exact_duplicates"], counts["near_duplicates"]) == (1, 3)
    await _fix(rem, alice)
    assert list_keys(await list_moments(alice)) == ["a", "the-plan"]


async def test_statement_without_source_is_removed(
    rem: Rem, alice: Store, dreamt: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await sql.execute("DELETE FROM statement_sources")
    assert await _count_issues(rem, alice) == {"without_source": 2}
    await _fix(rem, alice)
    assert await list_moments(alice) == []
    assert await list_derived_edges(alice, dreamt) == []


async def test_statement_with_source_deleted_behind_rem_is_removed(
    rem: Rem, alice: Store, dreamt: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await sql.execute("SET session_replication_role = replica")
    await sql.execute("DELETE FROM resources WHERE key = 'review'")
    counts = await _count_issues(rem, alice)
    assert counts["without_source"] == 1
    assert (await rem.dreamer().audit(alice.scope, fix=True)).fixed > 0
    assert await list_derived_edges(alice, dreamt) == []


async def test_rows_and_edges_without_statement_are_removed(rem: Rem, alice: Store, dreamt: Resource) -> None:
    """Check rows and edges as they come from a loaded dump."""
    await alice.upsert(Moment(name="From a dump", summary="x", origin="dream:moments"))
    stray = Edge(dst="review", rel_type="stray", origin="dream:affinity")
    await alice.upsert(Resource(name="review", graph_edges=[stray], origin="dream:affinity"))
    counts = await _count_issues(rem, alice)
    assert (counts["orphan_rows"], counts["orphan_edges"]) == (2, 1)
    await _fix(rem, alice)
    assert list_keys(await list_moments(alice)) == ["the-plan"]


async def test_edge_to_missing_row_is_removed(rem: Rem, alice: Store, dreamt: Resource) -> None:
    nowhere = Resource(name="nowhere", key="nowhere")
    await (await start_run(rem, alice)).store_claims("affinity", to_ref(dreamt), [claim_edge(dreamt, nowhere, dreamt)])
    assert await _count_issues(rem, alice) == {"dangling_edges": 1}
    await _fix(rem, alice)
    assert await list_derived_edges(alice, dreamt) == [("related_to", "review")]


async def test_stale_profile_is_reported(
    rem: Rem, alice: Store, dreamt: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    me = await alice.upsert(User(name="Alice"))
    await (await start_run(rem, alice)).store_claims(
        "profiles", to_ref(me), [claim_field(me, "summary", "Plans.", dreamt)]
    )
    await sql.execute("UPDATE dream_runs SET dreams = '{profiles}', started_at = now() - interval '30 days'")
    assert await _count_issues(rem, alice) == {}
    await sql.execute("UPDATE moments SET created_at = now() - interval '20 days'")
    assert await _count_issues(rem, alice) == {"stale_profiles": 1}


async def test_audit_checks_one_owner_only(rem: Rem, alice: Store, bob: Store, dreamt: Resource) -> None:
    await alice.upsert(Moment(name="From a dump", summary="x", origin="dream:moments"))
    assert await _count_issues(rem, bob) == {}
    assert (await rem.dreamer().audit(bob.scope, fix=True)).fixed == 0
    assert "from-a-dump" in list_keys(await list_moments(alice))
