"""Concurrent writers and readers: nothing fails, nothing is lost, owners stay isolated."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.errors import ConflictError, DeletedError
from rem.models import Edge, Entity, Message, Resource, Session

_USERS = 20
_TASKS = 200
_STEPS = 6
_COUNT_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class _Task:
    """One of ten clients of a user. It runs random operations."""

    def __init__(self, store: Store, number: int, increments: Counter[str]) -> None:
        self._store = store
        self._number = number
        self._increments = increments
        self._random = random.Random(number)

    async def run(self) -> None:
        for step in range(_STEPS):
            action = self._random.choice(
                [self.upsert_common, self.upsert_new, self.count_up, self.count_up, self.lookup, self.find, self.bury]
            )
            await action(step)

    async def upsert_common(self, step: int) -> None:
        content = f"{self._owner} {self._number} {step}"
        stored = await self._store.upsert(Resource(name="Common", content=content, graph_edges=[Edge(dst="counter")]))
        self._check([stored])
        # Others write the same row all the time, but what comes back is never older than what was written.
        assert stored.content

    async def upsert_new(self, step: int) -> None:
        names = [f"new {self._number} {step} {part}" for part in range(3)]
        await self._store.upsert_many([Resource(name=name, content=f"{self._owner} x", tags=["new"]) for name in names])
        entities = await self._store.lookup(*names)
        assert [entity.key for entity in entities] == [name.replace(" ", "-") for name in names]
        self._check(entities)

    async def count_up(self, step: int) -> None:
        [counter] = await self._store.lookup("resources/counter")

        def increment(resource: Resource) -> None:
            resource.metadata["n"] += 1
            resource.content = f"{self._owner} {resource.metadata['n']}"

        self._check([await self._store.modify(Resource, counter.id, increment)])
        self._increments[self._owner] += 1

    async def lookup(self, step: int) -> None:
        entities = await self._store.lookup("common", "counter", "handbook")
        assert {"counter", "handbook"} <= {entity.key for entity in entities}
        self._check(entities)

    async def find(self, step: int) -> None:
        self._check(await self._store.find(Resource, limit=50))

    async def bury(self, step: int) -> None:
        stored = await self._store.upsert(Resource(name=f"buried {self._number} {step}", content=f"{self._owner} x"))
        await self._store.delete(stored)
        assert await self._store.lookup(str(stored.key)) == []
        await self._store.restore(Resource, stored.id)
        assert [entity.id for entity in await self._store.lookup(str(stored.key))] == [stored.id]

    @property
    def _owner(self) -> str:
        return str(self._store.scope.user_id)

    def _check(self, seen: list[Resource] | list[Entity]) -> None:
        for entity in seen:
            assert isinstance(entity, Resource)
            assert entity.user_id in (None, self._owner)
            assert entity.content.split()[0] == (entity.user_id or "shared")


async def test_200_tasks_of_20_users_lose_nothing_and_stay_isolated(rem: Rem, shared: Store) -> None:
    await shared.upsert(Resource(name="Handbook", content="shared"))
    stores = [rem.for_user(f"user-{number}").store for number in range(_USERS)]
    for store in stores:
        await store.upsert(Resource(name="Counter", content=f"{store.scope.user_id} 0", metadata={"n": 0}))
    increments: Counter[str] = Counter()
    tasks = [_Task(stores[number % _USERS], number, increments) for number in range(_TASKS)]
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(task.run())
    for store in stores:
        [counter] = await store.find(Resource, {"name": "Counter"})
        assert counter.metadata["n"] == increments[str(store.scope.user_id)]
        assert await store.count(Resource, {"name": "Common"}) <= 1
    assert sum(increments.values()) > 100
    assert (await check_mirrors(rem.database)).is_exact


async def test_50_writers_of_a_new_key_make_one_row(rem: Rem, alice: Store) -> None:
    stored = await asyncio.gather(*(alice.upsert(Resource(name="new", content=str(n))) for n in range(50)))
    assert len({resource.id for resource in stored}) == 1
    assert [resource.content for resource in stored] == [str(n) for n in range(50)]
    assert await alice.count(Resource, with_deleted=True) == 1
    assert (await check_mirrors(rem.database)).is_exact


async def test_writers_of_a_new_id_make_one_row(rem: Rem, alice: Store) -> None:
    """Repeat the race, because a conflict can come from the index of the keys or from that of the ids."""
    for number, entity_id in enumerate(uuid4() for _ in range(60)):
        rows = [Resource(id=entity_id, name=f"new {number}", content=str(writer)) for writer in range(4)]
        stored = await asyncio.gather(*map(alice.upsert, rows))
        assert [(one.id, one.content) for one in stored] == [(entity_id, row.content) for row in rows]
    assert await alice.count(Resource, with_deleted=True) == 60
    assert (await check_mirrors(rem.database)).is_exact


async def test_writers_of_the_same_text_get_that_text_back(alice: Store, sql: Sql) -> None:
    await alice.upsert(Resource(name="a", content="before"))
    async with _lock_row(sql, waiting=4):
        writers = [asyncio.create_task(alice.upsert(Resource(name="a", content="now"))) for _ in range(4)]
    stored = await asyncio.gather(*writers)
    assert {resource.content for resource in stored} == {"now"}
    assert len({resource.updated_at for resource in stored}) == 1


async def test_write_that_waited_for_a_deletion_is_refused(alice: Store, sql: Sql) -> None:
    await alice.upsert(Resource(name="a", content="before"))
    async with _lock_row(sql, waiting=1):
        writer = asyncio.create_task(alice.upsert(Resource(name="a", content="late")))
        await sql.execute("UPDATE resources SET deleted_at = now()")
    with pytest.raises(DeletedError):
        await writer
    assert await alice.count(Resource) == 0


async def test_edges_of_different_origins_written_at_once_all_survive(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="a"))
    await asyncio.gather(
        *(
            alice.upsert(Resource(name="a", origin=f"o{n}", graph_edges=[Edge(dst=f"d{n}", origin=f"o{n}")]))
            for n in range(20)
        )
    )
    [stored] = await alice.find(Resource)
    assert {edge.dst for edge in stored.graph_edges} == {f"d{n}" for n in range(20)}
    assert (await check_mirrors(rem.database)).is_exact


async def test_only_one_reader_of_a_version_may_write_it_back(alice: Store, sql: Sql) -> None:
    read = [await alice.upsert(Resource(name="a", content="0")) for _ in range(6)]
    for number, resource in enumerate(read):
        resource.content = f"by {number}"
    async with _lock_row(sql, waiting=6):
        writers = [asyncio.create_task(alice.upsert(resource)) for resource in read]
    outcomes = await asyncio.gather(*writers, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, ConflictError)]
    [written] = [outcome for outcome in outcomes if isinstance(outcome, Resource)]
    assert len(refused) == 5
    assert (await alice.find(Resource))[0] == written


@asynccontextmanager
async def _lock_row(sql: Sql, waiting: int) -> AsyncIterator[None]:
    """Lock the only row until `waiting` writers wait for it. All of them have read the old version."""
    async with sql.transaction():
        await sql.execute("SELECT FROM resources FOR UPDATE")
        yield
        async with asyncio.timeout(10):
            while waiting > await sql.fetchval(_COUNT_WAITING):
                await sql.execute("SELECT pg_stat_clear_snapshot()")
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("size", [40, 400])
async def test_bulk_loads_of_the_same_keys_at_once_all_succeed(rem: Rem, alice: Store, size: int) -> None:
    def batch(loader: int) -> list[Resource]:
        resources = [
            Resource(name=f"r{n}", content=f"by {loader}", graph_edges=[Edge(dst=f"r{n + 1}")])
            if n % 2
            else Resource(name=f"r{n}", content=f"by {loader}", category="even")
            for n in range(size)
        ]
        random.Random(loader).shuffle(resources)
        return resources

    for _ in range(2):  # first they insert, then they update
        reports = await asyncio.gather(*(alice.upsert_many(batch(loader)) for loader in range(6)))
        assert all(len(report.rows) == size for report in reports)
        assert await alice.count(Resource) == size
        # All or nothing: the last writer wrote every row.
        assert len({resource.content for resource in await alice.find(Resource, limit=size)}) == 1
    assert (await check_mirrors(rem.database)).is_exact


async def test_single_writes_beside_a_bulk_load_succeed(rem: Rem, alice: Store) -> None:
    async def write_one(number: int) -> None:
        await alice.upsert(Resource(name=f"r{number}", metadata={"by": "one"}))

    batch = [Resource(name=f"r{n}", content="bulk") for n in range(300)]
    await asyncio.gather(alice.upsert_many(batch), *(write_one(n) for n in range(0, 300, 7)), alice.upsert_many(batch))
    assert await alice.count(Resource, {"content": "bulk"}) == 300
    assert await alice.count(Resource, {"metadata.by": "one"}) == 43
    assert (await check_mirrors(rem.database)).is_exact


async def test_messages_arrive_while_their_session_is_updated(alice: Store) -> None:
    session = await alice.upsert(Session(name="chat"))

    async def say(index: int) -> None:
        async with alice.transaction() as turn:
            await turn.upsert(Message(session_id=session.id, message_index=index, role="user", content=f"{index}"))
            await turn.modify(Session, session.id, _count_message)

    await asyncio.gather(*map(say, range(30)))
    assert (await alice.get(Session, session.id)).message_count == await alice.count(Message) == 30


def _count_message(session: Session) -> None:
    session.message_count += 1
