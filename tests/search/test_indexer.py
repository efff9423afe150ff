"""The indexer keeps passages, statistics and vectors in step with the rows."""

from __future__ import annotations

import asyncio
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from rem import Message, Rem, Resource, Session
from rem.db.sql import fill, query
from rem.db.store import Store
from rem.errors import EmbeddingDisabledError, EmbeddingMismatchError
from rem.search.embedder_factory import try_open_embedder
from rem.search.indexer import IndexBacklog, Indexer, IndexReport
from rem.settings import EmbeddingSettings, Settings
from tests.search.embedders.scripted_server import Reply, ScriptedServer

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def _passages(sql: Sql) -> int:
    return int(await sql.fetchval("SELECT count(*) FROM passages"))


async def _statistics(sql: Sql) -> tuple[dict[int, int], dict[tuple[str | None, str | None, str], int]]:
    """Return counts plus deltas, as a search reads them."""
    terms = await sql.fetch(
        "SELECT term, sum(passages)::bigint FROM (SELECT term, passages FROM term_counts UNION ALL "
        "SELECT term, passages FROM term_count_deltas) t GROUP BY term HAVING sum(passages) <> 0"
    )
    totals = await sql.fetch(
        "SELECT owner, language, entity_type, sum(passages)::bigint FROM (TABLE passage_totals UNION ALL "
        "TABLE passage_total_deltas) t GROUP BY 1, 2, 3 HAVING sum(passages) <> 0"
    )
    return {row[0]: row[1] for row in terms}, {(row[0], row[1], row[2]): row[3] for row in totals}


async def _true_statistics(sql: Sql) -> tuple[dict[int, int], dict[tuple[str | None, str | None, str], int]]:
    """Return the same statistics, counted in the passages."""
    terms = await sql.fetch(
        "SELECT t.term, count(*) FROM passages p, rem_sparse_terms(p.terms) t "
        "WHERE rem_is_counted(p.kind, p.position) GROUP BY t.term"
    )
    totals = await sql.fetch(
        "SELECT owner, language, entity_type, "
        "count(*) FILTER (WHERE owner IS NOT NULL OR rem_is_counted(kind, position)) AS passages FROM passages "
        "GROUP BY entity_type, GROUPING SETS (owner, language)"
    )
    return {row[0]: row[1] for row in terms}, {(row[0], row[1], row[2]): row[3] for row in totals}


