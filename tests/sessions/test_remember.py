"""Statements are stored as dated notes with readable keys, once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Resource
from rem.sessions.remember import MAX_STATEMENT_CHARS, remember

_ALICE, _BOB = "alice@example.com", "bob@example.com"
_DAY = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)


@pytest.fixture
def store(rem: Rem) -> Store:
    """Return the store of Alice."""
    return rem.for_user(_ALICE).store


async def test_statement_has_a_readable_key_and_is_found(rem: Rem, store: Store) -> None:
    stored = await remember(store, "Remember that my code word for the boat is heliotrope-91.", at=_DAY)
    assert stored.key == "2026-11-16-my-code-word-for-the-boat-is"
    assert (stored.content, stored.timestamp) == ("my code word for the boat is heliotrope-91.", _DAY)
    hits = (await rem.for_user(_ALICE).query('SEARCH "code word"')).hits
    assert [hit.key for hit in hits] == [stored.key]
    assert (await rem.for_user(_BOB).query('SEARCH "code word"')).hits == []


async def test_key_has_no_punctuation_of_the_sentence(store: Store) -> None:
    stored = await remember(store, 'My bike (the "red" one) is fast, and its key …', at=_DAY)
    assert stored.key == "2026-11-16-my-bike-the-red-one-is-fast"


async def test_same_statement_is_stored_once_and_similar_ones_get_numbers(store: Store) -> None:
    first = await remember(store, "My code word for the boat is A.", at=_DAY)
    assert (await remember(store, " My code word for the boat is A. ", at=_DAY)).id == first.id
    other = await remember(store, "My code word for the boat is B.", at=_DAY)
    assert other.key != first.key
    assert await store.count(Resource) == 2


async def test_statements_at_the_same_time_are_stored_once_each(store: Store) -> None:
    texts = ["My code word for the boat is A.", "My code word for the boat is B."] * 10
    stored = await asyncio.gather(*(remember(store, text, at=_DAY) for text in texts))
    assert len({row.id for row in stored}) == 2
    assert {row.content for row in await store.find(Resource)} == set(texts)
    assert [row.content for row in stored] == texts
    assert await store.count(Resource) == 2


@pytest.mark.parametrize("text", ["", "  ", "…!", "x\0y", "x" * (MAX_STATEMENT_CHARS + 1)])
async def test_text_that_is_no_statement_is_refused(store: Store, text: str) -> None:
    with pytest.raises(InvalidInputError):
        await remember(store, text)


@pytest.mark.parametrize(
    "text", ["私のボートの合言葉は「向日葵」です。", "🎈🎈 is my sign", "٣٤ is my number", "a" * 500]
)
async def test_any_script_gives_a_key(store: Store, text: str) -> None:
    stored = await remember(store, text, at=_DAY)
    assert stored.key is not None
    assert stored.key.startswith("2026-11-16-")
    assert stored.content == text
