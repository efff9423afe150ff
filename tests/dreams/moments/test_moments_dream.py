"""The moments dream stores episodes of sessions, notes and files with time, people, topics and sources."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.ingest.models import FetchedFile
from rem.models import File, Moment, Ontology, Resource
from rem.settings import Settings
from tests.dreams.sample_sessions import (
    MARCH,
    fetch_moments_content,
    fetch_statement_rows,
    list_moments,
    make_session_id,
    run_dreams,
    store_session,
)

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_HOUR = timedelta(hours=1)
_MIGRATION = (
    "user: We decided to migrate the billing database to Postgres 17 on 4 April.",
    "assistant: Great! I can help with that. Which tables are the largest?",
    "user: The ledger tables, about 900 GB. Sarah Chen runs the Postgres migration and I am worried about downtime.",
)
_GARDEN = (
    "user: The tomatoes in my greenhouse have blight, so I ordered copper spray and resistant seeds.",
    "assistant: Remove the infected leaves first, and water the tomatoes at the root only.",
    "user: The greenhouse stays open at night now, and I burn the infected tomato leaves.",
)


async def test_moment_has_time_people_topics_and_sources(rem: Rem, alice: Store) -> None:
    await alice.upsert(Ontology(name="Sarah Chen", content="An engineer.", extracted_data={"entity_type": "person"}))
    session = await store_session(alice, "migration", *_MIGRATION)
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert moment.name.startswith("2026-03-14 ")
    assert moment.name == "2026-03-14 We decided to migrate the billing database"
    assert (moment.starts_timestamp, moment.ends_timestamp) == (MARCH, MARCH + timedelta(minutes=2))
    assert "sarah-chen" in moment.present_persons
    assert 2 <= len(moment.topic_tags) <= 5
    assert any("postgres" in tag for tag in moment.topic_tags)
    assert moment.emotion_tags == ["worry"]
    assert "4 April" in moment.summary
    assert "900 GB" in moment.summary
    assert "Great!" not in moment.summary
    assert moment.source_session_id == session
    assert moment.sources == [f"session-{session}-msg-{index}" for index in (0, 2)]
    assert (moment.origin, moment.moment_type) == ("dream:moments", "conversation")
    walked = await rem.for_user("alice@example.com").query(f'TRAVERSE part_of FROM "{moment.key}"')
    assert [row.record["id"] for row in walked.hits] == [str(session)]
    found = await rem.for_user("alice@example.com").query('SEARCH "when do we move billing to Postgres" FROM moments')
    assert found.hits[0].key == moment.key


async def test_pause_and_topic_change_begin_a_new_moment(rem: Rem, alice: Store) -> None:
    await store_session(alice, "pause", *_MIGRATION)
    await store_session(
        alice, "pause", "user: The cutover rehearsal of the ledger went well.", at=MARCH + 3 * _HOUR, first=3
    )
    await store_session(alice, "change", *_MIGRATION, *_GARDEN, at=MARCH + timedelta(days=1))
    await run_dreams(rem, alice)
    found = [
        (m.source_session_id, m.metadata["first_index"], m.metadata["last_index"]) for m in await list_moments(alice)
    ]
    assert found == [
        (make_session_id("pause"), 0, 2),
        (make_session_id("pause"), 3, 3),
        (make_session_id("change"), 3, 5),
    ], "the second session about the migration repeats the first, and is no second moment"


async def test_speakers_are_present_and_no_topics(rem: Rem, alice: Store) -> None:
    await store_session(
        alice,
        "friends",
        "Caroline: Hey Mel! I went to a pottery workshop in Bath on Saturday.",
        "Melanie: Hey Caroline! My glaze cracked in the kiln last week.",
        "Caroline: The potter showed us a celadon glaze for the kiln, Mel.",
    )
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert moment.present_persons == ["Caroline", "Melanie"]
    assert not {"caroline", "melanie"} & set(moment.topic_tags)
    assert "Caroline: I went to a pottery workshop in Bath on Saturday." in moment.summary


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("user: hi", "assistant: Hello! How can I help you today?", "user: thanks!", "assistant: You're welcome!"),
        ("tool: exit code 0", "tool: exit code 1"),
        ("assistant: Hello! How can I help you today?",),
        ("user: こんにちは", "assistant: こんにちは！今日はどうしましたか？"),
        ("user: 👍",),
    ],
)
async def test_small_talk_gives_no_moment(rem: Rem, alice: Store, lines: tuple[str, ...]) -> None:
    await store_session(alice, "nothing", *lines)
    await run_dreams(rem, alice)
    assert await list_moments(alice) == []
    assert (await run_dreams(rem, alice)).statement_count == 0


async def test_one_meaningful_message_is_a_moment(rem: Rem, alice: Store) -> None:
    await store_session(alice, "one", "user: I moved to Berlin.")
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert moment.summary == "I moved to Berlin."
    assert moment.name == "2026-03-14 I moved to Berlin"


async def test_other_scripts_huge_messages_and_unordered_times(rem: Rem, alice: Store) -> None:
    await store_session(
        alice,
        "japanese",
        "user: 来月、東京の会議でデータベース移行の計画を発表します。とても不安です。",
        "assistant: 承知しました。データベース移行の資料を準備しましょう。",
    )
    await store_session(alice, "huge", "user: The reactor manual begins. " + "Valve seventeen sticks badly. " * 35_000)
    await store_session(alice, "same time", *_GARDEN, step=timedelta(0), at=MARCH + timedelta(days=2))
    await store_session(
        alice, "backwards", "user: The violin lesson moved to Tuesday, Mr. Tanaka says.", at=MARCH + timedelta(days=5)
    )
    await store_session(
        alice,
        "backwards",
        "user: Mr. Tanaka wants a new bow for the violin lesson.",
        at=MARCH + timedelta(days=5) - timedelta(minutes=9),
        first=1,
    )
    await run_dreams(rem, alice)
    by_session = {moment.source_session_id: moment for moment in await list_moments(alice)}
    japanese = by_session[make_session_id("japanese")]
    assert "東京" in japanese.summary
    assert {"データベース", "会議"} & set(japanese.topic_tags)
    assert japanese.emotion_tags == ["worry"]
    assert (await alice.lookup(str(japanese.key)))[0].id == japanese.id
    assert len(by_session[make_session_id("huge")].summary) <= 700
    same = by_session[make_session_id("same time")]
    assert same.starts_timestamp == same.ends_timestamp
    backwards = by_session[make_session_id("backwards")]
    assert backwards.starts_timestamp is not None
    assert backwards.ends_timestamp is not None
    assert backwards.ends_timestamp - backwards.starts_timestamp == timedelta(minutes=9)
    assert (await run_dreams(rem, alice, rescan=True)).statement_count == 0


async def test_new_messages_extend_only_the_last_moment(rem: Rem, alice: Store, sql: Sql) -> None:
    await store_session(alice, "grows", *_MIGRATION)
    await store_session(alice, "grows", *_GARDEN, at=MARCH + 3 * _HOUR, first=3)
    await run_dreams(rem, alice)
    before = await list_moments(alice)
    await store_session(
        alice,
        "grows",
        "user: The copper spray arrived, 5 litres of it.",
        at=MARCH + 3 * _HOUR + 4 * _HOUR / 60,
        first=6,
    )
    report = await run_dreams(rem, alice)
    after = await list_moments(alice)
    assert [(m.id, m.name) for m in after] == [(m.id, m.name) for m in before]
    assert after[0].updated_at == before[0].updated_at
    assert after[1].metadata["last_index"] == 6
    assert "5 litres" in after[1].summary
    assert report.changes["moments"].rows["row"] == 1
    stored = await fetch_statement_rows(sql)
    assert (await run_dreams(rem, alice)).run_id is None
    assert (await run_dreams(rem, alice, rescan=True)).statement_count == 0
    assert await fetch_statement_rows(sql) == stored


async def test_many_runs_and_one_run_give_the_same_moments(rem: Rem, alice: Store, bob: Store) -> None:
    lines = [*_MIGRATION, *_GARDEN, *_MIGRATION[:1], "assistant: Noted."] * 3
    lines = [f"{line} ({number})" for number, line in enumerate(lines)]
    await store_session(alice, "slowly", *lines[:1])
    for number in range(1, len(lines)):
        await run_dreams(rem, alice)
        await store_session(alice, "slowly", lines[number], at=MARCH + timedelta(minutes=number), first=number)
    await run_dreams(rem, alice)
    slowly = [
        (m.summary, m.topic_tags, m.metadata["first_index"], m.metadata["last_index"])
        for m in await list_moments(alice)
    ]
    await run_dreams(rem, alice, rescan=True)
    at_once = [
        (m.summary, m.topic_tags, m.metadata["first_index"], m.metadata["last_index"])
        for m in await list_moments(alice)
    ]
    assert at_once == slowly
    assert len(slowly) >= 2


async def test_moments_are_linked_in_the_order_of_time(rem: Rem, alice: Store) -> None:
    await store_session(alice, "first", *_MIGRATION)
    await store_session(alice, "third", *_GARDEN, at=MARCH + timedelta(days=2))
    await run_dreams(rem, alice)
    await store_session(
        alice, "second", "user: My visa for Japan arrived, the flight leaves on 9 May.", at=MARCH + timedelta(days=1)
    )
    await run_dreams(rem, alice)
    one, two, three = await list_moments(alice)
    assert one.previous_moment_keys == []
    assert two.previous_moment_keys == [one.key]
    assert three.previous_moment_keys == [two.key]
    walked = await rem.for_user("alice@example.com").query(f'TRAVERSE follows FROM "{three.key}" DEPTH 2')
    assert [row.key for row in walked.hits] == [two.key, one.key]
    await rem.for_user("alice@example.com").sessions.delete_session(make_session_id("second"))
    one, three = await list_moments(alice)
    assert three.previous_moment_keys == []
    await run_dreams(rem, alice)
    assert (await list_moments(alice))[1].previous_moment_keys == [one.key]


async def test_dated_notes_and_files_are_moments_but_chunks_are_not(rem: Rem, alice: Store) -> None:
    await alice.upsert(
        Resource(
            name="Standup notes", content="Priya ships the churn dashboard for the Nordic region.", timestamp=MARCH
        )
    )
    await alice.upsert(Resource(name="Timeless", content="Water boils at 100 degrees at sea level in a kettle."))
    file = await alice.upsert(File(name="manual.pdf", processing_status="completed"))
    chunks = [
        Resource(
            name=f"manual.pdf {number}",
            ordinal=number,
            content=f"Chapter {number} explains the hydraulic press and its {number + 3} safety valves.",
            timestamp=MARCH,
            metadata={"file_id": str(file.id)},
        )
        for number in range(5)
    ]
    await alice.upsert_many(chunks)
    await run_dreams(rem, alice)
    note, reading = await list_moments(alice)
    assert (note.moment_type, note.name) == ("note", "2026-03-14 Standup notes")
    assert (reading.moment_type, reading.summary[:16]) == ("reading", "Read manual.pdf:")
    walked = await rem.for_user("alice@example.com").query(f'TRAVERSE derived_from FROM "{note.key}"')
    assert [row.key for row in walked.hits] == ["standup-notes"]
    await alice.delete(file)
    assert [moment.id for moment in await list_moments(alice)] == [note.id]


_MAIL = """From: Tom Miller <tom@harbor.example>
To: {to}
Date: Mon, 02 Mar 2026 09:30:00 +0100
Subject: New anodes
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/plain

