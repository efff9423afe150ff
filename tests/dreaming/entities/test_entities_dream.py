"""The dream of entities: people, organisations and projects become rows that LOOKUP finds, from evidence."""

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
from rem.db.sql import query
from rem.db.store import Store
from rem.dreaming.audit import run_audit
from rem.dreaming.run import OnProgress
from rem.models import Message, Moment, Ontology, Resource, Role, Session, User
from tests.dreaming.entities.sample_sessions import (
    dream,
    entities,
    entity,
    everything,
    mentions,
    message_ids,
    shape,
    talk,
    talk_at,
    talk_on,
)

_SARAH = "Sarah Chen <sarah.chen@acme.com> asked for the numbers."
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def test_an_address_with_a_name_makes_a_person_that_every_name_finds(rem: Rem, alice: Store) -> None:
    session = await talk(
        rem, alice, _SARAH, "Sarah needs them by Friday. Dr. Chen hates long mails.", "cc s.chen@acme.com"
    )
    await dream(rem, alice)
    for label in ("sarah-chen", "Sarah Chen", "sarah.chen@acme.com", "s.chen@acme.com", "Sarah", "Dr. Chen"):
        assert (await entity(alice, label)).key == "sarah-chen"
    found = await entity(alice, "sarah-chen")
    assert found.name == "Sarah Chen"
    assert found.extracted_data["entity_type"] == "person"
    assert found.tags == ["person"]
    assert "asked for the numbers" in found.content
    assert found.origin == "dream:entities"
    assert found.confidence is not None
    assert found.confidence >= 0.75
    assert found.sources
    assert await mentions(alice, session) == ["ontologies/acme", "ontologies/sarah-chen"]


async def test_lookup_and_traverse_find_the_sessions_that_speak_of_somebody(rem: Rem, alice: Store) -> None:
    first = await talk(rem, alice, _SARAH)
    second = await talk(rem, alice, "I am seeing Sarah Chen for lunch.")
    await dream(rem, alice)
    answer = await rem.query('LOOKUP "s.chen@acme.com"', user="alice@example.com")
    assert answer.count == 0
    answer = await rem.query('LOOKUP "sarah.chen@acme.com"', user="alice@example.com")
    assert answer.count == 1
    walked = await rem.query('TRAVERSE FROM "sarah-chen" DIRECTION in DEPTH 1', user="alice@example.com")
    assert {first.key, second.key} <= {row["key"] for row in walked.results}


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("My colleague Amara Diallo will call.", "amara-diallo"),
        ("I work at Hollowbrook Mills.", "hollowbrook-mills"),
        ("What is new in project Kestrel?", "project-kestrel"),
        ("Update project-kestrel today.", "project-kestrel"),
        ("Write to amara.diallo@web.de", "amara-diallo"),
        ("@amara_diallo please look.", "amara-diallo"),
        ("Meine Kollegin Amara Diallo kommt.", "amara-diallo"),
    ],
)
async def test_one_weak_hint_makes_nothing_and_a_second_place_does(rem: Rem, alice: Store, said: str, key: str) -> None:
    first = await talk(rem, alice, said)
    await dream(rem, alice)
    assert await entities(alice) == []
    assert await mentions(alice, first) == []
    second = await talk(rem, alice, said)
    await dream(rem, alice)
    assert await entities(alice) == [key]
    # Also the session of the night before.
    assert await mentions(alice, first) == [f"ontologies/{key}"]
    assert await mentions(alice, second) == [f"ontologies/{key}"]


async def test_a_session_that_is_looked_at_again_is_read_on_all_the_same(rem: Rem, alice: Store) -> None:
    session = await talk(rem, alice, "My colleague Amara Diallo will call.")
    await dream(rem, alice)
    await talk(rem, alice, "My colleague Amara Diallo called.")
    await dream(rem, alice)
    await talk_on(rem, alice, session, _SARAH)
    await dream(rem, alice)
    assert await mentions(alice, session) == ["ontologies/amara-diallo", "ontologies/sarah-chen"]


async def test_a_night_that_is_cut_short_is_made_up_for(rem: Rem, alice: Store, sql: Connection) -> None:
    shapes = []
    for user, most in (("whole", None), ("cut-1", 1), ("cut-2", 2), ("cut-4", 4), ("cut-5", 5)):
        store = rem.store(user)
        for text in (_SARAH, "Sarah Chen works at Globex.", "S. Chen <sarah.chen@acme.com> wrote"):
            session = await talk(rem, store, text)
            await store.modify(Session, session.id, lambda one, text=text: _named(one, text))  # type: ignore[misc]
        if most is not None:
            with pytest.raises(RuntimeError, match="cut"):
                await rem.dreamer().dream(store.scope, ["entities"], on_progress=_cut_after(most))
        await dream(rem, store)
        shapes.append(await shape(store, sql))
    assert all(one == shapes[0] for one in shapes[1:])


