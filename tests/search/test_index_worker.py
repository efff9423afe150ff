"""The index worker of one server indexes new rows in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rem import Rem, Resource
from rem.search.indexer import IndexBacklog
from rem.settings import EmbeddingSettings, Settings
from tests.search.embedders.scripted_server import Reply, ScriptedServer


@asynccontextmanager
async def _run_workers(*rems: Rem) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(rem.keep_indexed()) for rem in rems]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _wait_for_backlog(rem: Rem, wanted: IndexBacklog) -> None:
    async with asyncio.timeout(20):
        while await rem.index_backlog() != wanted:  # noqa: ASYNC110  # only the database knows
            await asyncio.sleep(0.05)


async def _wait_until_indexed(rem: Rem) -> None:
    await _wait_for_backlog(rem, IndexBacklog(rows=0, passages=0))


def _embed(body: dict[str, list[str]]) -> object:
    return {"data": [{"index": place, "embedding": [1.0, 2.0]} for place, _ in enumerate(body["input"])]}


def _with_service(settings: Settings, server: ScriptedServer) -> Settings:
    embedding = {"provider": "openai", "model": "m", "dimension": 2, "base_url": server.url, "max_retries": 0}
    return settings.model_copy(update={"embedding": EmbeddingSettings.model_validate(embedding)})


async def test_two_servers_embed_each_text_once(settings: Settings) -> None:
    async with ScriptedServer() as service:
        service.set_script(Reply(_embed, delay=0.05))
        one, other = (Rem.open(_with_service(settings, service)) for _ in range(2))
        async with one as first, other as second, _run_workers(first, second):
            for number in range(5):
                await second.for_user("alice").store.upsert(Resource(name=f"Tea {number}", content=f"Sencha {number}"))
            await _wait_until_indexed(first)
        assert sum(len(request.body["input"]) for request in service.requests) == 5


async def test_another_server_takes_over(settings: Settings) -> None:
    async with Rem.open(settings) as first, Rem.open(settings) as second:
        async with _run_workers(first):
            await first.for_user().store.upsert(Resource(name="Tea", content="Sencha"))
            await _wait_until_indexed(first)
        async with _run_workers(second):
            await first.for_user().store.upsert(Resource(name="Coffee", content="Mocha"))
            await _wait_until_indexed(second)
        assert (await second.for_user().query('SEARCH "mocha" LIMIT 1')).hits[0].key == "coffee"


async def test_worker_continues_after_a_failure(settings: Settings) -> None:
    async with ScriptedServer() as service:
        service.set_script(Reply(b"out of order", 500), Reply(_embed))
        async with Rem.open(_with_service(settings, service)) as rem, _run_workers(rem):
            await rem.for_user("alice").store.upsert(Resource(name="Tea", content="Sencha"))
            await _wait_until_indexed(rem)
        assert [request.body["input"] for request in service.requests].count(["Tea\nSencha"]) == 2


async def test_worker_without_embedder_indexes_words_without_warnings(
    rem_without_embedder: Rem,
) -> None:
    async with _run_workers(rem_without_embedder):
        await rem_without_embedder.for_user().store.upsert(Resource(name="Tea", content="Sencha"))
        await _wait_for_backlog(rem_without_embedder, IndexBacklog(rows=0, passages=1))
    assert [row.key for row in (await rem_without_embedder.for_user().query('SEARCH "sencha"')).hits] == ["tea"]
