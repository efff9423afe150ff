"""Searches, indexers and writers that work on the same rows at once never disturb each other."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from rem import Message, Rem, Resource, Session
from rem.db.store import Store
from rem.errors import EmbeddingUnavailableError
from rem.search.indexer import IndexBacklog
from rem.settings import EmbeddingSettings, Settings
from tests.conftest import settings_for
from tests.rem_command import rem as run_command
from tests.search.embedders.scripted_server import Reply, Request, ScriptedServer

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
USER = "alice"
SECONDS = 6.0
SEARCHERS = 8
INDEXERS = 3
WRITERS = 2
ROWS_AT_ONCE = 60
POISON = "zebra"


def _embed(body: dict[str, list[str]]) -> object:
    return {"data": [{"index": place, "embedding": [1.0, 2.0]} for place, _ in enumerate(body["input"])]}


async def test_searches_indexers_and_writers_on_the_same_rows_meet_no_deadlock(dsn: str, sql: Sql) -> None:
    async with ScriptedServer() as service, AsyncExitStack() as stack:
        service.set_script(Reply(_embed))
        settings = _with_service(dsn, service)
        # Each has its own pool, as each process has.
        rems = [await stack.enter_async_context(Rem.open(settings)) for _ in range(INDEXERS + 1)]
        store = rems[0].for_user(USER).store
        end = asyncio.get_running_loop().time() + SECONDS
        numbers = count()
        work: list[Coroutine[None, None, None]] = [
            *(_write(store, random.Random(place), numbers, end) for place in range(WRITERS)),
            _talk(store, end),
            *(_index(rem, end) for rem in rems[1:]),
            *(_search(rems[place % len(rems)], end) for place in range(SEARCHERS)),
        ]
        await asyncio.gather(*work)
        for _ in range(2):
            await rems[0].index()
        assert not await rems[0].index_backlog()
    await sql.execute("SELECT pg_stat_clear_snapshot()")
    assert await sql.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    assert await sql.fetchval("SELECT count(*) FROM passages WHERE embedding IS NOT NULL") > ROWS_AT_ONCE
    assert await sql.fetchval("SELECT rem.rem_count_unindexed_rows()") == 0


def _with_service(dsn: str, server: ScriptedServer) -> Settings:
    embedding = {"provider": "openai", "model": "m", "dimension": 2, "base_url": server.url, "max_retries": 0}
    return settings_for(dsn).model_copy(update={"embedding": EmbeddingSettings.model_validate(embedding)})


async def _write(store: Store, source: random.Random, numbers: Iterator[int], end: float) -> None:
    """Store new rows, and rewrite and delete old ones in any order."""
    known: list[Resource] = []
    while asyncio.get_running_loop().time() < end:
        new = [Resource(name=f"Tea {next(numbers)}", content="Sencha") for _ in range(ROWS_AT_ONCE)]
        await store.upsert_many(new)
        known += new
        changed = source.sample(known, 20)
        await store.upsert_many(Resource(name=row.name, content=f"Sencha {source.random()}") for row in changed)


async def _talk(store: Store, end: float) -> None:
    """Delete messages whose neighbours are indexed: these lose their passages, too."""
    session = await store.upsert(Session(name="Talk"))
    for number in count():
        if asyncio.get_running_loop().time() > end:
            return
        messages = [
            await store.upsert(
                Message(session_id=session.id, message_index=number * 10 + place, role="user", content="I like tea.")
            )
            for place in range(10)
        ]
        await asyncio.gather(*(store.delete(message) for message in messages[::3]))


async def _index(rem: Rem, end: float) -> None:
    while asyncio.get_running_loop().time() < end:
        await rem.index()


async def _search(rem: Rem, end: float) -> None:
    while asyncio.get_running_loop().time() < end:
        result = await rem.for_user(USER).query('SEARCH "sencha"')
        assert not result.has_note("not_indexed")


async def test_search_answers_and_says_so_when_indexing_fails(rem_without_embedder: Rem, sql: Sql) -> None:
    store = rem_without_embedder.for_user(USER).store
    await store.upsert(Resource(name="Old", content="Sencha"))
    await rem_without_embedder.index()
    await store.upsert(Resource(name="New", content="Sencha"))
    for code in ("deadlock_detected", "disk_full", "read_only_sql_transaction", "internal_error", "raise_exception"):
        await _fail_on_passages(sql, code)
        result = await rem_without_embedder.for_user(USER).query('SEARCH "sencha"')
        assert [row.key for row in result.hits] == ["old"], code
        assert result.has_note("waiting"), code
    await sql.execute("DROP FUNCTION break CASCADE")
    result = await rem_without_embedder.for_user(USER).query('SEARCH "sencha"')
    assert sorted(row.key for row in result.hits) == ["new", "old"]


async def test_worker_pauses_as_briefly_as_before_after_a_success(rem_without_embedder: Rem, sql: Sql) -> None:
    """Several failures in a row, a success, and one more failure: the pause after it is the first one again."""
    rem, loop = rem_without_embedder, asyncio.get_running_loop()
    async with _worker(rem):
        for failures in (2, 1):
            await _fail_on_passages(sql, "disk_full")
            await rem.for_user(USER).store.upsert(Resource(name=f"Tea {failures}", content="Sencha"))
            await _wait_for_failures(sql, failures)
            failed_at = loop.time()
            await sql.execute("DROP FUNCTION break CASCADE; DROP SEQUENCE tries")
            await _wait_until_indexed(rem)
    # The first two pauses are 2 and 4 s. Without the reset, the last one would be 8 s.
    assert loop.time() - failed_at < 6


async def test_row_that_fails_is_set_aside_and_the_others_are_indexed(rem_without_embedder: Rem, sql: Sql) -> None:
    rem = rem_without_embedder
    rows = [Resource(name=f"Tea {number}", content="Sencha") for number in range(10)]
    await rem.for_user(USER).store.upsert_many(rows)
    await rem.for_user("bob").store.upsert(Resource(name="Coffee", content="Mocha"))
    bad = await sql.fetchval("SELECT id FROM resources WHERE name = 'Tea 4'")
    await _fail_on_passages(sql, "raise_exception", f"NEW.entity_id = '{bad}'")
    async with _worker(rem):
        await _wait_until_indexed(rem)
    assert await sql.fetchval("SELECT count(*) FROM passages") == 10
    assert (await rem.check_index()).set_aside == IndexBacklog(rows=1, passages=0)
    result = await rem.for_user(USER).query('SEARCH "sencha" LIMIT 20')
    assert result.count == 9
    assert not result.has_note("waiting")
    await sql.execute("DROP FUNCTION break CASCADE")
    assert (await rem.index()).rows == 1
    assert not (await rem.check_index()).set_aside


async def test_text_that_the_embedder_rejects_is_set_aside_and_the_others_are_embedded(dsn: str, sql: Sql) -> None:
    async with ScriptedServer() as service, Rem.open(_with_service(dsn, service)) as rem:
        service.choose = _reject_poison
        store = rem.for_user(USER).store
        await store.upsert_many(Resource(name=f"Tea {number}", content=f"Sencha {number}") for number in range(20))
        await store.upsert(Resource(name="Bad", content=POISON))
        async with _worker(rem):
            await _wait_until_indexed(rem, lambda left: not left)
        assert await sql.fetchval("SELECT count(*) FROM passages WHERE embedding IS NOT NULL") == 20
        assert (await rem.check_index()).set_aside == IndexBacklog(rows=0, passages=1)
        # It is found by its words, and no search tries to embed it.
        result = await rem.for_user(USER).query(f'SEARCH "{POISON}" MODE text LIMIT 1')
        assert ([row.key for row in result.hits], result.notes) == (["bad"], ())


async def test_embedder_that_is_down_sets_nothing_aside_and_words_are_indexed(dsn: str, sql: Sql) -> None:
    async with ScriptedServer() as service, Rem.open(_with_service(dsn, service)) as rem:
        service.set_script(Reply(b"out of order", 500))
        rows = [Resource(name=f"Tea {number}", content=f"Sencha {number}") for number in range(20)]
        await rem.for_user(USER).store.upsert_many(rows)
        for _ in range(4):
            with pytest.raises(EmbeddingUnavailableError):
                await rem.index()
        assert await rem.index_backlog() == IndexBacklog(rows=0, passages=20)
        assert await sql.fetchval("SELECT max(embedding_failures) FROM passages") == 0


async def test_doctor_reports_what_was_set_aside(dsn: str, rem_without_embedder: Rem, sql: Sql, tmp_path: Path) -> None:
    await rem_without_embedder.for_user(USER).store.upsert(Resource(name="Tea", content="Sencha"))
    await sql.execute("UPDATE search_queue SET failures = 3")
    done = run_command("doctor", "--json", settings={"POSTGRES__CONNECTION_STRING": dsn, "REM_HOME": str(tmp_path)})
    [check] = [check for check in json.loads(done.stdout) if check["name"] == "search"]
    assert (check["mark"], "rem db index" in check["finding"]) == ("warning", True)


def _reject_poison(request: Request) -> Reply:
    is_rejected = any(POISON in text for text in request.body["input"])
    return Reply(b"bad text", 400) if is_rejected else Reply(_embed)


@asynccontextmanager
async def _worker(rem: Rem) -> AsyncIterator[None]:
    task = asyncio.create_task(rem.keep_indexed())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _fail_on_passages(sql: Sql, condition_name: str, condition: str = "true") -> None:
    """Let the database refuse new passages. Each try counts in a sequence, which no rollback resets."""
    await sql.execute(
        f"""DROP FUNCTION IF EXISTS break CASCADE;
            CREATE SEQUENCE IF NOT EXISTS tries;
            CREATE FUNCTION break() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM nextval('rem.tries'); RAISE {condition_name} USING MESSAGE = 'on purpose'; END $$;
            CREATE TRIGGER break BEFORE INSERT ON passages FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION break()"""
    )


async def _wait_for_failures(sql: Sql, number: int) -> None:
    async with asyncio.timeout(30):
        while await sql.fetchval("SELECT last_value FROM tries WHERE is_called") != number:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _wait_until_indexed(rem: Rem, is_done: Callable[[IndexBacklog], bool] = lambda left: not left.rows) -> None:
    async with asyncio.timeout(30):
        while not is_done(await rem.index_backlog()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