def _cut_after(steps: int) -> OnProgress:
    left = itertools.count(steps, -1)

    def on_progress(_dream: str, _done: int, _of: int) -> None:
        if next(left) == 0:
            raise RuntimeError("cut")

    return on_progress


async def test_two_messages_of_one_session_are_two_places(rem: Rem, alice: Store) -> None:
    session = await talk(rem, alice, "My boss Henrik Dahl is away.")
    await dream(rem, alice)
    assert await entities(alice) == []
    await talk_on(rem, alice, session, "My boss Henrik Dahl is back.")
    await dream(rem, alice)
    assert await entities(alice) == ["henrik-dahl"]


async def test_what_an_assistant_says_is_no_evidence(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, _SARAH, "My colleague Nora Quill.", "My colleague Nora Quill.", role=Role.ASSISTANT)
    await dream(rem, alice)
    assert await entities(alice) == []


async def test_dreaming_again_changes_nothing(rem: Rem, alice: Store, sql: Connection) -> None:
    await talk(rem, alice, _SARAH, "Sarah Chen works at Acme.", "Sarah Chen now works at Globex Labs.")
    await talk(rem, alice, "S. Chen <s.chen@acme.com> wrote.", "My sister Anna called.", "My sister Anna again.")
    await talk(rem, alice, "My colleague Sarah is ill.", "ask sarah.chen@acme.com and s.chen@acme.com")
    await alice.upsert(Resource(name="minutes", content="Present: Reto Frei <reto.frei@wattwerk.ch>, Sarah Chen"))
    await dream(rem, alice)
    before = await everything(sql)
    assert (await dream(rem, alice)).run_id is None
    report = await dream(rem, alice, rescan=True)
    assert report.run_id is None, report.changes
    assert await everything(sql) == before
    assert (await run_audit(alice, _no_embedding)).counts["dangling_edges"] == 0


