"""Rows of another owner look as if they did not exist."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest

from rem.app import Rem
from rem.db.conditions import Compare, Not, Or
from rem.db.store import Store
from rem.errors import ConflictError, InvalidInputError, NotFoundError, RemError
from rem.models import Document, Edge, Entity, Message, Resource, Session, User

_SECRET = "pineapple-under-the-sea"


@pytest.fixture(params=["another user", "nobody", "the same user of another tenant", "another tenant"])
def stranger(request: pytest.FixtureRequest, rem: Rem) -> Store:
    """Return a store of each owner other than Alice."""
    strangers = {
        "another user": rem.for_user("bob@example.com").store,
        "nobody": rem.for_user().store,
        "the same user of another tenant": rem.for_user("alice@example.com", tenant="other").store,
        "another tenant": rem.for_user(tenant="other").store,
    }
    return strangers[request.param]


@pytest.fixture
async def secrets(alice: Store) -> list[Entity]:
    """Store rows of several types for Alice."""
    session = await alice.upsert(Session(name=_SECRET))
    return [
        await alice.upsert(Resource(name=_SECRET, content=_SECRET, graph_edges=[Edge(dst=_SECRET)])),
        await alice.upsert(User(name=_SECRET, email=f"{_SECRET}@example.com", summary=_SECRET)),
        await alice.upsert(Document(content=_SECRET)),
        session,
        await alice.upsert(Message(session_id=session.id, message_index=0, role="user", content=_SECRET)),
    ]


async def test_rows_of_another_owner_cannot_be_read(alice: Store, stranger: Store, secrets: list[Entity]) -> None:
    for secret in secrets:
        model = type(secret)
        with pytest.raises(NotFoundError):
            await stranger.get(model, secret.id)
        for where in (None, {"id": secret.id}, {"user_id": secret.user_id}, Not(Compare("key", "=", "x"))):
            assert await stranger.find(model, where, with_deleted=True) == []
            assert await stranger.count(model, where, with_deleted=True) == 0
        assert secret.key is not None
        for label in (
            secret.key,
            str(secret.id),
            f"{model.entity_type.table}/{secret.key}",
            secret.key.replace("-", ""),
        ):
            assert await stranger.lookup(label) == []
        assert await alice.get(model, secret.id) == secret
    assert await stranger.lookup(f"{_SECRET}@example.com") == []
    assert list(await stranger.list_dangling_edges()) == []


async def test_rows_of_another_owner_cannot_be_written(alice: Store, stranger: Store, secrets: list[Entity]) -> None:
    for secret in secrets:
        model = type(secret)
        unknown = secret.model_copy(update={"id": uuid4()})
        attempts: list[Callable[[Entity], Coroutine[Any, Any, Any]]] = [
            lambda entity: stranger.modify(type(entity), entity.id, lambda e: e),
            lambda entity: stranger.delete(entity),
            lambda entity: stranger.restore(type(entity), entity.id),
            lambda entity: stranger.erase(entity),
            lambda entity: stranger.upsert(entity),
        ]
        for attempt in attempts:
            answers = [await _refusal(attempt, entity) for entity in (secret, unknown)]
            # The very same answer as for what does not exist.
            assert answers[0] == answers[1]
            assert _SECRET not in answers[0]
        assert await alice.get(model, secret.id) == secret


async def _refusal(attempt: Callable[[Entity], Coroutine[Any, Any, Any]], entity: Entity) -> str:
    with pytest.raises((NotFoundError, InvalidInputError)) as refused:
        await attempt(entity)
    return f"{type(refused.value).__name__}: {refused.value}".replace(str(entity.id), "ID")


async def test_deleted_rows_of_another_owner_stay_invisible(
    alice: Store, stranger: Store, secrets: list[Entity]
) -> None:
    resource = secrets[0]
    await alice.delete(resource)
    with pytest.raises(NotFoundError):
        await stranger.restore(Resource, resource.id)
    with pytest.raises(NotFoundError):
        await stranger.erase(resource)
    # Nor does the deleted row stand in the way of the stranger's own.
    assert (await stranger.upsert(Resource(name=_SECRET, content="mine"))).content == "mine"
    assert (await alice.restore(Resource, resource.id)).content == _SECRET


async def test_each_owner_has_its_own_row_for_a_key(alice: Store, stranger: Store, secrets: list[Entity]) -> None:
    mine = await stranger.upsert(Resource(name=_SECRET, content="mine"))
    assert mine.id != secrets[0].id
    assert [entity.id for entity in await stranger.lookup(_SECRET)] == [mine.id]
    assert (await stranger.upsert_many([Resource(name=_SECRET, content="still mine")])).ids == [mine.id]
    assert (await alice.get(Resource, secrets[0].id)).content == _SECRET
    await stranger.erase(mine)
    assert [entity.id for entity in await alice.lookup(f"resources/{_SECRET}")] == [secrets[0].id]


async def test_id_of_another_owner_is_refused(alice: Store, bob: Store, shared: Store, rem: Rem) -> None:
    stored = await alice.upsert(Resource(name=_SECRET, content=_SECRET))
    for store in (bob, shared):
        with pytest.raises(ConflictError, match="The id is not available: leave it out") as refused:
            await store.upsert(Resource(id=stored.id, name="mine"))
        assert _SECRET not in str(refused.value)
        with pytest.raises(RemError):
            await store.upsert_many([Resource(id=stored.id, name=f"mine {n}") for n in range(1)])
    # In another tenant the same id is another row.
    elsewhere = rem.for_user("alice@example.com", tenant="other").store
    assert (await elsewhere.upsert(Resource(id=stored.id, name="mine"))).id == stored.id
    assert await alice.get(Resource, stored.id) == stored


async def test_bulk_load_changes_only_own_rows(alice: Store, bob: Store, shared: Store) -> None:
    for store in (alice, bob, shared):
        await store.upsert_many([Resource(name=f"r{n}", content="old") for n in range(210)])
    report = await bob.upsert_many([Resource(name=f"r{n}", content="new") for n in range(210)])
    assert report.counts == {"updated": 210}
    assert await alice.count(Resource, {"user_id": alice.scope.user_id, "content": "old"}) == 210
    assert await shared.count(Resource, {"content": "old"}) == 210


async def test_condition_cannot_leave_the_scope(alice: Store, bob: Store) -> None:
    await alice.upsert(Resource(name=_SECRET))
    everything = Or([Compare("name", "=", "x"), Not(Compare("name", "=", "x"))])
    assert await bob.find(Resource, everything, order_by="-metadata.x, name") == []
    assert await bob.count(Resource, everything) == 0


async def test_email_address_and_user_id_name_the_same_owner(rem: Rem) -> None:
    by_address = rem.for_user(" Alice@Example.com ").store
    assert by_address.scope.user_id == "edabafbb-61ad-51d6-9fd8-e976c892a731"
    stored = await by_address.upsert(Resource(name="a"))
    assert await rem.for_user("edabafbb-61ad-51d6-9fd8-e976c892a731").store.get(Resource, stored.id) == stored
    assert rem.for_user("alice").store.scope.user_id == "alice"
