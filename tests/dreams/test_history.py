"""A run can be undone; its sources still count as seen."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.claims import Claim
from rem.errors import ConflictError, NotFoundError
from rem.models import Resource, User
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
)


async def test_undoing_the_first_run_removes_everything_it_wrote(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    plan, review = await store_note(alice, "plan"), await store_note(alice, "review")
    me = await alice.upsert(User(name="Alice"))
    run = await start_run(rem, alice)
    claims: list[Claim] = [
        claim_moment("The plan", plan),
        claim_edge(plan, review),
        claim_field(me, "summary", "Plans.", plan),
    ]
    await run.store_claims(
        "test", to_ref(plan), [*claims, claim_field(me, "metadata.profile", {"projects": ["p"]}, plan)]
    )
    assert (await alice.get(User, me.id)).metadata == {"profile": {"projects": ["p"]}}
    assert await rem.dreamer().undo(alice.scope, run.run_id) == 4
    assert await list_moments(alice) == []
    assert await list_derived_edges(alice, plan) == []
    stored = await alice.get(User, me.id)
    assert (stored.summary, stored.metadata) == ("", {})
    assert await count_states(sql) == {}


async def test_undoing_the_second_run_restores_the_first(rem: Rem, alice: Store) -> None:
    plan, review, other = (
        await store_note(alice, "plan"),
        await store_note(alice, "review"),
        await store_note(alice, "other"),
    )
    me = await alice.upsert(User(name="Alice"))
    first, second = await start_run(rem, alice), await start_run(rem, alice)
    before: list[Claim] = [
        claim_moment("The plan", plan),
        claim_edge(plan, review),
        claim_field(me, "summary", "Plans.", plan),
    ]
    await first.store_claims("test", to_ref(plan), before)
    after: list[Claim] = [
        claim_moment("The plan", plan, other, summary="More."),
        claim_edge(plan, other),
        claim_field(me, "summary", "Reviews.", plan),
    ]
    await second.store_claims("test", to_ref(plan), after)
    await rem.dreamer().undo(alice.scope, second.run_id)
    (restored,) = await list_moments(alice)
    assert (restored.summary, restored.run_id, restored.sources) == ("It happened.", first.run_id, ["plan"])
    assert await list_derived_edges(alice, plan) == [("related_to", "review")]
    assert (await alice.get(User, me.id)).summary == "Plans."


async def test_undo_keeps_rows_changed_by_owner(rem: Rem, alice: Store) -> None:
    plan, review = await store_note(alice, "plan"), await store_note(alice, "review")
    run = await start_run(rem, alice)
    await run.store_claims("test", to_ref(plan), [claim_moment("The plan", plan), claim_moment("The review", review)])
    corrected = (await list_moments(alice))[0]
    corrected.summary = "What really happened."
    await alice.upsert(corrected)
    assert await rem.dreamer().undo(alice.scope, run.run_id) == 1
    assert [moment.summary for moment in await list_moments(alice)] == ["What really happened."]


async def test_undone_statement_is_derived_again_only_after_source_changes(rem: Rem, alice: Store) -> None:
    plan = await store_note(alice, "plan")
    run = await start_run(rem, alice)
    await run.store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    await rem.dreamer().undo(alice.scope, run.run_id)
    assert await run.fetch_new_rows("moments", Resource) == []
    await alice.upsert(Resource(name="plan", content="Something else."))
    assert list_keys(await run.fetch_new_rows("moments", Resource)) == ["plan"]


async def test_only_the_owner_can_undo_a_run_and_only_once(rem: Rem, alice: Store, bob: Store) -> None:
    plan = await store_note(alice, "plan")
    run = await start_run(rem, alice)
    await run.store_claims("moments", to_ref(plan), [claim_moment("The plan", plan)])
    for scope, run_id in ((bob.scope, run.run_id), (alice.scope, uuid4())):
        with pytest.raises(NotFoundError, match="There is no dream"):
            await rem.dreamer().undo(scope, run_id)
    await rem.dreamer().undo(alice.scope, run.run_id)
    with pytest.raises(ConflictError, match="undone already"):
        await rem.dreamer().undo(alice.scope, run.run_id)


async def test_undoing_a_middle_run_leaves_one_exclusive_edge(rem: Rem, alice: Store) -> None:
    sarah = await store_note(alice, "sarah")
    runs = []
    for month, employer in enumerate(("globex", "initech", "vandelay"), 1):
        where = await store_note(alice, employer)
        run = await start_run(rem, alice)
        since = datetime(2026, month, 1, tzinfo=UTC)
        claims = [claim_edge(sarah, where, where, rel_type="works_at", valid_from=since, is_exclusive=True)]
        await run.store_claims("entities", to_ref(where), claims)
        runs.append(run)
    await rem.dreamer().undo(alice.scope, runs[1].run_id)
    assert await list_derived_edges(alice, sarah) == [("works_at", "vandelay")]
    await rem.dreamer().undo(alice.scope, runs[2].run_id)
    assert await list_derived_edges(alice, sarah) == []