async def _no_embedding(texts: Sequence[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


async def test_the_order_of_sessions_does_not_matter(rem: Rem, sql: Connection) -> None:
    talks = [
        (_SARAH, "Sarah wants tea."),
        ("My colleague Sarah is ill.",),
        ("S. Chen <sarah.chen@acme.com> wrote from Rome.", "Acme is late."),
    ]
    shapes = []
    for number, order in enumerate(itertools.permutations(talks)):
        store = rem.store(f"user-{number}")
        for texts in order:
            session = await talk(rem, store, *texts)
            await store.modify(Session, session.id, lambda one, texts=texts: _named(one, texts[0]))  # type: ignore[misc]
        await dream(rem, store)
        shapes.append(await shape(store, sql))
    assert all(one == shapes[0] for one in shapes[1:])
    assert [row[0] for row in shapes[0] if len(row) == 4 and row[0] == "Sarah Chen"] == ["Sarah Chen"]


def _named(session: Session, name: str) -> Session:
    session.name = name
    return session


async def test_also_night_by_night_the_fullest_name_wins(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, "S. Chen <s.chen@acme.com> wrote from Rome.")
    await dream(rem, alice)
    assert "s.-chen" in await entities(alice)
    await talk(rem, alice, "Sarah Chen <s.chen@acme.com> is back.")
    await dream(rem, alice)
    assert [key for key in await entities(alice) if "chen" in key] == ["sarah-chen"]
    assert "wrote from Rome" in (await entity(alice, "S. Chen")).content


async def test_what_is_told_of_somebody_stands_in_the_order_of_time_without_questions(rem: Rem, alice: Store) -> None:
    may = datetime(2026, 5, 4, 9, tzinfo=UTC)
    texts = ["Zoe Adler <zoe@adler.ch> came.", "My colleague Zoe Adler left.", "Did my colleague Zoe Adler call?"]
    for day, text in enumerate(texts):
        await talk_at(alice, may + timedelta(days=day), text)
    await talk_at(alice, may + timedelta(days=9), "A mail of Zoe Adler <zoe@adler.ch> is here.")
    await dream(rem, alice)
    told = [texts[0], texts[1], "A mail of Zoe Adler <zoe@adler.ch> is here."]
    assert (await entity(alice, "zoe-adler")).content.split("\n") == told


async def test_of_much_that_is_told_of_somebody_the_newest_is_kept(rem: Rem, alice: Store) -> None:
    may = datetime(2026, 5, 4, 9, tzinfo=UTC)
    for day in range(25):
        text = f"Zoe Adler <zoe@adler.ch> told {'much and ' * 22}of day {day}."
        await talk_at(alice, may + timedelta(days=day), text)
    await dream(rem, alice)
    told = (await entity(alice, "zoe-adler")).content.split("\n")
    days = [int(line.rstrip(".").rsplit(" ", 1)[1]) for line in told]
    assert days == list(range(25 - len(days), 25))
    assert 10 < len(days) < 25


async def test_two_of_one_first_name_stay_two_and_the_first_name_alone_is_nobody(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, "Sarah Chen <sarah.chen@acme.com> and Sarah Miller <sarah.miller@acme.com> came.")
    later = await talk(rem, alice, "Sarah called.")
    await dream(rem, alice)
    assert [key for key in await entities(alice) if key.startswith("sarah")] == ["sarah-chen", "sarah-miller"]
    assert await mentions(alice, later) == []


async def test_a_sister_is_not_the_colleague_of_the_same_name(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, _SARAH, "Sarah is nice.")
    session = await talk(rem, alice, "My sister Sarah is coming.", "My sister Sarah brings cake. Sarah bakes well.")
    await dream(rem, alice)
    assert [key for key in await entities(alice) if key.startswith("sarah")] == ["sarah-(sister)", "sarah-chen"]
    assert await mentions(alice, session) == ["ontologies/sarah-(sister)"]


async def test_people_who_share_an_address_are_not_merged(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, "Per Olsen <family@olsen.no> and Greta Olsen <family@olsen.no>")
    await dream(rem, alice)
    assert [key for key in await entities(alice) if "olsen" in key] == ["greta-olsen", "per-olsen"]


async def test_somebody_else_of_a_known_first_name_is_no_mention(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, _SARAH, "Sarah is nice.")
    other = await talk(rem, alice, "Yesterday I read Sarah Waters, a novelist.")
    same = await talk(rem, alice, "Yesterday I saw Sarah at lunch.")
    await dream(rem, alice)
    assert await mentions(alice, other) == []
    assert await mentions(alice, same) == ["ontologies/sarah-chen"]


async def test_what_the_owner_has_is_used_and_not_made_again(rem: Rem, alice: Store, shared: Store) -> None:
    await alice.upsert(User(name="Sarah Chen", email="sarah.chen@acme.com"))
    await alice.upsert(Ontology(name="Acme", extracted_data={"aliases": ["Acme Corporation"]}))
    await shared.upsert(Ontology(name="hybrid search", content="Words and vectors."))
    await alice.upsert(Resource(name="Project Apollo", content="The plan."))
    session = await talk(
        rem, alice, _SARAH, "Acme Corporation uses hybrid search in project Apollo.", "project Apollo!"
    )
    await dream(rem, alice)
    assert await entities(alice) == ["acme", "hybrid-search"]
    assert await mentions(alice, session) == [
        *("ontologies/acme", "ontologies/hybrid-search", "resources/project-apollo", "users/sarah-chen")
    ]


async def test_the_owner_is_not_mentioned_in_their_own_talks(rem: Rem, alice: Store) -> None:
    await alice.upsert(User(name="Alice Young", email="alice@example.com"))
    session = await talk(rem, alice, "Regards from Alice Young <alice@example.com>")
    await dream(rem, alice)
    assert await mentions(alice, session) == []


async def test_what_was_deleted_never_comes_back_under_any_name(rem: Rem, alice: Store) -> None:
    session = await talk(rem, alice, _SARAH, "And s.chen@acme.com, Sarah's other address.")
    await dream(rem, alice)
    await alice.delete(await entity(alice, "sarah-chen"))
    assert "ontologies/sarah-chen" not in await mentions(alice, session)
    await dream(rem, alice)
    await dream(rem, alice, rescan=True)
    for text in (_SARAH, "Shelly Chen <s.chen@acme.com> wrote.", "sarah.chen@acme.com", "My colleague Sarah Chen."):
        await talk(rem, alice, text, text)
        await dream(rem, alice)
    await dream(rem, alice, rescan=True)
    assert [key for key in await entities(alice) if "chen" in key] == []
    assert "ontologies/sarah-chen" not in await mentions(alice, session)


async def test_what_was_erased_does_not_come_back(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, _SARAH)
    await dream(rem, alice)
    await alice.erase(await entity(alice, "sarah-chen"))
    await dream(rem, alice, rescan=True)
    await talk(rem, alice, _SARAH)
    await dream(rem, alice)
    assert [key for key in await entities(alice) if "chen" in key] == []


async def test_a_corrected_name_stays_and_is_used(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, _SARAH)
    await dream(rem, alice)
    found = await entity(alice, "sarah-chen")
    found.name, found.content = "Sarah Cheng", "Runs the numbers."
    await alice.upsert(found)
    by_address = await talk(rem, alice, _SARAH)
    by_old_name = await talk(rem, alice, "My colleague Sarah Chen is here.", "My colleague Sarah Chen left.")
    await dream(rem, alice)
    await dream(rem, alice, rescan=True)
    assert [key for key in await entities(alice) if "chen" in key] == ["sarah-cheng"]
    kept = await entity(alice, "sarah-cheng")
    assert (kept.content, kept.origin) == ("Runs the numbers.", "user")
    assert "ontologies/sarah-cheng" in await mentions(alice, by_address)
    assert "ontologies/sarah-cheng" in await mentions(alice, by_old_name)


async def test_a_correction_is_not_written_over_by_another_session(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, _SARAH)
    await dream(rem, alice)
    found = await entity(alice, "sarah-chen")
    found.content = "Mine."
    await alice.upsert(found)
    await talk(rem, alice, "Sarah Chen <sarah.chen@acme.com> sends greetings.")
    await dream(rem, alice)
    assert (await entity(alice, "sarah-chen")).content == "Mine."


async def test_deleted_sessions_take_along_what_they_named_at_once(rem: Rem, alice: Store, sql: Connection) -> None:
    session = await talk(rem, alice, _SARAH, "Sarah works at Acme.")
    other = await talk(rem, alice, "Sarah Chen is nice.")
    await dream(rem, alice)
    assert await mentions(alice, other) == ["ontologies/sarah-chen"]
    await alice.delete(session)
    assert await entities(alice) == []
    assert await mentions(alice, other) == []
    assert await sql.fetchval("SELECT count(*) FROM statements") == 0
    await dream(rem, alice)
    assert await entities(alice) == []


async def test_what_has_too_little_evidence_left_goes_and_may_come_again(rem: Rem, alice: Store) -> None:
    first = await talk(rem, alice, "My colleague Amara Diallo will call.")
    await talk(rem, alice, "My colleague Amara Diallo called.")
    await dream(rem, alice)
    await alice.delete(first)
    assert await entities(alice) == []
    await dream(rem, alice)
    assert await entities(alice) == []
    await talk(rem, alice, "Our designer Amara Diallo will call.")
    await dream(rem, alice)
    assert await entities(alice) == ["amara-diallo"]


async def test_one_deleted_message_of_two_is_enough_to_doubt(rem: Rem, alice: Store, sql: Connection) -> None:
    session = await talk(rem, alice, "My colleague Amara Diallo will call.", "My colleague Amara Diallo called.")
    await dream(rem, alice)
    first, _ = await message_ids(sql, session)
    await alice.delete(await alice.get(Message, first))
    assert await entities(alice) == []
    await dream(rem, alice)
    assert await entities(alice) == []


async def test_a_name_that_only_a_deleted_session_told_is_forgotten_elsewhere(rem: Rem, alice: Store) -> None:
    told = await talk(rem, alice, "Sarah Chen <s.chen@acme.com> is back.")
    await talk(rem, alice, "S. Chen <s.chen@acme.com> wrote from Rome.")
    await dream(rem, alice)
    assert [key for key in await entities(alice) if "chen" in key] == ["sarah-chen"]
    await alice.delete(told)
    await dream(rem, alice)
    assert [key for key in await entities(alice) if "chen" in key] == ["s.-chen"]


@pytest.mark.parametrize("newest_first", [False, True])
async def test_the_newest_employer_is_in_the_graph_and_the_older_on_record(
    rem: Rem, alice: Store, newest_first: bool
) -> None:
    march, may = datetime(2025, 3, 2, tzinfo=UTC), datetime(2025, 5, 9, tzinfo=UTC)
    await talk_at(alice, datetime(2025, 1, 1, tzinfo=UTC), _SARAH, "Sarah is nice.")
    await dream(rem, alice)
    told = [(march, "Sarah works at Initech."), (may, "Sarah now works at Globex.")]
    sessions = {}
    for at, text in reversed(told) if newest_first else told:
        sessions[at] = await talk_at(alice, at, text)
        await dream(rem, alice)
    await dream(rem, alice, rescan=True)
    sarah = await entity(alice, "sarah-chen")
    assert [(edge.rel_type, edge.dst) for edge in sarah.graph_edges] == [("works_at", "globex")]
    assert await _believed(alice, sarah, None) == [
        ("works_at ontologies/globex", may, None),
        ("works_at ontologies/initech", march, may),
    ]
    april = await _believed(alice, sarah, datetime(2025, 4, 1, tzinfo=UTC))
    assert [name for name, _, _ in april] == ["works_at ontologies/initech"]
    # When the newer one is gone, the older holds again.
    await alice.delete(sessions[may])
    await dream(rem, alice)
    sarah = await entity(alice, "sarah-chen")
    assert [(edge.rel_type, edge.dst) for edge in sarah.graph_edges] == [("works_at", "initech")]
    assert await _believed(alice, sarah, None) == [("works_at ontologies/initech", march, None)]


async def _believed(store: Store, row: Ontology, at: datetime | None) -> list[tuple[str, datetime, datetime | None]]:
    async with store.executor.connection() as connection:
        rows = await connection.fetch(
            query("dreaming", "statements_about"), store.scope.tenant_id, store.scope.user_id, [row.id], at, 100
        )
    return [(one["name"], one["valid_from"], one["valid_to"]) for one in rows if one["kind"] == "edge"]


async def test_two_users_never_meet(rem: Rem, alice: Store, bob: Store, sql: Connection) -> None:
    await talk(rem, alice, "My colleague Amara Diallo will call.")
    session = await talk(rem, bob, "My colleague Amara Diallo called.", "I like Acme.")
    await dream(rem, alice)
    await dream(rem, bob)
    assert await sql.fetchval("SELECT count(*) FROM ontologies") == 0
    await talk(rem, alice, _SARAH, "Acme, acme.com")
    await dream(rem, alice)
    await dream(rem, bob, rescan=True)
    assert await entities(bob) == []
    assert await mentions(bob, session) == []


async def test_notes_mention_and_introduce_as_talks_do(rem: Rem, alice: Store) -> None:
    note = await alice.upsert(Resource(name="minutes", content="Present: Reto Frei <reto.frei@wattwerk.ch>"))
    await dream(rem, alice)
    stored = await alice.get(Resource, note.id)
    assert [(edge.rel_type, edge.dst) for edge in stored.graph_edges] == [("mentions", "reto-frei")]
    stored.content = "Nobody came."
    await alice.upsert(stored)
    await dream(rem, alice)
    assert await entities(alice) == []
    assert (await alice.get(Resource, note.id)).graph_edges == []


async def test_a_moment_mentions_whom_it_is_about_and_is_no_evidence(rem: Rem, alice: Store) -> None:
    moment = await alice.upsert(Moment(name="lunch", summary="Lunch with Sarah Chen and my boss Henrik Dahl."))
    await talk(rem, alice, _SARAH, "My boss Henrik Dahl is away.")
    await dream(rem, alice)
    assert await entities(alice) == ["sarah-chen"]
    stored = await alice.get(Moment, moment.id)
    assert [(edge.rel_type, edge.dst) for edge in stored.graph_edges] == [("mentions", "sarah-chen")]
    assert (await dream(rem, alice)).run_id is None


async def test_a_long_session_is_read_on_from_where_it_was_left(rem: Rem, alice: Store, sql: Connection) -> None:
    session = await talk(rem, alice, _SARAH, *(f"Message number {number}." for number in range(250)))
    await dream(rem, alice)
    before = await sql.fetch("SELECT id FROM statements ORDER BY id")
    await talk_on(rem, alice, session, "Victor Amsel <victor.amsel@rhenus.eu> wrote to Sarah Chen.")
    await dream(rem, alice)
    assert await mentions(alice, session) == ["ontologies/sarah-chen", "ontologies/victor-amsel"]
    after = await sql.fetch("SELECT id FROM statements ORDER BY id")
    assert {row[0] for row in before} <= {row[0] for row in after}
    assert (await dream(rem, alice, rescan=True)).run_id is None


async def test_a_speaker_of_an_imported_conversation_is_somebody(rem: Rem, alice: Store) -> None:
    await talk(rem, alice, "I joined the pottery class.", role=Role.ASSISTANT, speaker="Caroline")
    await talk(rem, alice, "Who is there?", speaker="Speaker 1")
    await dream(rem, alice)
    assert await entities(alice) == ["caroline"]


@pytest.mark.parametrize("is_erased", [False, True])
@pytest.mark.parametrize("place", [0, 2])
async def test_what_is_deleted_while_the_dream_runs_is_nobody_elses_word(
    rem: Rem, alice: Store, sql: Connection, place: int, is_erased: bool
) -> None:
    texts = ["The tomatoes grow well.", "We went home early.", "Nothing else happened."]
    texts[place] = "I met Sarah Okafor <sarah.okafor@initech.com> about the secret."
    session = await talk(rem, alice, *texts)
    (doomed,) = await alice.find(Message, {"session_id": session.id, "message_index": place})

    await _dream_with(rem, alice, lambda store: store.erase(doomed) if is_erased else store.delete(doomed))
    for table in ("statements", "ontologies", "edges"):
        left = await sql.fetchval(f"SELECT count(*) FROM {table} t WHERE to_jsonb(t)::text ~* 'okafor|secret'")
        assert left == 0, table
    await dream(rem, alice)
    assert await entities(alice) == []
    assert await mentions(alice, session) == []


async def test_what_is_left_of_evidence_that_was_deleted_meanwhile_still_counts(rem: Rem, alice: Store) -> None:
    session = await talk(rem, alice, _SARAH, "Sarah Chen <s.chen@acme.com> wrote again.")
    (doomed, _) = await alice.find(Message, {"session_id": session.id}, order_by="message_index")
    await _dream_with(rem, alice, lambda store: store.delete(doomed))
    await dream(rem, alice)
    assert "asked for the numbers" not in (await entity(alice, "sarah-chen")).content
    assert await mentions(alice, session) == ["ontologies/sarah-chen"]


async def _dream_with(rem: Rem, store: Store, happens: Callable[[Store], Awaitable[object]]) -> None:
    """A night of entities. When it looks at its subjects for the second time, something has happened to the memory."""
    starts = itertools.count(1)

    async def elsewhere() -> None:
        async with Rem.open(rem.settings) as other:
            await happens(other.store(store.scope))

    def on_progress(_dream: str, done: int, of: int) -> None:
        if done == 0 and of and next(starts) == 2:
            # The dream waits meanwhile.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, elsewhere()).result(60)

    await rem.dreamer().dream(store.scope, ["entities"], on_progress=on_progress)
    assert next(starts) > 2


@pytest.mark.parametrize("in_one_session", [True, False])
async def test_who_comes_back_was_there_twice(rem: Rem, alice: Store, sql: Connection, in_one_session: bool) -> None:
    days = [datetime(2025, 1, day, tzinfo=UTC) for day in (1, 11, 21)]
    texts = [f"Sarah Chen <sarah.chen@acme.com> now works at {name}." for name in ("Globex", "Initech", "Globex")]
    if in_one_session:
        session = await talk_at(alice, days[0], texts[0])
        for index, (at, text) in enumerate(zip(days[1:], texts[1:], strict=True), 1):
            said = Message(session_id=session.id, message_index=index, role=Role.USER, content=text, created_at=at)
            await alice.upsert(said)
    else:
        for at, text in zip(days, texts, strict=True):
            await talk_at(alice, at, text)
    await dream(rem, alice)
    sarah = await entity(alice, "sarah-chen")
    assert [(edge.rel_type, edge.dst) for edge in sarah.graph_edges] == [("works_at", "globex")]
    periods = [(name, at.date(), until and until.date()) for name, at, until in await _believed(alice, sarah, None)]
    first, second, third = (day.date() for day in days)
    assert periods == [
        ("works_at ontologies/globex", third, None),
        ("works_at ontologies/initech", second, third),
        ("works_at ontologies/globex", first, second),
    ]
    before = await everything(sql)
    await dream(rem, alice, rescan=True)
    assert await everything(sql) == before


async def test_somebody_called_by_two_names_comes_back_all_the_same(rem: Rem, alice: Store) -> None:
    await talk(
        rem, alice, _SARAH, "Sarah Chen works at Globex.", "Sarah works at Initech.", "Sarah Chen works at Globex."
    )
    await dream(rem, alice)
    sarah = await entity(alice, "sarah-chen")
    assert [(edge.rel_type, edge.dst) for edge in sarah.graph_edges] == [("works_at", "globex")]