async def test_new_row_is_in_the_backlog_until_indexed(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Tea", content="Sencha is brewed at eighty degrees."))
    assert await rem.index_backlog() == IndexBacklog(rows=1, passages=0)
    assert await rem.for_user("alice@example.com").index() == IndexReport(rows=1, passages=1, embedded=1)
    assert await rem.index_backlog() == IndexBacklog(rows=0, passages=0)
    assert await rem.index() == IndexReport(rows=0, passages=0, embedded=0)


async def test_index_of_one_scope_leaves_others_in_the_backlog(
    rem: Rem, alice: Store, bob: Store, shared: Store
) -> None:
    for store in (alice, bob, shared):
        await store.upsert(Resource(name="Tea", content="Sencha"))
    assert (await rem.for_user("alice@example.com").index()).rows == 2
    assert (await rem.index_backlog()).rows == 1


async def test_changed_text_replaces_passages(rem: Rem, alice: Store, sql: Sql) -> None:
    tea = await alice.upsert(Resource(name="Tea", content="Sencha. " * 400))
    await rem.index()
    assert await _passages(sql) > 1
    await alice.modify(Resource, tea.id, lambda row: row.model_copy(update={"content": "Matcha"}))
    assert await _passages(sql) == 0
    assert await rem.index() == IndexReport(rows=1, passages=1, embedded=1)


async def test_change_of_another_field_keeps_passages(rem: Rem, alice: Store, sql: Sql) -> None:
    tea = await alice.upsert(Resource(name="Tea", content="Sencha"))
    await rem.index()
    before = await sql.fetchval("SELECT id FROM passages")
    await alice.modify(Resource, tea.id, lambda row: row.model_copy(update={"category": "drink"}))
    assert not await rem.index_backlog()
    assert await sql.fetchval("SELECT id FROM passages") == before


@pytest.mark.parametrize("is_indexed", [True, False])
async def test_deleted_row_loses_passages_and_restored_row_gets_them_back(
    rem: Rem, alice: Store, sql: Sql, is_indexed: bool
) -> None:
    tea = await alice.upsert(Resource(name="Tea", content="Sencha"))
    if is_indexed:
        await rem.index()
    await alice.delete(tea)
    await rem.index()
    assert await _passages(sql) == 0
    await alice.restore(Resource, tea.id)
    await rem.index()
    assert await _passages(sql) == 1
    await alice.erase(tea)
    assert await _passages(sql) == 0


async def test_deleted_session_deletes_passages_of_its_messages(rem: Rem, alice: Store, sql: Sql) -> None:
    session = await alice.upsert(Session(name="Talk"))
    await alice.upsert(Message(session_id=session.id, message_index=0, role="user", content="I like tea."))
    await rem.index()
    assert await _passages(sql) == 2
    await alice.delete(session)
    assert await _passages(sql) == 0


async def test_deletion_during_indexing_wins(rem_without_embedder: Rem, sql: Sql) -> None:
    alice = rem_without_embedder.for_user("alice").store
    rows = [Resource(name=f"Tea {number}", content="Sencha " * 50) for number in range(300)]
    await alice.upsert_many(rows)

    async def delete_all() -> None:
        for row in rows[:60]:
            await alice.erase(row)

    await asyncio.gather(rem_without_embedder.index(), rem_without_embedder.index(), delete_all())
    await rem_without_embedder.index()
    assert await _passages(sql) == 240
    assert await _statistics(sql) == await _true_statistics(sql)


async def test_locked_row_is_indexed_after_its_transaction(rem: Rem, alice: Store, sql: Sql) -> None:
    tea = await alice.upsert(Resource(name="Tea", content="Sencha"))
    async with sql.transaction():
        await sql.execute("UPDATE resources SET category = 'drink' WHERE id = $1", tea.id)
        # The indexer does not wait for the writer, and the row stays in the queue.
        assert (await asyncio.wait_for(rem.index(), 10)).passages == 0
    assert (await rem.index_backlog()).rows == 1
    assert (await rem.index()).passages == 1


async def test_failed_transaction_leaves_no_backlog(rem: Rem, alice: Store) -> None:
    with pytest.raises(RuntimeError):
        async with alice.transaction() as transaction:
            await transaction.upsert(Resource(name="Tea", content="Sencha"))
            raise RuntimeError
    assert not await rem.index_backlog()


async def test_statistics_are_correct_after_all_kinds_of_writes(rem: Rem, alice: Store, bob: Store, sql: Sql) -> None:
    for store in (alice, bob):
        await store.upsert_many(Resource(name=f"Tea {number}", content=f"Sencha {number} tea") for number in range(20))
    await rem.index()
    first = await alice.lookup("tea-1")
    await alice.delete(first[0])
    await alice.upsert(Resource(name="Tea 2", content="Matcha", metadata={"language": "german"}))
    await rem.index()
    await sql.execute("DELETE FROM resources WHERE user_id IS NOT NULL AND name = 'Tea 3'")
    await sql.execute("UPDATE resources SET content = 'Oolong' WHERE name = 'Tea 4'")
    assert await _statistics(sql) == await _true_statistics(sql)
    await rem.index()
    assert await _statistics(sql) == await _true_statistics(sql)
    await sql.execute("TRUNCATE resources")
    assert await _statistics(sql) == ({}, {})


async def test_words_are_stemmed_in_the_language_of_the_row(rem: Rem, alice: Store, sql: Sql) -> None:
    await alice.upsert(Resource(name="A", content="houses", metadata={"language": "english"}))
    await alice.upsert(Resource(name="B", content="Häuser", metadata={"language": "german"}))
    await alice.upsert(Resource(name="C", content="tlhIngan", metadata={"language": "klingon"}))
    await rem.index()
    languages = await sql.fetch("SELECT r.name, p.language FROM passages p JOIN resources r ON r.id = p.entity_id")
    assert {row[0]: row[1] for row in languages} == {"A": "english", "B": "german", "C": "english"}
    result = await rem.for_user("alice@example.com").query('SEARCH "Haus" MODE text')
    assert [row["key"] for row in result.list_rows()] == ["b"]


@pytest.mark.slow
async def test_text_of_ten_megabytes_is_found_to_its_end(rem_without_embedder: Rem) -> None:
    words = "The quick brown fox jumps over the lazy dog and runs away. " * 170_000
    await rem_without_embedder.for_user("alice").store.upsert(
        Resource(name="Long", content=words + "The password of the archive is tangerine.")
    )
    assert (await rem_without_embedder.index()).passages > 10_000
    result = await rem_without_embedder.for_user("alice").query('SEARCH "tangerine" LIMIT 1')
    hit = result.list_rows()[0]
    assert "tangerine" in hit["record"]["content"][hit["passage"]["start"] : hit["passage"]["end"]]


def _embedding_service(server: ScriptedServer, settings: Settings, model: str, dimension: int) -> Settings:
    embedding = EmbeddingSettings.model_validate(
        {"provider": "openai", "model": model, "dimension": dimension, "base_url": server.url, "max_retries": 0}
    )
    return settings.model_copy(update={"embedding": embedding})


def _vectors(dimension: int) -> Reply:
    def embed(body: dict[str, list[str]]) -> object:
        vectors = [[1.0, float(len(text) % 7), *[0.5] * (dimension - 2)] for text in body["input"]]
        return {"data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]}

    return Reply(embed)


async def test_row_stays_in_backlog_while_embedding_service_is_down(settings: Settings) -> None:
    async with ScriptedServer() as server:
        server.set_script(Reply(b"out of order", 500))
        async with Rem.open(_embedding_service(server, settings, "small", 4)) as rem:
            await rem.for_user("alice").store.upsert(Resource(name="Tea", content="Sencha"))
            result = await rem.for_user("alice").query('SEARCH "sencha"')
            assert [row["key"] for row in result.list_rows()] == ["tea"]
            assert result.has_note("words_only")
            assert await rem.index_backlog() == IndexBacklog(rows=0, passages=1)
            server.set_script(_vectors(4))
            server.requests.clear()
            result = await rem.for_user("alice").query('SEARCH "sencha"')
            assert result.notes == ()
            assert result.list_rows()[0]["similarity"] > 0
            assert not await rem.index_backlog()


async def test_other_model_is_rejected_until_reembedded(settings: Settings) -> None:
    async with ScriptedServer() as server:
        server.set_script(_vectors(4))
        async with Rem.open(_embedding_service(server, settings, "small", 4)) as rem:
            await rem.for_user("alice").store.upsert_many(
                Resource(name=f"Tea {number}", content=f"Sencha {number}") for number in range(5)
            )
            await rem.index()
        server.set_script(_vectors(6))
        server.requests.clear()
        async with Rem.open(_embedding_service(server, settings, "large", 6)) as rem:
            with pytest.raises(EmbeddingMismatchError, match="rem db reembed"):
                await rem.for_user("alice").query('SEARCH "sencha"')
            await rem.for_user("alice").store.upsert(Resource(name="Tea 6", content="Sencha 6"))
            with pytest.raises(EmbeddingMismatchError, match="rem db reembed"):
                await rem.index()
            assert (await rem.for_user("alice").query('SEARCH "sencha" MODE text')).count == 6
            assert await rem.switch_model() == 5
            # Until they are embedded again, they are found by their words.
            assert (await rem.for_user("alice").query('SEARCH "sencha"')).count == 6
            assert await rem.reembed() == 5
            assert await rem.reembed() == 0
            await rem.index()
            result = await rem.for_user("alice").query('SEARCH "sencha" MODE vector MIN_SIMILARITY 0')
            assert result.count == 6


async def test_interrupted_reembedding_resumes(settings: Settings, sql: Sql) -> None:
    async with ScriptedServer() as server:
        server.set_script(_vectors(4))
        async with Rem.open(_embedding_service(server, settings, "small", 4)) as rem:
            await rem.for_user("alice").store.upsert_many(
                Resource(id=uuid4(), name=f"Tea {number}", content=f"Sencha {number}") for number in range(600)
            )
            await rem.index()
        server.requests.clear()
        # One call to try the model, four for the first batch.
        server.set_script(*[_vectors(6)] * 5, Reply(b"", 500))
        async with Rem.open(_embedding_service(server, settings, "large", 6)) as rem:
            with pytest.raises(Exception, match="embed"):
                await rem.reembed()
            left = await sql.fetchval("SELECT count(*) FROM passages WHERE vector_dims(embedding::vector) = 4")
            assert 0 < left < 600
            server.requests.clear()
            server.set_script(_vectors(6))
            assert await rem.reembed() == left


async def test_queue_entry_is_taken_once_with_any_plan(rem_without_embedder: Rem, sql: Sql) -> None:
    store = rem_without_embedder.for_user("alice").store
    await store.upsert(Resource(name="First", content="meerkat"))
    await sql.execute("VACUUM ANALYZE search_queue")
    for number in range(20):
        await store.upsert(Resource(name=f"Meerkat {number}", content="meerkat"))
    assert (await rem_without_embedder.index()).rows == 21
    assert (await rem_without_embedder.for_user("alice").query('SEARCH "meerkat" LIMIT 50')).count == 21


@pytest.mark.parametrize("speaker", [" ", "", "\u00a0", 42, ["x"], None])
async def test_any_speaker_can_be_indexed(rem_without_embedder: Rem, speaker: object) -> None:
    await rem_without_embedder.for_user().store.upsert(
        Resource(name="Pill", content="x", metadata={"speaker": speaker})
    )
    assert (await rem_without_embedder.index()).rows == 1


async def test_invisible_title_does_not_block_indexing(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="\u2066" * 201 + "hello", content=""))
    await alice.upsert(Resource(name="Tea", content="Sencha"))
    assert [row["key"] for row in (await rem.for_user("alice@example.com").query('SEARCH "sencha"')).list_rows()] == [
        "tea"
    ]
    assert not await rem.index_backlog()


async def test_stored_mean_is_the_mean_of_all_vectors(settings: Settings, sql: Sql) -> None:
    async with ScriptedServer() as server:
        server.set_script(_vectors(4))
        async with Rem.open(_embedding_service(server, settings, "small", 4)) as rem:
            await rem.for_user("alice").store.upsert_many(
                Resource(name=f"Tea {number}", content="s" * (1 if number < 300 else 4)) for number in range(600)
            )
            await rem.index()
    distance = await sql.fetchval(
        "SELECT (SELECT mean FROM embedding_means) <-> (SELECT avg(embedding) FROM passages WHERE owner = 'alice')"
    )
    assert distance < 0.02


async def test_words_of_deleted_message_find_nothing(rem: Rem, alice: Store) -> None:
    session = await alice.upsert(Session(name="Talk"))
    messages = [
        await alice.upsert(
            Message(session_id=session.id, message_index=index, role="user", content=text, metadata={"speaker": "Ann"})
        )
        for index, text in enumerate(["my code is wildebeest", "thanks a lot, dear friend", "you are welcome"])
    ]
    query = 'SEARCH "wildebeest" FROM messages MODE text'
    assert (await rem.for_user("alice@example.com").query(query)).count == 3
    await alice.delete(messages[0])
    assert (await rem.for_user("alice@example.com").query(query)).count == 0
    await alice.restore(Message, messages[0].id)
    assert (await rem.for_user("alice@example.com").query(query)).count >= 1
    await alice.erase(messages[0])
    assert (await rem.for_user("alice@example.com").query(query)).count == 0


async def test_failing_embedder_does_not_become_the_current_model(
    rem: Rem, alice: Store, rem_without_embedder: Rem
) -> None:
    await alice.upsert(Resource(name="Tea", content="Sencha"))
    await rem.index()
    with pytest.raises(EmbeddingDisabledError):
        await rem_without_embedder.reembed()
    assert (await rem.for_user("alice@example.com").query('SEARCH "sencha"')).notes == ()


@pytest.mark.parametrize("length", [1e-9, 1e6])
async def test_vectors_of_any_length_are_compared_by_direction(settings: Settings, length: float) -> None:
    def embed(body: dict[str, list[str]]) -> object:
        return {"data": [{"index": i, "embedding": [length, length]} for i, _ in enumerate(body["input"])]}

    async with ScriptedServer() as server:
        server.set_script(Reply(embed))
        async with Rem.open(_embedding_service(server, settings, "small", 2)) as rem:
            await rem.for_user("alice").store.upsert(Resource(name="Tea", content="Sencha"))
            result = await rem.for_user("alice").query('SEARCH "green" MODE vector')
            assert result.list_rows()[0]["similarity"] == pytest.approx(1, abs=0.001)


async def test_newest_passages_are_embedded_first_without_any_time_left(
    rem: Rem, settings: Settings, alice: Store, sql: Sql
) -> None:
    for number in range(6):
        await alice.upsert(Resource(name=f"Note {number}", content=f"The boat has number {number}."))
    indexer = Indexer(rem.database, try_open_embedder(settings), "english")
    assert await indexer.make_passages(alice.scope, at_most=2) == (2, 2)
    assert await indexer.embed(alice.scope, seconds=0) == 2
    embedded = await sql.fetch(
        "SELECT r.name FROM passages p JOIN resources r ON r.id = p.entity_id WHERE p.embedding IS NOT NULL ORDER BY 1"
    )
    assert [row["name"] for row in embedded] == ["Note 4", "Note 5"]


async def test_passages_without_embedding_are_found_by_their_index(alice: Store, sql: Sql) -> None:
    """Check that old planner statistics do not lead to a scan of all passages in each search."""
    await sql.execute(
        """INSERT INTO passages (tenant_id, owner, entity_type, entity_id, field, starts, ends, language, prior,
             tells_time, terms)
           SELECT 'default', $1, 'resources', gen_random_uuid(), 'content', 0, 1, 'english', 0, false, '{1:1}/1000000'
           FROM generate_series(1, 5000)""",
        alice.scope.user_id,
    )
    await sql.execute("ANALYZE passages")
    parameters = "default", ["", alice.scope.user_id], list[int](), 100
    for order in ("ASC", "DESC"):
        statement = fill(query("search/passages", "passages_without_embedding"), order=order)
        plan = await sql.fetch(f"EXPLAIN {statement}", *parameters)
        assert "passages_without_embedding" in "\n".join(row[0] for row in plan)
