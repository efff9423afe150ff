"""Transactions and snapshots of the store."""

from __future__ import annotations

import asyncio

import pytest

from rem.app import Rem
from rem.db.maintenance import check_mirrors
from rem.db.repository import WriteReport
from rem.db.store import Store
from rem.errors import ConflictError, DeletedError, InvalidInputError, NotFoundError
from rem.models import Message, Resource, Role, Session, SharedSession, User


async def test_refused_write_in_a_transaction_keeps_the_others(alice: Store) -> None:
    await alice.upsert(User(name="one", email="e@example.com"))
    async with alice.transaction() as transaction:
        await transaction.upsert(Resource(name="acknowledged"))
        with pytest.raises(ConflictError):
            await transaction.upsert(User(name="two", email="e@example.com"))
        with pytest.raises(NotFoundError):
            await transaction.get(Resource, (await transaction.upsert(User(name="three"))).id)
    assert [entity.key for entity in await alice.lookup("acknowledged", "three")] == ["acknowledged", "three"]


async def test_error_in_the_block_undoes_all_writes_and_is_not_translated(alice: Store) -> None:
    with pytest.raises(TimeoutError, match="the caller's own"):
        async with alice.transaction() as transaction:
            await transaction.upsert(Resource(name="undone"))
            raise TimeoutError("the caller's own")
    assert await alice.lookup("undone") == []


async def test_part_of_a_transaction_can_fail_alone(alice: Store) -> None:
    async with alice.transaction() as transaction:
        await transaction.upsert(Resource(name="kept"))
        with pytest.raises(RuntimeError):
            async with transaction.transaction() as part:
                await part.upsert(Resource(name="undone"))
                raise RuntimeError
    assert [entity.key for entity in await alice.lookup("kept", "undone")] == ["kept"]


async def test_transaction_belongs_to_one_task(alice: Store) -> None:
    async with alice.transaction() as transaction:
        with pytest.raises(InvalidInputError, match="belongs to the task"):
            await asyncio.gather(*(transaction.upsert(Resource(name=f"r{number}")) for number in range(2)))
        await transaction.upsert(Resource(name="alone"))
    assert [entity.key for entity in await alice.lookup("alone")] == ["alone"]


async def _race(alice: Store, name: str) -> WriteReport:
    """Run upsert_many while another transaction removes the row, and return its report."""
    stored = await alice.upsert(Resource(name="a", content="same"))
    async with alice.transaction() as transaction:
        await (transaction.erase(stored) if name == "erase" else transaction.delete(stored))
        racing = asyncio.create_task(alice.upsert_many([Resource(name="a", content="new")]))
        await asyncio.sleep(0.3)
        assert not racing.done()
    return await racing


async def test_batch_during_an_erasure_inserts_a_new_row(alice: Store) -> None:
    report = await _race(alice, "erase")
    assert report.counts == {"inserted": 1}
    assert [entity.id for entity in await alice.lookup("a")] == report.ids


async def test_batch_during_a_deletion_reports_the_deleted_row(alice: Store) -> None:
    report = await _race(alice, "delete")
    assert report.counts == {"deleted": 1}
    assert await alice.lookup("a") == []
    with pytest.raises(DeletedError):
        await alice.upsert(Resource(name="a"))


async def test_message_waits_for_the_deletion_of_its_session_and_is_refused(alice: Store) -> None:
    session = await alice.upsert(Session(name="talk"))
    async with alice.transaction() as transaction:
        await transaction.delete(session)
        racing = asyncio.create_task(
            alice.upsert(Message(session_id=session.id, message_index=0, role=Role.USER, content="too late"))
        )
        await asyncio.sleep(0.3)
        assert not racing.done()
    with pytest.raises(ConflictError, match="session is deleted"):
        await racing
    assert await alice.count(Message) == 0


async def test_deletion_waits_for_messages_being_written(alice: Store) -> None:
    session = await alice.upsert(Session(name="talk"))
    async with alice.transaction() as transaction:
        await transaction.upsert(Message(session_id=session.id, message_index=0, role=Role.USER, content="in time"))
        racing = asyncio.create_task(alice.delete(session))
        await asyncio.sleep(0.3)
        assert not racing.done()
    await racing
    assert await alice.count(Message) == 0
    await alice.restore(Session, session.id)
    assert await alice.count(Message) == 1


async def test_two_turns_of_one_session_do_not_block_each_other(alice: Store) -> None:
    session = await alice.upsert(Session(name="talk"))

    async def turn(number: int) -> None:
        async with alice.transaction() as transaction:
            await transaction.upsert(
                Message(session_id=session.id, message_index=number, role=Role.USER, content=f"line {number}")
            )
            await asyncio.sleep(0.05)
            await transaction.modify(Session, session.id, count)

    def count(stored: Session) -> None:
        stored.message_count += 1

    await asyncio.wait_for(asyncio.gather(*(turn(number) for number in range(5))), timeout=30)
    assert (await alice.get(Session, session.id)).message_count == 5


async def test_only_the_owner_shares_a_session(alice: Store, bob: Store, shared: Store) -> None:
    session = await alice.upsert(Session(name="private"))
    owner, other = alice.scope.user_id, bob.scope.user_id
    assert owner
    assert other
    forged = SharedSession(session_id=session.id, owner_user_id=owner, shared_with_user_id=other)
    for store in (bob, shared):
        with pytest.raises(InvalidInputError):
            await store.upsert(forged.model_copy())
    with pytest.raises(InvalidInputError, match="no such session of this owner"):
        await alice.upsert(SharedSession(session_id=session.id, owner_user_id=other, shared_with_user_id="carl"))
    await alice.upsert(forged)
    await alice.delete(session)
    assert await alice.count(SharedSession) == 0
    await alice.restore(Session, session.id)
    assert await alice.count(SharedSession) == 1


async def test_snapshot_sees_its_keys_during_a_rebuild(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="a"))
    async with alice.snapshot() as snapshot:
        assert await snapshot.count(Resource) == 1
        await rem.rebuild_cache()
        assert [entity.key for entity in await snapshot.lookup("a")] == ["a"]
    assert (await check_mirrors(rem.database)).is_exact
