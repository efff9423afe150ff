"""Forgetting removes exactly the rows and statements of the plan."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from rem.app import Rem
from rem.db.sql import query
from rem.db.store import Store
from rem.dreams.claims import RowClaim
from rem.errors import ConflictError, InvalidInputError
from rem.forget.forget_plan import ForgetPlan
from rem.ingest.models import FetchedFile
from rem.models import Edge, File, Message, Moment, Ontology, Resource, Role, Session, User
from rem.sessions.message import NewMessage
from tests.cases import cases
from tests.dreams.sample_claims import (
    claim_edge,
    claim_field,
    claim_moment,
    list_derived_edges,
    list_moments,
    start_run,
    store_note,
    to_ref,
    to_sources,
)
from tests.forget.text_traces import find_in_planner_stats, find_traces

_ALICE, _BOB = "alice@example.com", "bob@example.com"


def person(*made_from: Resource | Message, name: str = "Sarah Chen", aliases: tuple[str, ...] = ("Sally",)) -> RowClaim:
    """Return the claim of the entities dream for a person."""
    entity = Ontology(name=name, content=f"{name} was named.", extracted_data={"aliases": list(aliases)})
    return RowClaim(entity=entity, sources=to_sources(*made_from), confidence=0.9, is_named=True)


async def store_session(rem: Rem, *texts: str, name: str | None = None, user: str = _ALICE) -> Session:
    memory = rem.for_user(user).sessions
    session = await memory.create_session(name=name)
    await memory.append(session.id, [NewMessage(role=Role.USER, content=text) for text in texts])
    return await memory.get_session(session.id)


async def make_plan(rem: Rem, label: str = "Sarah Chen", **options: Any) -> ForgetPlan:
    return await rem.for_user(_ALICE).plan_forget(label, **options)


@pytest.fixture
async def known(rem: Rem, alice: Store) -> Resource:
    """Store Sarah Chen, called Sally, in a row, a session, a note, statements, lists and edges."""
    session = await store_session(rem, "I had lunch with Sally.", "The weather was fine.", name="Lunch")
    await alice.upsert(User(name="Alice", email=_ALICE, interests=["sailing", "Sarah Chen"], summary="Sails."))
    notes = await store_note(alice, "team notes", "sarah-chen leads the harbour project.")
    harbour = await alice.upsert(
        Resource(
            name="harbour",
            content="A project.",
            tags=["stone", "Sarah Chen"],
            related_entities=["sarah_chen", "bob"],
            graph_edges=[Edge(dst="Sarah Chen", rel_type="led_by"), Edge(dst="team notes")],
        )
    )
    messages = await rem.for_user(_ALICE).sessions.load_session(session.id)
    run = await start_run(rem, alice)
    await run.store_claims("entities", to_ref(notes), [person(notes, messages[0])])
    await run.store_claims("affinity", to_ref(harbour), [claim_edge(harbour, notes), _edge_to_sarah(harbour, notes)])
    (me,) = await alice.find(User, {"user_id": alice.scope.user_id})
    await run.store_claims(
        "profiles",
        to_ref(me),
        [
            claim_field(me, "summary", "Alice sails, and works with Sally.", notes),
            claim_field(me, "preferred_topics", ["harbours", "Sarah Chen"], notes),
        ],
    )
    await run.store_claims(
        "moments",
        to_ref(session),
        [
            claim_moment("Lunch with Sally", messages[0], summary="They ate."),
            RowClaim(
                entity=Moment(name="Fine weather", summary="It was sunny.", present_persons=["Sarah Chen", "Bob"]),
                sources=to_sources(messages[1]),
            ),
        ],
    )
    await rem.for_user(_ALICE).index()
    return harbour


def _edge_to_sarah(harbour: Resource, notes: Resource) -> Any:
    claim = claim_edge(harbour, notes, rel_type="led_by")
    line = Edge(dst="sarah-chen", rel_type="led_by", properties={"dst_entity_type": "ontologies"})
    return type(claim)(src=claim.src, edge=line, sources=claim.sources)


async def test_plan_lists_affected_rows_and_changes_nothing(
    rem: Rem, alice: Store, known: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    before = await find_traces(sql, "sarah"), await find_traces(sql, "sally")
    plan = await make_plan(rem)
    assert set(plan.names) == {"Sarah Chen", "Sally"}
    assert [finding.ref.table for finding in plan.rows] == ["ontologies"]
    assert {(finding.key, finding.fields) for finding in plan.facts} == {
        ("alice", ("interests", "preferred_topics")),
        ("harbour", ("graph_edges", "related_entities", "tags")),
        ("fine-weather", ("present_persons",)),
    }
    kinds = sorted((statement.dream, statement.kind) for statement in plan.statements)
    assert kinds == [
        ("affinity", "edge"),
        ("entities", "row"),
        ("moments", "row"),
        ("profiles", "field"),
        ("profiles", "field"),
    ]
    texts = {finding.ref.table: finding.excerpt for finding in plan.mentions}
    assert set(texts) == {"messages", "resources", "moments"}, "what is taken back of the profile is not kept"
    assert texts["messages"] == "I had lunch with Sally."
    assert (await find_traces(sql, "sarah"), await find_traces(sql, "sally")) == before


async def test_forget_removes_planned_rows_and_keeps_texts(rem: Rem, alice: Store, known: Resource) -> None:
    report = await rem.for_user(_ALICE).forget(await make_plan(rem))
    assert (report.is_gone, report.left) == (True, [])
    assert await alice.lookup("Sarah Chen") == await alice.lookup("sally") == []
    harbour = await alice.get(Resource, known.id)
    assert (harbour.tags, harbour.related_entities) == (["stone"], ["bob"])
    assert [line.dst for line in harbour.graph_edges if line.origin == "user"] == ["team notes"]
    assert await list_derived_edges(alice, harbour) == [("related_to", "team-notes")]
    (me,) = await alice.find(User, {"user_id": alice.scope.user_id})
    assert (me.interests, me.preferred_topics, me.summary) == (["sailing"], ["harbours"], "")
    weather, lunch = await list_moments(alice)
    assert (weather.name, weather.present_persons) == ("Fine weather", ["Bob"])
    assert lunch.name == "Lunch with Sally", "it repeats a message that stays"
    assert len(await alice.find(Message)) == 2
    assert await alice.count(Resource, {"key": "team-notes"}) == 1


async def test_dream_does_not_make_forgotten_entity_again(rem: Rem, alice: Store, known: Resource) -> None:
    report = await rem.for_user(_ALICE).forget(await make_plan(rem))
    assert report.refused == ["sally", "sarah-chen"]
    (notes,) = await alice.find(Resource, {"key": "team-notes"})
    run = await start_run(rem, alice)
    assert (
        await run.store_claims("entities", to_ref(notes), [person(notes), person(notes, name="Sally")])
    ).refused == 2
    assert await alice.lookup("Sarah Chen") == []


@pytest.mark.parametrize("with_mentions", [False, True])
async def test_report_agrees_with_plan(rem: Rem, alice: Store, known: Resource, with_mentions: bool) -> None:
    plan = await make_plan(rem, mentions=with_mentions)
    report = await rem.for_user(plan.scope).forget(plan)
    assert (report.erased.total(), report.changed) == (plan.erased_count, len(plan.changed))
    assert report.statements == len(plan.statements)
    if with_mentions:
        assert report.erased.total() == len(plan.rows) + 3
        assert report.kept_mentions == 0
    else:
        assert report.erased.total() == len(plan.rows)
        assert report.changed == len(plan.facts) == 3
        assert report.kept_mentions == len(plan.mentions) == 3


async def test_rest_of_an_episode_is_kept(rem: Rem, alice: Store, known: Resource) -> None:
    await rem.for_user(_ALICE).forget(await make_plan(rem))
    messages = await alice.find(Message, order_by="message_index")
    (session,) = await alice.find(Session)
    run = await start_run(rem, alice)
    again = await run.store_claims(
        "moments", to_ref(session), [claim_moment("Lunch", messages[0], summary="They ate fish.")]
    )
    assert (again.said, again.refused) == (1, 0)


async def test_alias_mentions_are_found_after_the_row_is_gone(
    rem: Rem, alice: Store, known: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await rem.for_user(_ALICE).forget(await make_plan(rem))
    plan = await make_plan(rem, mentions=True)
    assert {"Sarah Chen", "sally"} <= set(plan.names)
    assert (await rem.for_user(plan.scope).forget(plan)).is_gone
    await rem.index()
    assert await find_traces(sql, "sally") == await find_traces(sql, "chen") == {}
    assert (await make_plan(rem, mentions=True)).names == ("Sarah Chen",), "no refusal is kept, nor its keys"


async def test_forgotten_user_row_is_refused_to_dreams(rem: Rem, alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen", email="sarah@example.com", summary="Leads."))
    notes = await store_note(alice, "notes", "Sarah Chen leads.")
    await rem.for_user(_ALICE).forget(await make_plan(rem, "sarah@example.com"))
    run = await start_run(rem, alice)
    assert (await run.store_claims("entities", to_ref(notes), [person(notes)])).refused == 1


async def test_forget_with_mentions_leaves_no_trace(
    rem: Rem, alice: Store, known: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    plan = await make_plan(rem, mentions=True)
    report = await rem.for_user(plan.scope).forget(plan)
    assert report.is_gone
    await rem.index()
    assert await find_traces(sql, "sally") == {}
    assert await find_traces(sql, "sarah") == {}
    assert await find_traces(sql, "chen") == {}
    assert [message.content for message in await alice.find(Message)] == ["The weather was fine."]
    assert {row.key for row in await alice.find(Resource)} == {"harbour"}
    assert await alice.count(Session) == 1
    assert (await rem.check_cache()).wrong_keys == 0
    assert (await rem.check_index()).unindexed_rows == 0


async def test_unchanged_file_does_not_restore_forgotten_parts(rem: Rem, alice: Store) -> None:
    ingester = rem.for_user(_ALICE).ingester()
    page = FetchedFile("team.md", "file:///team.md", b"# Harbour\n\nOf stone.\n\n# People\n\nSarah Chen leads it.\n")

    async def chunks() -> list[str]:
        return [row.content for row in await alice.find(Resource, order_by="ordinal")]

    await ingester.ingest(page)
    await rem.for_user(_ALICE).forget(await make_plan(rem, mentions=True))
    assert (await ingester.ingest(page)).status == "unchanged"
    assert await chunks() == ["# Harbour\n\nOf stone."]
    # A change in another part does not bring it back. A new text that names the person is a new memory.
    other = replace(page, data=b"# Weather\n\nRain.\n\n" + page.data)
    assert (await ingester.ingest(other)).status == "changed"
    assert await chunks() == ["# Weather\n\nRain.", "# Harbour\n\nOf stone."]
    assert (await ingester.ingest(replace(other, data=other.data + b"And more.\n"))).status == "changed"
    assert "Sarah Chen" in (await chunks())[2]


async def test_forgotten_note_does_not_come_back(rem: Rem, alice: Store, tmp_path: Path) -> None:
    note = tmp_path / "sarah.md"
    note.write_text("# Sarah\n\nSarah Chen leads it.\n", encoding="utf-8")
    (tmp_path / "harbour.md").write_text("Of stone.\n", encoding="utf-8")
    await rem.for_user(_ALICE).ingest(tmp_path)
    plan = await make_plan(rem, mentions=True)
    assert (plan.files, plan.erased_count) == ([note.as_uri()], 2)
    report = await rem.for_user(plan.scope).forget(plan)
    # No empty note is left.
    assert report.erased == {"files": 1, "resources": 1}
    assert [file.name for file in await alice.find(File)] == [f"{tmp_path.name}/harbour.md"]
    note.rename(tmp_path / "renamed.md")
    note.write_text("# Sarah\n\nSarah Chen leads it, and more.\n", encoding="utf-8")
    again = await rem.for_user(_ALICE).ingest(tmp_path)
    assert again.counts == {"unchanged": 1, "deleted": 2}
    assert all("stays forgotten" in str(file.error) for file in again.files if file.status == "deleted")
    assert (await rem.for_user(_BOB).ingest(tmp_path)).counts == {"added": 3}
    wanted = await rem.for_user(_ALICE).ingest(tmp_path, with_forgotten=True)
    assert wanted.counts == {"unchanged": 1, "added": 2}
    note.write_text("# Sarah\n\nChanged.\n", encoding="utf-8")
    assert (await rem.for_user(_ALICE).ingest(tmp_path)).counts == {"unchanged": 2, "changed": 1}


async def test_undone_run_is_not_forgotten(rem: Rem, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("Sarah Chen leads it.\n", encoding="utf-8")
    run = (await rem.for_user(_ALICE).ingest(tmp_path)).run
    await rem.for_user(_ALICE).undo_ingest(str(run))
    assert (await rem.for_user(_ALICE).ingest(tmp_path)).counts == {"added": 1}


async def test_erased_user_can_start_again_with_the_same_notes(rem: Rem, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("Sarah Chen leads it.\n", encoding="utf-8")
    await rem.for_user(_ALICE).ingest(tmp_path)
    await rem.for_user(_ALICE).forget(await make_plan(rem, mentions=True))
    await rem.for_user(_ALICE).erase_user()
    assert (await rem.for_user(_ALICE).ingest(tmp_path)).counts == {"added": 1}


async def test_file_named_after_it_is_counted_with_its_parts(rem: Rem, alice: Store) -> None:
    text = b"# Trip\n\nWith Sarah Chen.\n\n# Rest\n\nThe sea was calm.\n"
    await rem.for_user(_ALICE).ingester().ingest(FetchedFile("sarah-chen.md", "file:///sarah-chen.md", text))
    for label, mentions in (("sarah-chen.md", False), ("Sarah Chen", True)):
        plan = await make_plan(rem, label, mentions=mentions)
        assert plan.erased_count == 3
    assert (await rem.for_user(plan.scope).forget(plan)).erased == {"files": 1, "resources": 2}
    assert await alice.find(Resource) == []


async def test_sessions_and_profiles_are_emptied_not_erased(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    session = await store_session(rem, "Nothing of interest.", name="About Sarah Chen and boats")
    await alice.upsert(Session(id=session.id, description="With sarah chen.", metadata={"with": "Sarah Chen", "n": 1}))
    await alice.upsert(User(name="Alice", summary="Knows Sarah Chen.", role="engineer"))
    await sql.execute(
        "INSERT INTO session_summaries (tenant_id, user_id, session_id, summary) "
        "VALUES ('default', $1, $2, 'Sarah Chen!')",
        alice.scope.user_id,
        session.id,
    )
    report = await rem.for_user(_ALICE).forget(await make_plan(rem, mentions=True))
    assert (report.is_gone, report.erased, report.changed) == (True, {}, 2)
    kept = await rem.for_user(_ALICE).sessions.get_session(session.id)
    assert (kept.name, kept.description, kept.metadata) == (None, None, {"n": 1})
    (me,) = await alice.find(User, {"user_id": alice.scope.user_id})
    assert (me.summary, me.role) == ("", "engineer")
    assert await find_traces(sql, "chen") == {}


async def test_session_with_the_name_is_erased_with_its_messages(rem: Rem, alice: Store) -> None:
    await store_session(rem, "One.", "Two.", name="Trip to Rome")
    plan = await make_plan(rem, "trip-to-rome")
    assert [(finding.ref.table, finding.dependent_rows) for finding in plan.rows] == [("sessions", 2)]
    await rem.for_user(plan.scope).forget(plan)
    assert await alice.count(Message, with_deleted=True) == 0


async def test_deleted_rows_are_erased(rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await alice.delete(await store_note(alice, "Sarah Chen"))
    await alice.delete(await store_note(alice, "diary", "Sarah Chen was here."))
    report = await rem.for_user(_ALICE).forget(await make_plan(rem, mentions=True))
    assert report.erased == {"resources": 2}
    assert await find_traces(sql, "chen") == {}


async def test_rows_of_others_and_shared_rows_stay(
    rem: Rem, alice: Store, bob: Store, shared: Store, known: Resource
) -> None:
    await shared.upsert(User(name="Sarah Chen", summary="Leads the team."))
    await bob.upsert(Resource(name="Sarah Chen", content="Bob's own Sarah Chen."))
    plan = await make_plan(rem, mentions=True)
    assert plan.shared == ["users/sarah-chen"]
    await rem.for_user(plan.scope).forget(plan)
    assert [row.user_id for row in await alice.lookup("Sarah Chen")] == [None]
    assert [row.content for row in await bob.find(Resource)] == ["Bob's own Sarah Chen."]
    report = await rem.for_user().forget(await rem.for_user().plan_forget("Sarah Chen"))
    assert (report.is_gone, report.erased) == (True, {"users": 1})
    assert await bob.count(Resource) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store_note(store, "harbour", "It is wider now."),
        lambda store: store_note(store, "newcomer", "Sally was here, too."),
    ],
)
async def test_changed_plan_is_rejected(
    rem: Rem, alice: Store, known: Resource, change: Any, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    plan = await make_plan(rem, mentions=True)
    await change(alice)
    before = await find_traces(sql, "sally")
    with pytest.raises(ConflictError, match="have changed since they were shown"):
        await rem.for_user(plan.scope).forget(plan)
    assert await find_traces(sql, "sally") == before
    assert (await rem.for_user(_ALICE).forget(await make_plan(rem, mentions=True))).is_gone


async def test_interrupted_forget_changes_nothing(
    rem: Rem, alice: Store, known: Resource, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    plan = await make_plan(rem, mentions=True)
    before = await find_traces(sql, "sally")
    async with sql.transaction():
        await sql.execute("LOCK TABLE rem.search_queue IN ACCESS EXCLUSIVE MODE")
        removal = asyncio.create_task(rem.for_user(plan.scope).forget(plan))
        await asyncio.sleep(0.5)
        removal.cancel()
        with pytest.raises(asyncio.CancelledError):
            await removal
    assert await find_traces(sql, "sally") == before
    assert (await rem.for_user(plan.scope).forget(plan)).is_gone


async def test_concurrent_forgets_have_the_effect_of_one(rem: Rem, alice: Store, known: Resource) -> None:
    plan = await make_plan(rem)
    outcomes = await asyncio.gather(
        rem.for_user(plan.scope).forget(plan), rem.for_user(plan.scope).forget(plan), return_exceptions=True
    )
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 1
    assert (await make_plan(rem)).is_empty


async def test_unknown_name_gives_empty_plan(rem: Rem, alice: Store) -> None:
    await store_note(alice, "notes", "Adapters and Canada.")
    plan = await make_plan(rem, "Ada", mentions=True)
    assert plan.is_empty
    assert (plan.rows, plan.mentions) == ([], [])


async def test_owner_corrections_are_kept(rem: Rem, alice: Store, known: Resource) -> None:
    (row,) = await alice.find(Moment, {"key": "fine-weather"})
    await alice.upsert(Moment(name="Fine weather", summary="It rained, in truth."))
    await rem.for_user(_ALICE).forget(await make_plan(rem))
    kept = await alice.get(Moment, row.id)
    assert (kept.summary, kept.present_persons) == ("It rained, in truth.", ["Bob"])


@cases("label", ["", "  ", "a\0b", "x" * 2000, "---"])
async def test_invalid_name_is_rejected(rem: Rem, label: str) -> None:
    with pytest.raises(InvalidInputError):
        await make_plan(rem, label)


async def test_forgetting_a_message_does_not_touch_its_session(rem: Rem) -> None:
    session = await store_session(rem, "I had lunch with Sarah Chen.", "The weather was fine.")
    assert (await rem.for_user(_ALICE).forget(await make_plan(rem, mentions=True))).is_gone
    after = await rem.for_user(_ALICE).sessions.get_session(session.id)
    assert (after.message_count, after.updated_at) == (1, session.updated_at)


async def test_forget_resets_planner_stats(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await store_session(rem, "I had lunch with Sarah Chen.", "The weather was fine.")
    await sql.execute("ANALYZE")
    assert "rem.messages.content" in await find_in_planner_stats(sql, "Sarah Chen")
    await rem.for_user(_ALICE).forget(await make_plan(rem, mentions=True))
    assert await find_in_planner_stats(sql, "Sarah Chen") == []


async def test_deleted_and_edited_moments_stay_so_after_one_of_their_sources_is_forgotten(
    rem: Rem, alice: Store
) -> None:
    for name in ("Lunch", "Sailing"):
        texts = (f"{name} with Sarah Chen was long.", f"The {name} cost 40 euros.", f"We plan another {name} in May.")
        await store_session(rem, *texts, name=name)
    await rem.dreamer().dream(alice.scope, ("moments",))
    deleted, edited = await alice.find(Moment)
    await alice.delete(deleted)
    await alice.upsert(edited.model_copy(update={"name": "My own name", "summary": "My own words."}))
    await rem.for_user(_ALICE).forget(await make_plan(rem, mentions=True))
    await rem.dreamer().dream(alice.scope, ("moments",))
    assert [moment.summary for moment in await alice.find(Moment, with_deleted=True)] == ["My own words."]


async def test_row_that_is_being_indexed_leaves_no_passage(
    rem: Rem, alice: Store, sql: asyncpg.Connection[asyncpg.Record], dsn: str
) -> None:
    await alice.upsert(Resource(name="Tea", content="Sarah Chen likes tea."))
    plan = await make_plan(rem, mentions=True)
    blocker = await asyncpg.connect(dsn)
    async with blocker.transaction():
        # The indexer has read the row, and cannot store its passages yet.
        await blocker.execute("LOCK TABLE rem.passages IN SHARE MODE")
        indexing = asyncio.create_task(rem.index())
        await _wait_for_blocked_connections(sql, 1)
        forgetting = asyncio.create_task(rem.for_user(plan.scope).forget(plan))
        await _wait_for_blocked_connections(sql, 2)
    await blocker.close()
    # The indexer may have stored the passage before, or leaves the row to its next run.
    assert (await indexing).passages in (0, 1)
    assert (await forgetting).left == []
    assert await sql.fetchval("SELECT count(*) FROM rem.passages") == 0


async def _wait_for_blocked_connections(sql: asyncpg.Connection[asyncpg.Record], count: int) -> None:
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while await sql.fetchval(blocked) < count:  # noqa: ASYNC110 - the server sends no event
            await asyncio.sleep(0.01)


async def test_rows_stay_in_the_queue_while_their_owner_forgets(
    rem: Rem, alice: Store, sql: asyncpg.Connection
) -> None:
    await alice.upsert(Resource(name="Tea", content="Sencha"))
    await sql.execute(query("forget/forget", "stop_indexing"), alice.scope.tenant_id, alice.scope.user_id)
    assert (await rem.index()).rows == 0
    await sql.execute("SELECT pg_advisory_unlock_all()")
    assert (await rem.index()).rows == 1
