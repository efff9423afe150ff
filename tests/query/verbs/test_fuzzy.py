"""FUZZY returns similar keys, then similar summaries, in every script and within the scope."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Message, Moment, Resource, Session, User
from rem.models.field_types import utc_now
from rem.query.tree import Fuzzy
from tests.query.stub_executor import query_keys, run_query


async def test_short_text_matches_the_key_it_begins(shared: Store) -> None:
    await shared.upsert(User(name="Sarah Chen"))
    result = await run_query(shared, 'FUZZY "sara" THRESHOLD 0.7')
    assert result.verb == "FUZZY"
    (row,) = result.list_rows()
    assert (row["table"], row["key"], row["score"], row["matched"]) == ("users", "sarah-chen", 0.8, "key")
    assert row["record"]["name"] == "Sarah Chen"
    assert await query_keys(shared, 'FUZZY "sara" THRESHOLD 0.8') == ["sarah-chen"]
    assert await query_keys(shared, 'FUZZY "sara" THRESHOLD 0.81') == []
    assert [step.name for step in result.steps] == ["parse", "fuzzy"]


async def test_key_matches_come_before_summary_matches_best_first(alice: Store) -> None:
    await alice.upsert(Resource(name="note", content="Met Marcus Antonius in the forum."))
    await alice.upsert(Resource(name="marcos-antonis", content="Nothing alike here."))
    await alice.upsert(Resource(name="marcus-antonius", content="Nothing alike here."))
    result = await run_query(alice, "FUZZY Marcus Antonius")
    assert [(row["key"], row["matched"]) for row in result.list_rows()] == [
        ("marcus-antonius", "key"),
        ("marcos-antonis", "key"),
        ("note", "summary"),
    ]
    scores = [row["score"] for row in result.list_rows()]
    assert scores[0] == scores[2] == 1.0
    assert 0.5 <= scores[1] < 1.0


async def test_questions_and_own_answers_are_found_only_in_their_table(alice: Store) -> None:
    session = await alice.upsert(Session(name="talk"))
    said = {
        "Clara Nygaard is the new boss.": {"role": "user", "kind": "statement"},
        "Who is Clara Nygaard?": {"role": "user", "kind": "question"},
        "Noted: Clara Nygaard is the new boss.": {"role": "assistant", "kind": "answer", "model": "rem:local"},
        "Clara Nygaard leads the team.": {"role": "assistant", "kind": "answer", "model": "openai:gpt-4o"},
    }
    await alice.upsert_many(
        Message(session_id=session.id, message_index=index, content=text, **columns)
        for index, (text, columns) in enumerate(said.items())
    )
    found = [row["record"]["content"] for row in (await run_query(alice, 'FUZZY "clara nygard"')).list_rows()]
    assert sorted(found) == ["Clara Nygaard is the new boss.", "Clara Nygaard leads the team."]
    assert len(await query_keys(alice, 'FUZZY "clara nygard" FROM messages')) == len(said)


async def test_similarity_of_whole_key_breaks_ties(alice: Store) -> None:
    await alice.upsert_many([Resource(name=name) for name in ("sarah chen notes", "sarah", "sarah chen")])
    assert await query_keys(alice, "FUZZY sarah") == ["sarah", "sarah-chen", "sarah-chen-notes"]


async def test_limit_counts_keys_and_summaries_together(alice: Store) -> None:
    await alice.upsert_many([Resource(name=f"alpha {n}", content="nothing") for n in range(3)])
    await alice.upsert_many([Resource(name=f"zzz {n}", content="the alpha version") for n in range(9)])
    assert await query_keys(alice, "FUZZY alpha LIMIT 2") == ["alpha-0", "alpha-1"]
    five = (await run_query(alice, "FUZZY alpha")).list_rows()
    assert [row["matched"] for row in five] == ["key"] * 3 + ["summary"] * 2
    assert len(await query_keys(alice, "FUZZY alpha LIMIT 100")) == 12


async def test_entity_with_several_keys_is_returned_once(shared: Store) -> None:
    await shared.upsert(User(name="Sarah Chen", email="sarah.chen@example.com", summary="Knows typesetting."))
    (row,) = (await run_query(shared, "FUZZY sarah.chen@exampel.com THRESHOLD 0.4")).list_rows()
    assert (row["key"], row["matched_key"]) == ("sarah-chen", "sarah.chen@example.com")
    by_summary = (await run_query(shared, "FUZZY typesetting")).list_rows()
    assert [(row["key"], row["matched"], row["matched_key"]) for row in by_summary] == [("sarah-chen", "summary", None)]


async def test_table_restricts_matches_and_unknown_table_is_an_error(alice: Store) -> None:
    await alice.upsert(Resource(name="Apollo", content="a mission"))
    await alice.upsert(Moment(name="Apollo Eleven", summary="a mission"))
    assert await query_keys(alice, "FUZZY apolo FROM moments") == ["apollo-eleven"]
    assert await query_keys(alice, "FUZZY mission FROM resources") == ["apollo"]
    with pytest.raises(InvalidInputError, match=r"Did you mean 'moments'\?"):
        await run_query(alice, "FUZZY apolo FROM moment")


async def test_fuzzy_finds_only_rows_of_the_scope(alice: Store, bob: Store, shared: Store, rem: Rem) -> None:
    await bob.upsert(Resource(name="secret plan", content="secret plan"))
    await rem.for_user("alice@example.com", tenant="elsewhere").store.upsert(Resource(name="secret plan"))
    assert await query_keys(alice, "FUZZY 'secret plan' THRESHOLD 0") == []
    await shared.upsert(Resource(name="secret plans"))
    await alice.upsert(Resource(name="secret plans"))
    owners = [row["record"]["user_id"] for row in (await run_query(alice, "FUZZY secret plan")).list_rows()]
    assert owners == [alice.scope.user_id, None]
    assert [row["record"]["user_id"] for row in (await run_query(shared, "FUZZY secret plan")).list_rows()] == [None]


async def test_deleted_and_expired_rows_are_not_found(alice: Store) -> None:
    await alice.delete(await alice.upsert(Resource(name="harbour one", content="harbour")))
    await alice.upsert(Resource(name="harbour two", content="harbour", expires_at=utc_now() - timedelta(seconds=1)))
    await alice.upsert(Resource(name="harbour three", expires_at=utc_now() + timedelta(hours=1)))
    assert await query_keys(alice, "FUZZY harbour") == ["harbour-three"]


_SCRIPTS = {
    "zoe muller": "Zoë Müller",
    "Dörte Größe": "Dorte Grosse",
    "lodz strasse": "Łódź Straße",
    "日本語": "日本語のメモ",
    "東京タワ": "東京タワー",
    "Ивана Петрова": "Иван Петров",
    "ελληνικος φακελοσ": "Ελληνικός φάκελος",
    "한국어": "한국어 문서",
    "مرحبا": "مرحبا بالعالم",
}


async def test_all_scripts_are_compared(alice: Store) -> None:
    await alice.upsert_many([Resource(name=name) for name in (*_SCRIPTS.values(), "Something else", "Марина 語 다른")])
    await alice.upsert_many(
        [Moment(name=f"m {text}", summary=f"On {name}, and more.") for text, name in _SCRIPTS.items()]
    )
    for text, name in _SCRIPTS.items():
        assert await query_keys(alice, f'FUZZY "{text}" FROM resources') == [await alice.normalize_key(name)], text
        by_summary = [
            row
            for row in (await run_query(alice, f'FUZZY "{name}" FROM moments')).list_rows()
            if row["matched"] == "summary"
        ]
        assert [row["key"] for row in by_summary] in ([await alice.normalize_key(f"m {text}")], []), text
        assert await alice.normalize_key(f"m {text}") in await query_keys(alice, f'FUZZY "{name}" FROM moments'), text


async def test_key_without_letters_matches_itself(alice: Store) -> None:
    await alice.upsert_many([Resource(name=name) for name in ("🎉🎉", "→", "a", "...", "?!")])
    assert await query_keys(alice, 'FUZZY "→"') == ["→"]
    assert await query_keys(alice, 'FUZZY "🎉🎉"') == ["🎉🎉"]
    assert await query_keys(alice, "FUZZY a") == ["a"]
    assert await query_keys(alice, 'FUZZY "..."') == await query_keys(alice, 'FUZZY "…"') == ["..."]
    assert await query_keys(alice, 'FUZZY "?!"') == ["?!"]


async def test_odd_texts_find_nothing_quickly(alice: Store) -> None:
    await alice.upsert_many([Resource(name=f"entity {n}", content=f"text {n}") for n in range(200)])
    for text in ("", " ", "-", "%_\\", "'; DROP TABLE rem.kv_store; --", "\u0345\u0308" * 5_000, "😀"):
        result = await asyncio.wait_for(run_query(alice, Fuzzy(text)), timeout=5)
        assert result.count == 0, text
    long = await asyncio.wait_for(run_query(alice, Fuzzy("entity of some kind " * 500)), timeout=5)
    assert [note.code for note in long.notes] == ["query_cut"]
    with pytest.raises(InvalidInputError, match="NUL"):
        await run_query(alice, Fuzzy("a\0b"))


async def test_threshold_zero_matches_any_common_trigram(alice: Store) -> None:
    await alice.upsert_many([Resource(name="abcdef"), Resource(name="xyz")])
    assert await query_keys(alice, "FUZZY abq THRESHOLD 0 LIMIT 100") == ["abcdef"]
    assert await query_keys(alice, "FUZZY abcdef THRESHOLD 1") == ["abcdef"]


async def test_fuzzy_restores_connection_settings(alice: Store) -> None:
    await alice.upsert(Resource(name="sarah"))
    async with alice.executor.transaction() as transaction:
        store = Store(transaction, alice.scope, alice.types)
        async with transaction.connection() as connection:
            await connection.execute("SET LOCAL pg_trgm.word_similarity_threshold = 0.37")
        assert await query_keys(store, "FUZZY sarah THRESHOLD 0.9") == ["sarah"]
        async with transaction.connection() as connection:
            assert await connection.fetchval("SHOW pg_trgm.word_similarity_threshold") == "0.37"
    async with alice.snapshot() as snapshot:
        assert await query_keys(snapshot, "FUZZY sarah THRESHOLD 0.9") == ["sarah"]


async def test_fuzzy_uses_the_index_for_text_and_owner(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    for user in range(20):
        names = (f"{'Sarah' if number < 4 else 'Report'} {user} {number}" for number in range(100))
        await rem.for_user(f"user-{user}").store.upsert_many([Resource(name=name) for name in names])
    # An autovacuum may come at any time. It empties the pending lists of the indexes, which changes their costs.
    await sql.execute("VACUUM ANALYZE kv_store")
    await sql.execute("SET enable_seqscan = off; SET pg_trgm.word_similarity_threshold = 0.5")
    for column in ("entity_key", "content_summary"):
        plan = "\n".join(
            row[0]
            for row in await sql.fetch(
                f"EXPLAIN ANALYZE SELECT FROM kv_store k WHERE rem_owner(k.tenant_id, k.user_id) && "
                f"rem_owner('default', 'user-3') AND 'sara' <% rem_trigram_text(k.{column})"
            )
        )
        name = "kv_store_key_trigrams" if column == "entity_key" else "kv_store_summary_trigrams"
        assert f"Bitmap Index Scan on {name}" in plan
        if column == "entity_key":
            found = re.findall(r"Bitmap Index Scan .* rows=([\d.]+) loops=1", plan)
            assert [float(rows) for rows in found] == [4], (
                "by the owner alone it would find 100 rows, by the text alone 80"
            )


async def test_trigram_text_is_normalised(sql: asyncpg.Connection[asyncpg.Record]) -> None:
    assert await sql.fetchval("SELECT rem_trigram_text('Zoë–Müller’s “Łódź”')") == "zoe muller s  lodz "
    assert await sql.fetchval("SELECT rem_trigram_text('plain ASCII stays')") == "plain ASCII stays"
    letters = await sql.fetchval(
        "SELECT count(DISTINCT rem_ascii(chr(n))) FROM generate_series(x'3041'::int, x'3096'::int) AS n"
    )
    voiced = 86 - letters
    assert voiced < 30, "different kana must become different letters"
    pairs = await sql.fetch("SELECT rem_ascii(chr(n)) AS pair FROM generate_series(x'430'::int, x'44f'::int) AS n")
    first_letters = {row["pair"][0] for row in pairs}
    assert len(first_letters) > 10, "neighbours in an alphabet must not begin alike"
