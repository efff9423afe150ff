"""A dream can be taken back: as if it had not been, except that its sources count as seen."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreaming.claims import Claim
from rem.errors import ConflictError, NotFoundError
from rem.models import Resource, User
from tests.dreaming.sample_claims import dreamt_edges, edge, field, keys, moment, moments, night_for, note, ref, states


async def test_undoing_the_first_dream_leaves_nothing_of_it(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    plan, review = await note(alice, "plan"), await note(alice, "review")
    me = await alice.upsert(User(name="Alice"))
    night = await night_for(rem, alice)
    claims: list[Claim] = [moment("The plan", plan), edge(plan, review), field(me, "summary", "Plans.", plan)]
    await night.store_claims("test", ref(plan), [*claims, field(me, "metadata.profile", {"projects": ["p"]}, plan)])
    assert (await alice.get(User, me.id)).metadata == {"profile": {"projects": ["p"]}}
    assert await rem.dreamer().undo(alice.scope, night.run_id) == 4
    assert await moments(alice) == []
    assert await dreamt_edges(alice, plan) == []
    stored = await alice.get(User, me.id)
    assert (stored.summary, stored.metadata) == ("", {})
    assert await states(sql) == {}


async def test_undoing_the_second_dream_brings_the_first_one_back(rem: Rem, alice: Store) -> None:
    plan, review, other = await note(alice, "plan"), await note(alice, "review"), await note(alice, "other")
    me = await alice.upsert(User(name="Alice"))
    first, second = await night_for(rem, alice), await night_for(rem, alice)
    before: list[Claim] = [moment("The plan", plan), edge(plan, review), field(me, "summary", "Plans.", plan)]
    await first.store_claims("test", ref(plan), before)
    after: list[Claim] = [
        moment("The plan", plan, other, summary="More."),
        edge(plan, other),
        field(me, "summary", "Reviews.", plan),
    ]
    await second.store_claims("test", ref(plan), after)
    await rem.dreamer().undo(alice.scope, second.run_id)
    (found,) = await moments(alice)
    assert (found.summary, found.run_id, found.sources) == ("It happened.", first.run_id, ["plan"])
    assert await dreamt_edges(alice, plan) == [("related_to", "review")]
    assert (await alice.get(User, me.id)).summary == "Plans."


async def test_what_the_owner_changed_since_stays(rem: Rem, alice: Store) -> None:
    plan, review = await note(alice, "plan"), await note(alice, "review")
    night = await night_for(rem, alice)
    await night.store_claims("test", ref(plan), [moment("The plan", plan), moment("The review", review)])
    corrected = (await moments(alice))[0]
    corrected.summary = "What really happened."
    await alice.upsert(corrected)
    assert await rem.dreamer().undo(alice.scope, night.run_id) == 1
    assert [found.summary for found in await moments(alice)] == ["What really happened."]


async def test_what_was_undone_is_not_dreamt_again_until_something_is_new(rem: Rem, alice: Store) -> None:
    plan = await note(alice, "plan")
    night = await night_for(rem, alice)
    await night.store_claims("moments", ref(plan), [moment("The plan", plan)])
    await rem.dreamer().undo(alice.scope, night.run_id)
    assert await night.fetch_new_rows("moments", Resource) == []
    await alice.upsert(Resource(name="plan", content="Something else."))
    assert keys(await night.fetch_new_rows("moments", Resource)) == ["plan"]


async def test_only_the_owner_can_undo_and_only_once(rem: Rem, alice: Store, bob: Store) -> None:
    plan = await note(alice, "plan")
    night = await night_for(rem, alice)
    await night.store_claims("moments", ref(plan), [moment("The plan", plan)])
    for scope, run_id in ((bob.scope, night.run_id), (alice.scope, uuid4())):
        with pytest.raises(NotFoundError, match="There is no dream"):
            await rem.dreamer().undo(scope, run_id)
    await rem.dreamer().undo(alice.scope, night.run_id)
    with pytest.raises(ConflictError, match="undone already"):
        await rem.dreamer().undo(alice.scope, night.run_id)


async def test_undoing_a_dream_in_the_middle_leaves_no_contradiction(rem: Rem, alice: Store) -> None:
    sarah = await note(alice, "sarah")
    nights = []
    for month, place in enumerate(("globex", "initech", "vandelay"), 1):
        where = await note(alice, place)
        night = await night_for(rem, alice)
        since = datetime(2026, month, 1, tzinfo=UTC)
        claims = [edge(sarah, where, where, rel_type="works_at", valid_from=since, is_exclusive=True)]
        await night.store_claims("entities", ref(where), claims)
        nights.append(night)
    await rem.dreamer().undo(alice.scope, nights[1].run_id)
    assert await dreamt_edges(alice, sarah) == [("works_at", "vandelay")]
    await rem.dreamer().undo(alice.scope, nights[2].run_id)
    assert await dreamt_edges(alice, sarah) == []
