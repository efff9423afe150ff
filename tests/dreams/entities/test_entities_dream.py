"""The entities dream makes rows for people, organizations and projects from evidence."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.audit import run_audit
from rem.dreams.history import list_statement_page
from rem.dreams.run import OnProgress
from rem.models import Message, Moment, Ontology, Resource, Role, Session, User
from tests.dreams.entities.sample_sessions import (
    append_messages,
    dream_entities,
    dump_statements,
    dump_without_ids,
    get_entity,
    list_entity_keys,
    list_mentions,
    list_message_ids,
    store_past_session,
    store_session,
)

_SARAH = "Sarah Chen <sarah.chen@acme.com> asked for the numbers."
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def test_address_with_name_makes_person_found_by_every_alias(rem: Rem, alice: Store) -> None:
    session = await store_session(
        rem, alice, _SARAH, "Sarah needs them by Friday. Dr. Chen hates long mails.", "cc s.chen@acme.com"
    )
    await dream_entities(rem, alice)
    for label in ("sarah-chen", "Sarah Chen", "sarah.chen@acme.com", "s.chen@acme.com", "Sarah", "Dr. Chen"):
        assert (await get_entity(alice, label)).key == "sarah-chen"
    entity = await get_entity(alice, "sarah-chen")
    assert entity.name == "Sarah Chen"
    assert entity.extracted_data["entity_type"] == "person"
    assert entity.tags == ["person"]
    assert "asked for the numbers" in entity.content
    assert entity.origin == "dream:entities"
    assert entity.confidence is not None
    assert entity.confidence >= 0.75
    assert entity.sources
    assert await list_mentions(alice, session) == ["ontologies/acme", "ontologies/sarah-chen"]


async def test_traverse_finds_sessions_that_mention_a_person(rem: Rem, alice: Store) -> None:
    first = await store_session(rem, alice, _SARAH)
    second = await store_session(rem, alice, "I am seeing Sarah Chen for lunch.")
    await dream_entities(rem, alice)
    answer = await rem.for_user("alice@example.com").query('LOOKUP "s.chen@acme.com"')
    assert answer.count == 0
    answer = await rem.for_user("alice@example.com").query('LOOKUP "sarah.chen@acme.com"')
    assert answer.count == 1
    walked = await rem.for_user("alice@example.com").query('TRAVERSE FROM "sarah-chen" DIRECTION in DEPTH 1')
    assert {first.key, second.key} <= {row.key for row in walked.hits}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("I work at Hollowbrook Mills.", "hollowbrook-mills"),
        ("We talked about project Kestrel.", "project-kestrel"),
        ("Update project-kestrel today.", "project-kestrel"),
        ("Write to amara.diallo@web.de", "amara-diallo"),
        ("@amara_diallo please look.", "amara-diallo"),
    ],
)
async def test_weak_evidence_needs_a_second_text(rem: Rem, alice: Store, text: str, key: str) -> None:
    first = await store_session(rem, alice, text)
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    assert await list_mentions(alice, first) == []
    second = await store_session(rem, alice, text)
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == [key]
    # Also the session of the run before.
    assert await list_mentions(alice, first) == [f"ontologies/{key}"]
    assert await list_mentions(alice, second) == [f"ontologies/{key}"]


async def test_rescanned_session_still_gets_its_new_messages_read(rem: Rem, alice: Store) -> None:
    session = await store_session(rem, alice, "amara.diallo@web.de will call.")
    await dream_entities(rem, alice)
    await store_session(rem, alice, "amara.diallo@web.de called.")
    await dream_entities(rem, alice)
    await append_messages(rem, alice, session, _SARAH)
    await dream_entities(rem, alice)
    assert await list_mentions(alice, session) == ["ontologies/amara-diallo", "ontologies/sarah-chen"]


async def test_next_run_completes_an_interrupted_run(rem: Rem, alice: Store, sql: Connection) -> None:
    dumps = []
    for user, most in (("whole", None), ("cut-1", 1), ("cut-2", 2), ("cut-4", 4), ("cut-5", 5)):
        store = rem.for_user(user).store
        for text in (_SARAH, "Sarah Chen works at Globex.", "S. Chen <sarah.chen@acme.com> wrote"):
            session = await store_session(rem, store, text)
            await store.modify(Session, session.id, lambda row, text=text: _named(row, text))  # type: ignore[misc]
        if most is not None:
            with pytest.raises(RuntimeError, match="cut"):
                await rem.dreamer().dream(store.scope, ["entities"], on_progress=_cut_after(most))
        await dream_entities(rem, store)
        dumps.append(await dump_without_ids(store, sql))
    assert all(dump == dumps[0] for dump in dumps[1:])


def _cut_after(steps: int) -> OnProgress:
    left = itertools.count(steps, -1)

    def on_progress(_dream: str, _done: int, _of: int) -> None:
        if next(left) == 0:
            raise RuntimeError("cut")

    return on_progress


async def test_two_messages_of_one_session_count_as_two_texts(rem: Rem, alice: Store) -> None:
    session = await store_session(rem, alice, "henrik.dahl@web.de is away.")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    await append_messages(rem, alice, session, "henrik.dahl@web.de is back.")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == ["henrik-dahl"]


async def test_assistant_messages_are_no_evidence(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, _SARAH, "My colleague Nora Quill.", "My colleague Nora Quill.", role=Role.ASSISTANT)
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []


async def test_second_run_changes_nothing(rem: Rem, alice: Store, sql: Connection) -> None:
    await store_session(rem, alice, _SARAH, "Sarah Chen works at Acme.", "Sarah Chen now works at Globex Labs.")
    await store_session(
        rem, alice, "S. Chen <s.chen@acme.com> wrote.", "My sister Anna called.", "My sister Anna again."
    )
    await store_session(rem, alice, "My colleague Sarah is ill.", "ask sarah.chen@acme.com and s.chen@acme.com")
    await alice.upsert(Resource(name="minutes", content="Present: Reto Frei <reto.frei@wattwerk.ch>, Sarah Chen"))
    await dream_entities(rem, alice)
    before = await dump_statements(sql)
    assert (await dream_entities(rem, alice)).run_id is None
    report = await dream_entities(rem, alice, rescan=True)
    assert report.run_id is None, report.changes
    assert await dump_statements(sql) == before
    assert (await run_audit(alice, _no_embedding)).counts["dangling_edges"] == 0


async def _no_embedding(texts: Sequence[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


async def test_result_does_not_depend_on_session_order(rem: Rem, sql: Connection) -> None:
    talks = [
        (_SARAH, "Sarah wants tea."),
        ("My colleague Sarah is ill.",),
        ("S. Chen <sarah.chen@acme.com> wrote from Rome.", "Acme is late."),
    ]
    dumps = []
    for number, order in enumerate(itertools.permutations(talks)):
        store = rem.for_user(f"user-{number}").store
        for texts in order:
            session = await store_session(rem, store, *texts)
            await store.modify(Session, session.id, lambda row, texts=texts: _named(row, texts[0]))  # type: ignore[misc]
        await dream_entities(rem, store)
        dumps.append(await dump_without_ids(store, sql))
    assert all(dump == dumps[0] for dump in dumps[1:])
    assert [row[0] for row in dumps[0] if len(row) == 4 and row[0] == "Sarah Chen"] == ["Sarah Chen"]


def _named(session: Session, name: str) -> Session:
    session.name = name
    return session


async def test_fullest_name_wins_across_runs(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "S. Chen <s.chen@acme.com> wrote from Rome.")
    await dream_entities(rem, alice)
    assert "s.-chen" in await list_entity_keys(alice)
    await store_session(rem, alice, "Sarah Chen <s.chen@acme.com> is back.")
    await dream_entities(rem, alice)
    assert [key for key in await list_entity_keys(alice) if "chen" in key] == ["sarah-chen"]
    assert "wrote from Rome" in (await get_entity(alice, "S. Chen")).content


async def test_content_has_dated_statements_newest_first_without_questions(rem: Rem, alice: Store) -> None:
    may = datetime(2026, 5, 4, 9, tzinfo=UTC)
    texts = ["Zoe Adler <zoe@adler.ch> came.", "My colleague Zoe Adler left.", "Did my colleague Zoe Adler call?"]
    for day, text in enumerate(texts):
        await store_past_session(alice, may + timedelta(days=day), text)
    await store_past_session(alice, may + timedelta(days=9), "A mail of Zoe Adler <zoe@adler.ch> is here.")
    await dream_entities(rem, alice)
    told = [
        "2026-05-13: A mail of Zoe Adler <zoe@adler.ch> is here.",
        f"2026-05-05: {texts[1]}",
        f"2026-05-04: {texts[0]}",
    ]
    assert (await get_entity(alice, "zoe-adler")).content.split("\n") == told


async def test_content_keeps_the_newest_statements(rem: Rem, alice: Store) -> None:
    may = datetime(2026, 5, 4, 9, tzinfo=UTC)
    for day in range(25):
        text = f"Zoe Adler <zoe@adler.ch> told {'much and ' * 22}of day {day}."
        await store_past_session(alice, may + timedelta(days=day), text)
    await dream_entities(rem, alice)
    told = (await get_entity(alice, "zoe-adler")).content.split("\n")
    days = [int(line.rstrip(".").rsplit(" ", 1)[1]) for line in told]
    assert days == list(range(24, 24 - len(days), -1))
    assert 10 < len(days) < 25


async def test_ambiguous_first_name_matches_nobody(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "Sarah Chen <sarah.chen@acme.com> and Sarah Miller <sarah.miller@acme.com> came.")
    later = await store_session(rem, alice, "Sarah called.")
    await dream_entities(rem, alice)
    assert [key for key in await list_entity_keys(alice) if key.startswith("sarah")] == ["sarah-chen", "sarah-miller"]
    assert await list_mentions(alice, later) == []


async def test_sister_and_colleague_of_same_name_stay_separate(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, _SARAH, "Sarah is nice.")
    session = await store_session(
        rem, alice, "My sister Sarah is coming.", "My sister Sarah brings cake. Sarah bakes well."
    )
    await dream_entities(rem, alice)
    assert [key for key in await list_entity_keys(alice) if key.startswith("sarah")] == ["sarah-(sister)", "sarah-chen"]
    assert await list_mentions(alice, session) == ["ontologies/sarah-(sister)"]


async def test_people_with_shared_address_are_not_merged(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "Per Olsen <family@olsen.no> and Greta Olsen <family@olsen.no>")
    await dream_entities(rem, alice)
    assert [key for key in await list_entity_keys(alice) if "olsen" in key] == ["greta-olsen", "per-olsen"]


async def test_other_person_with_known_first_name_is_no_mention(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, _SARAH, "Sarah is nice.")
    other = await store_session(rem, alice, "Yesterday I read Sarah Waters, a novelist.")
    same = await store_session(rem, alice, "Yesterday I saw Sarah at lunch.")
    await dream_entities(rem, alice)
    assert await list_mentions(alice, other) == []
    assert await list_mentions(alice, same) == ["ontologies/sarah-chen"]


async def test_existing_rows_are_used_instead_of_new_ones(rem: Rem, alice: Store, shared: Store) -> None:
    await alice.upsert(User(name="Sarah Chen", email="sarah.chen@acme.com"))
    await alice.upsert(Ontology(name="Acme", extracted_data={"aliases": ["Acme Corporation"]}))
    await shared.upsert(Ontology(name="hybrid search", content="Words and vectors."))
    await alice.upsert(Resource(name="Project Apollo", content="The plan."))
    session = await store_session(
        rem, alice, _SARAH, "Acme Corporation uses hybrid search in project Apollo.", "project Apollo!"
    )
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == ["acme", "hybrid-search"]
    assert await list_mentions(alice, session) == [
        *("ontologies/acme", "ontologies/hybrid-search", "resources/project-apollo", "users/sarah-chen")
    ]


async def test_owner_is_not_mentioned_in_own_sessions(rem: Rem, alice: Store) -> None:
    await alice.upsert(User(name="Alice Young", email="alice@example.com"))
    session = await store_session(rem, alice, "Regards from Alice Young <alice@example.com>")
    await dream_entities(rem, alice)
    assert await list_mentions(alice, session) == []


async def test_deleted_entity_stays_away_under_every_alias(rem: Rem, alice: Store) -> None:
    session = await store_session(rem, alice, _SARAH, "And s.chen@acme.com, Sarah's other address.")
    await dream_entities(rem, alice)
    await alice.delete(await get_entity(alice, "sarah-chen"))
    assert "ontologies/sarah-chen" not in await list_mentions(alice, session)
    await dream_entities(rem, alice)
    await dream_entities(rem, alice, rescan=True)
    for text in (_SARAH, "Shelly Chen <s.chen@acme.com> wrote.", "sarah.chen@acme.com", "My colleague Sarah Chen."):
        await store_session(rem, alice, text, text)
        await dream_entities(rem, alice)
    await dream_entities(rem, alice, rescan=True)
    assert [key for key in await list_entity_keys(alice) if "chen" in key] == []
    assert "ontologies/sarah-chen" not in await list_mentions(alice, session)


async def test_erased_entity_stays_away(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, _SARAH)
    await dream_entities(rem, alice)
    await alice.erase(await get_entity(alice, "sarah-chen"))
    await dream_entities(rem, alice, rescan=True)
    await store_session(rem, alice, _SARAH)
    await dream_entities(rem, alice)
    assert [key for key in await list_entity_keys(alice) if "chen" in key] == []


async def test_corrected_name_stays_and_is_used(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, _SARAH)
    await dream_entities(rem, alice)
    entity = await get_entity(alice, "sarah-chen")
    entity.name, entity.content = "Sarah Cheng", "Runs the numbers."
    await alice.upsert(entity)
    by_address = await store_session(rem, alice, _SARAH)
    by_old_name = await store_session(rem, alice, "My colleague Sarah Chen is here.", "My colleague Sarah Chen left.")
    await dream_entities(rem, alice)
    await dream_entities(rem, alice, rescan=True)
    assert [key for key in await list_entity_keys(alice) if "chen" in key] == ["sarah-cheng"]
    kept = await get_entity(alice, "sarah-cheng")
    assert (kept.content, kept.origin) == ("Runs the numbers.", "user")
    assert "ontologies/sarah-cheng" in await list_mentions(alice, by_address)
    assert "ontologies/sarah-cheng" in await list_mentions(alice, by_old_name)


async def test_correction_survives_new_sessions(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, _SARAH)
    await dream_entities(rem, alice)
    entity = await get_entity(alice, "sarah-chen")
    entity.content = "Mine."
    await alice.upsert(entity)
    await store_session(rem, alice, "Sarah Chen <sarah.chen@acme.com> sends greetings.")
    await dream_entities(rem, alice)
    assert (await get_entity(alice, "sarah-chen")).content == "Mine."


async def test_entities_of_deleted_sessions_are_removed_at_once(rem: Rem, alice: Store, sql: Connection) -> None:
    session = await store_session(rem, alice, _SARAH, "Sarah works at Acme.")
    other = await store_session(rem, alice, "In the film sarah chen is nice.")
    await dream_entities(rem, alice)
    assert await list_mentions(alice, other) == ["ontologies/sarah-chen"]
    await alice.delete(session)
    assert await list_entity_keys(alice) == []
    assert await list_mentions(alice, other) == []
    assert await sql.fetchval("SELECT count(*) FROM statements") == 0
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []


async def test_entity_without_enough_evidence_is_removed_and_can_return(rem: Rem, alice: Store) -> None:
    first = await store_session(rem, alice, "amara.diallo@web.de will call.")
    await store_session(rem, alice, "amara.diallo@web.de called.")
    await dream_entities(rem, alice)
    await alice.delete(first)
    assert await list_entity_keys(alice) == []
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    await store_session(rem, alice, "amara.diallo@web.de will call again.")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == ["amara-diallo"]


async def test_deleting_one_of_two_messages_removes_entity(rem: Rem, alice: Store, sql: Connection) -> None:
    session = await store_session(rem, alice, "amara.diallo@web.de will call.", "amara.diallo@web.de called.")
    await dream_entities(rem, alice)
    first, _ = await list_message_ids(sql, session)
    await alice.delete(await alice.get(Message, first))
    assert await list_entity_keys(alice) == []
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []


async def test_alias_from_deleted_session_is_removed(rem: Rem, alice: Store) -> None:
    session = await store_session(rem, alice, "Sarah Chen <s.chen@acme.com> is back.")
    await store_session(rem, alice, "S. Chen <s.chen@acme.com> wrote from Rome.")
    await dream_entities(rem, alice)
    assert [key for key in await list_entity_keys(alice) if "chen" in key] == ["sarah-chen"]
    await alice.delete(session)
    await dream_entities(rem, alice)
    assert [key for key in await list_entity_keys(alice) if "chen" in key] == ["s.-chen"]


@pytest.mark.parametrize("newest_first", [False, True])
async def test_newest_employer_is_an_edge_and_older_one_stays_in_history(
    rem: Rem, alice: Store, newest_first: bool
) -> None:
    march, may = datetime(2025, 3, 2, tzinfo=UTC), datetime(2025, 5, 9, tzinfo=UTC)
    await store_past_session(alice, datetime(2025, 1, 1, tzinfo=UTC), _SARAH, "Sarah is nice.")
    await dream_entities(rem, alice)
    statements = [(march, "Sarah works at Initech."), (may, "Sarah now works at Globex.")]
    sessions = {}
    for at, text in reversed(statements) if newest_first else statements:
        sessions[at] = await store_past_session(alice, at, text)
        await dream_entities(rem, alice)
    await dream_entities(rem, alice, rescan=True)
    sarah = await get_entity(alice, "sarah-chen")
    assert [(edge.rel_type, edge.dst) for edge in sarah.graph_edges] == [("works_at", "globex")]
    assert await _believed(alice, sarah, None) == [
        ("works_at ontologies/globex", may, None),
        ("works_at ontologies/initech", march, may),
    ]
    april = await _believed(alice, sarah, datetime(2025, 4, 1, tzinfo=UTC))
    assert [name for name, _, _ in april] == ["works_at ontologies/initech"]
    # When the newer one is gone, the older holds again.
    await alice.delete(sessions[may])
    await dream_entities(rem, alice)
    sarah = await get_entity(alice, "sarah-chen")
    assert [(edge.rel_type, edge.dst) for edge in sarah.graph_edges] == [("works_at", "initech")]
    assert await _believed(alice, sarah, None) == [("works_at ontologies/initech", march, None)]


async def _believed(store: Store, row: Ontology, at: datetime | None) -> list[tuple[str, datetime, datetime | None]]:
    statements = (await list_statement_page(store, str(row.key), at=at)).statements
    own = [one for one in statements if one.kind == "edge" and one.entity_id == row.id]
    return [(one.name, one.valid_from, one.valid_to) for one in own if one.valid_from]


async def test_users_do_not_share_entities(rem: Rem, alice: Store, bob: Store, sql: Connection) -> None:
    await store_session(rem, alice, "amara.diallo@web.de will call.")
    session = await store_session(rem, bob, "amara.diallo@web.de called.", "I like Acme.")
    await dream_entities(rem, alice)
    await dream_entities(rem, bob)
    assert await sql.fetchval("SELECT count(*) FROM ontologies") == 0
    await store_session(rem, alice, _SARAH, "Acme, acme.com")
    await dream_entities(rem, alice)
    await dream_entities(rem, bob, rescan=True)
    assert await list_entity_keys(bob) == []
    assert await list_mentions(bob, session) == []


async def test_notes_give_evidence_and_mentions(rem: Rem, alice: Store) -> None:
    note = await alice.upsert(Resource(name="minutes", content="Present: Reto Frei <reto.frei@wattwerk.ch>"))
    await dream_entities(rem, alice)
    stored = await alice.get(Resource, note.id)
    assert [(edge.rel_type, edge.dst) for edge in stored.graph_edges] == [("mentions", "reto-frei")]
    stored.content = "Nobody came."
    await alice.upsert(stored)
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    assert (await alice.get(Resource, note.id)).graph_edges == []


async def test_moment_mentions_people_but_is_no_evidence(rem: Rem, alice: Store) -> None:
    moment = await alice.upsert(Moment(name="lunch", summary="Lunch with Sarah Chen and my boss Henrik Dahl."))
    await store_session(rem, alice, _SARAH, "henrik.dahl@web.de is away.")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == ["sarah-chen"]
    stored = await alice.get(Moment, moment.id)
    assert [(edge.rel_type, edge.dst) for edge in stored.graph_edges] == [("mentions", "sarah-chen")]
    assert (await dream_entities(rem, alice)).run_id is None


async def test_long_session_is_read_from_its_last_seen_message(rem: Rem, alice: Store, sql: Connection) -> None:
    session = await store_session(rem, alice, _SARAH, *(f"Message number {number}." for number in range(250)))
    await dream_entities(rem, alice)
    before = await sql.fetch("SELECT id FROM statements ORDER BY id")
    await append_messages(rem, alice, session, "Victor Amsel <victor.amsel@rhenus.eu> wrote to Sarah Chen.")
    await dream_entities(rem, alice)
    assert await list_mentions(alice, session) == ["ontologies/sarah-chen", "ontologies/victor-amsel"]
    after = await sql.fetch("SELECT id FROM statements ORDER BY id")
    assert {row[0] for row in before} <= {row[0] for row in after}
    assert (await dream_entities(rem, alice, rescan=True)).run_id is None


async def test_speaker_of_imported_session_becomes_person(rem: Rem, alice: Store) -> None:
    await store_session(rem, alice, "I joined the pottery class.", role=Role.ASSISTANT, speaker="Caroline")
    await store_session(rem, alice, "Who is there?", speaker="Speaker 1")
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == ["caroline"]


@pytest.mark.parametrize("is_erased", [False, True])
@pytest.mark.parametrize("index", [0, 2])
async def test_message_deleted_during_run_is_no_source(
    rem: Rem, alice: Store, sql: Connection, index: int, is_erased: bool
) -> None:
    texts = ["The tomatoes grow well.", "We went home early.", "Nothing else happened."]
    texts[index] = "I met Sarah Okafor <sarah.okafor@initech.com> about the secret."
    session = await store_session(rem, alice, *texts)
    (message,) = await alice.find(Message, {"session_id": session.id, "message_index": index})

    await _dream_with(rem, alice, lambda store: store.erase(message) if is_erased else store.delete(message))
    for table in ("statements", "ontologies", "edges"):
        remaining = await sql.fetchval(f"SELECT count(*) FROM {table} t WHERE to_jsonb(t)::text ~* 'okafor|secret'")
        assert remaining == 0, table
    await dream_entities(rem, alice)
    assert await list_entity_keys(alice) == []
    assert await list_mentions(alice, session) == []


async def test_remaining_evidence_counts_after_deletion_during_run(rem: Rem, alice: Store) -> None:
    session = await store_session(rem, alice, _SARAH, "Sarah Chen <s.chen@acme.com> wrote again.")
    (doomed, _) = await alice.find(Message, {"session_id": session.id}, order_by="message_index")
    await _dream_with(rem, alice, lambda store: store.delete(doomed))
    await dream_entities(rem, alice)
    assert "asked for the numbers" not in (await get_entity(alice, "sarah-chen")).content
    assert await list_mentions(alice, session) == ["ontologies/sarah-chen"]


async def _dream_with(rem: Rem, store: Store, happens: Callable[[Store], Awaitable[object]]) -> None:
    """Run the entities dream, and change the memory before it reads its subjects for the second time."""
    starts = itertools.count(1)

    async def elsewhere() -> None:
        async with Rem.open(rem.settings) as other:
            await happens(other.for_user(store.scope).store)

    def on_progress(_dream: str, done: int, of: int) -> None:
        if done == 0 and of and next(starts) == 2:
            # The dream waits meanwhile.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, elsewhere()).result(60)

    await rem.dreamer().dream(store.scope, ["entities"], on_progress=on_progress)
    assert next(starts) > 2


@pytest.mark.parametrize("in_one_session", [True, False])
async def test_repeated_employer_begins_again(rem: Rem, alice: Store, sql: Connection, in_one_session: bool) -> None:
    days = [datetime(2025, 1, day, tzinfo=UTC) for day in (1, 11, 21)]
    texts = [f"Sarah Chen <sarah.chen@acme.com> now works at {name}." for name in ("Globex", "Initech", "Globex")]
    if in_one_session:
        session = await store_past_session(alice, days[0], texts[0])
        for index, (at, text) in enumerate(zip(days[1:], texts[1:], strict=True), 1):
            message = Message(session_id=session.id, message_index=index, role=Role.USER, content=text, created_at=at)
            await alice.upsert(message)
    else:
        for at, text in zip(days, texts, strict=True):
            await store_past_session(alice, at, text)
    await dream_entities(rem, alice)
    sarah = await get_entity(alice, "sarah-chen")
    assert [(edge.rel_type, edge.dst) for edge in sarah.graph_edges] == [("works_at", "globex")]
    periods = [(name, at.date(), until and until.date()) for name, at, until in await _believed(alice, sarah, None)]
    first, second, third = (day.date() for day in days)
    assert periods == [
        ("works_at ontologies/globex", third, None),
        ("works_at ontologies/initech", second, third),
        ("works_at ontologies/globex", first, second),
    ]
    before = await dump_statements(sql)
    await dream_entities(rem, alice, rescan=True)
    assert await dump_statements(sql) == before


async def test_employer_begins_again_for_person_with_two_names(rem: Rem, alice: Store) -> None:
    await store_session(
        rem, alice, _SARAH, "Sarah Chen works at Globex.", "Sarah works at Initech.", "Sarah Chen works at Globex."
    )
    await dream_entities(rem, alice)
    sarah = await get_entity(alice, "sarah-chen")
    assert [(edge.rel_type, edge.dst) for edge in sarah.graph_edges] == [("works_at", "globex")]