The anodes of the Albatross are worn, we replace them in April.
--x
Content-Type: text/csv
Content-Disposition: attachment; filename=prices.csv

Part,price
anode,12
--x--
"""


@pytest.mark.parametrize("recipients", [1, 30])
async def test_mail_moment_has_subject_body_and_date_of_the_mail(rem: Rem, alice: Store, recipients: int) -> None:
    to = ", ".join(f"Reader Number{number} <reader{number}@harbor.example>" for number in range(recipients))
    file = FetchedFile("anodes.eml", "file:///anodes.eml", _MAIL.format(to=to).replace("\n", "\r\n").encode())
    assert (await rem.for_user("alice@example.com").ingester().ingest(file)).status == "added"
    await run_dreams(rem, alice)
    (mail,) = await list_moments(alice)
    assert mail.summary == "Mail New anodes: The anodes of the Albatross are worn, we replace them in April."
    assert (mail.moment_type, mail.name) == ("mail", "2026-03-02 mail New anodes")
    assert mail.starts_timestamp == datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
    assert "anodes" in mail.topic_tags
    assert not {"reader", "part", "price"} & set(mail.topic_tags)
    assert "occurrences" not in mail.metadata


async def test_chunk_and_file_count_as_one_occurrence(rem: Rem, alice: Store) -> None:
    text = "Priya ships the churn dashboard for the Nordic region on Friday the 13th of March."
    file = await alice.upsert(File(name="plan.md", processing_status="completed"))
    await alice.upsert(Resource(name="plan.md#1", content=text, metadata={"file_id": str(file.id)}))
    await run_dreams(rem, alice)
    assert [moment.metadata for moment in await list_moments(alice)] == [{"is_extract": True}]
    await alice.upsert(Resource(name="Standup", content=f"Read plan.md: {text}", timestamp=MARCH))
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    assert moment.metadata["occurrences"] == 2


async def test_bulk_import_gives_no_moments(rem: Rem, alice: Store) -> None:
    for number in range(25):
        file = await alice.upsert(File(name=f"page {number}.md", processing_status="completed"))
        text = f"Page {number} is about lighthouse number {number} and its keepers on the Fastnet rock."
        await alice.upsert(Resource(name=f"page {number}", content=text, metadata={"file_id": str(file.id)}))
    await run_dreams(rem, alice)
    assert await list_moments(alice) == []


async def test_moment_deleted_by_owner_never_comes_back(rem: Rem, alice: Store) -> None:
    await store_session(alice, "unwanted", *_GARDEN)
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    await alice.delete(moment)
    await run_dreams(rem, alice)
    await store_session(alice, "unwanted", "user: The tomato leaves look better today.", at=MARCH + _HOUR / 4, first=3)
    await run_dreams(rem, alice)
    await run_dreams(rem, alice, rescan=True)
    assert await list_moments(alice) == []
    await store_session(alice, "unwanted", "user: My visa for Japan arrived by courier.", at=MARCH + 9 * _HOUR, first=4)
    await run_dreams(rem, alice)
    assert [m.summary for m in await list_moments(alice)] == ["My visa for Japan arrived by courier."]


async def test_moment_corrected_by_owner_stays_corrected(rem: Rem, alice: Store) -> None:
    await store_session(alice, "wrong", *_GARDEN)
    await run_dreams(rem, alice)
    (moment,) = await list_moments(alice)
    await alice.modify(Moment, moment.id, lambda m: m.model_copy(update={"summary": "The potatoes had blight."}))
    await store_session(
        alice, "wrong", "user: The copper spray arrived, 5 litres of it.", at=MARCH + _HOUR / 4, first=3
    )
    await run_dreams(rem, alice)
    await run_dreams(rem, alice, rescan=True)
    (corrected,) = await list_moments(alice)
    assert (corrected.id, corrected.summary, corrected.origin) == (moment.id, "The potatoes had blight.", "user")


async def test_shared_notes_give_shared_moments(rem: Rem, alice: Store, shared: Store) -> None:
    await shared.upsert(
        Resource(name="Release party", content="The team shipped release 2.0 of the pump controller.", timestamp=MARCH)
    )
    await run_dreams(rem, shared)
    (moment,) = await list_moments(shared)
    assert moment.user_id is None
    seen = await rem.for_user("alice@example.com").query(f'LOOKUP "{moment.key}"')
    assert seen.count == 1
    await store_session(alice, "private", *_GARDEN)
    await run_dreams(rem, shared)
    assert len(await list_moments(shared)) == 1


async def test_moments_are_private(rem: Rem, alice: Store, bob: Store) -> None:
    await store_session(alice, "private", *_GARDEN)
    await run_dreams(rem, alice)
    await run_dreams(rem, bob)
    assert await list_moments(bob) == []
    (moment,) = await list_moments(alice)
    assert (await rem.for_user("bob@example.com").query(f'LOOKUP "{moment.key}"')).count == 0


async def test_moments_without_embeddings_are_compared_by_words(settings: Settings, sql: Sql) -> None:
    changed = Settings.model_validate({**settings.model_dump(), "embedding": {"provider": "none"}})
    async with Rem.open(changed) as rem:
        alice = rem.for_user("alice@example.com").store
        await store_session(alice, "words", *_MIGRATION, *_GARDEN)
        await store_session(alice, "words again", *_GARDEN, at=MARCH + timedelta(days=3))
        await run_dreams(rem, alice)
        found = [(m.metadata["first_index"], m.metadata["last_index"]) for m in await list_moments(alice)]
        assert found == [(0, 2), (3, 5)]
        stored = await fetch_moments_content(sql)
        assert (await run_dreams(rem, alice, rescan=True)).statement_count == 0
        assert await fetch_moments_content(sql) == stored


def test_date_in_name_is_utc() -> None:
    from rem.dreams.moments.draft import make_name

    assert make_name(datetime(2026, 3, 14, 23, 30, tzinfo=UTC), "A topic.") == "2026-03-14 A topic"


@pytest.mark.parametrize(
    ("sentence", "headline"),
    [
        ("We live in Ghent, in the flat on Visserij 88, third floor.", "We live in Ghent"),
        ("Ok, so by the way the landlord finally answered.", "The landlord finally answered"),
        ("My check-up's with Dr. Verhaegen on Thursday at 15:30.", "My check-up's with Dr. Verhaegen on Thursday"),
        ("The budget is 9,200 euros for the stand in the hall.", "The budget is 9,200 euros for the stand"),
        ("We got the house in Bruges!!!", "We got the house in Bruges"),
        ("Ok.", "Ok"),
        ("会議は来週です。", "会議は来週です"),
        ("x" * 500, "X" + "x" * 59),
    ],
)
def test_headline_is_what_a_person_would_write(sentence: str, headline: str) -> None:
    from rem.dreams.moments.draft import make_headline

    assert make_headline(sentence) == headline
