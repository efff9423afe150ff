"""The profile has the name by which its user introduces themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rem.app import Rem
from rem.context import Scope
from rem.db.store import Store
from rem.dreams.dreamer import DreamReport
from rem.dreams.entities.own_name import find_own_names
from rem.models import User
from tests.dreams.entities.sample_sessions import list_entity_keys, store_past_session

_MAY = datetime(2026, 5, 4, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Hi! I'm Sam. I live in Svendborg.", "Sam"),
        ("I’m Tessa, Tessa Okafor.", "Tessa Okafor"),
        ("My name is Oluwaseun Ade and I sail.", "Oluwaseun Ade"),
        ("Hello, I'm Zorblax!", "Zorblax"),
        ("Please call me Ned.", "Ned"),
        ("Ich heiße Jürgen Groß.", "Jürgen Groß"),
        ("Je m'appelle Solène.", "Solène"),
        ("Me llamo Íñigo.", "Íñigo"),
        ("I'm German.", None),
        ("I'm Dutch, and I am Happy.", None),
        ("Don't call me Samuel.", None),
        ("I'm at Sam's.", None),
        ("Call me tomorrow.", None),
        ("Ich bin Lehrerin.", None),
        ("I'm Team Lead at Kestrel", None),
    ],
)
def test_own_name_is_found(text: str, name: str | None) -> None:
    assert [" ".join(words) for words in find_own_names(text)] == ([name] if name else [])


async def _dream(rem: Rem, store: Store, email: str | None = None) -> DreamReport:
    return await rem.dreamer().dream(store.scope, ["entities", "moments", "profiles"], email=email)


async def test_profile_gets_the_name_and_keeps_its_id(rem: Rem, alice: Store) -> None:
    await store_past_session(alice, _MAY, "I live in Svendborg.")
    await _dream(rem, alice, "alice@example.com")
    (before,) = await alice.find(User)
    assert before.name == alice.scope.user_id
    await store_past_session(alice, _MAY + timedelta(days=1), "Hi! I'm Sam.", "Sam is what my friends call me.")
    await _dream(rem, alice)
    (after,) = await alice.find(User)
    assert (after.id, after.email, after.name, after.key) == (before.id, "alice@example.com", "Sam", "sam")
    assert [row.id for row in await alice.lookup("sam")] == [after.id]
    assert [row.id for row in await alice.lookup("alice@example.com")] == [after.id]
    assert await list_entity_keys(alice) == []
    assert after.metadata["profile"]["about"] == ["is called Sam", "lives in Svendborg"]
    assert (await _dream(rem, alice)).run_id is None
    await store_past_session(alice, _MAY + timedelta(days=2), "From now on, call me Samira Holm.")
    await _dream(rem, alice)
    (renamed,) = await alice.find(User)
    assert (renamed.id, renamed.name, renamed.origin) == (before.id, "Samira Holm", "dream:profiles")


async def test_user_without_address_is_found_by_name(rem: Rem) -> None:
    store = rem.for_user(Scope.for_user("someone")).store
    await store_past_session(store, _MAY, "Hello, I'm Sam. I live in Svendborg.")
    await _dream(rem, store)
    await store_past_session(store, _MAY + timedelta(days=1), "We moved to Aarhus last week.")
    await _dream(rem, store)
    (user,) = await store.find(User)
    assert user.name == "Sam"
    assert user.metadata["profile"]["about"] == ["is called Sam", "lives in Aarhus"]


async def test_name_of_another_row_is_not_taken(rem: Rem, alice: Store) -> None:
    other = await alice.upsert(User(name="Sam", summary="A friend."))
    await store_past_session(alice, _MAY, "Hi! I'm Sam. I live in Svendborg.")
    await _dream(rem, alice)
    names = {user.id: user.name for user in await alice.find(User)}
    assert names.pop(other.id) == "Sam"
    assert list(names.values()) == [alice.scope.user_id]


async def test_name_that_the_user_wrote_stays(rem: Rem, alice: Store) -> None:
    await store_past_session(alice, _MAY, "Hi! I'm Sam. I live in Svendborg.")
    await _dream(rem, alice)
    (user,) = await alice.find(User)
    user.name = "Samuel"
    await alice.upsert(user)
    await store_past_session(alice, _MAY + timedelta(days=1), "I'm Sam, and I live in Aarhus now.")
    await _dream(rem, alice)
    assert [user.name for user in await alice.find(User)] == ["Samuel"]


async def test_remembered_statements_are_part_of_the_profile(rem: Rem, alice: Store) -> None:
    note = await rem.for_user(alice.scope).remember("I live in Svendborg, and I prefer short answers.")
    await rem.for_user(alice.scope).remember("My name is Sam.")
    await _dream(rem, alice, "alice@example.com")
    (me,) = await alice.find(User)
    assert me.name == "Sam"
    assert me.metadata["profile"]["about"] == ["is called Sam", "lives in Svendborg"]
    assert me.metadata["profile"]["preferences"] == ["I live in Svendborg, and I prefer short answers."]
    assert (await _dream(rem, alice)).statement_count == 0
    await alice.delete(note)
    await _dream(rem, alice)
    (me,) = await alice.find(User)
    assert me.metadata["profile"]["about"] == ["is called Sam"]
