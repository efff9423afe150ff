"""Questions about a time list what was told about it later, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rem.app import Rem
from rem.memory.message import NewMessage
from rem.models import Role
from rem.query.time_phrases import Period
from rem.query.told_times import MAX_DAYS, make_time_search
from tests.query.test_answer_rows import answer

_USER = "alice"
_TOLD = ["Yesterday I went to the dentist.", "Last night we watched Dune.", "In November it rains.", "My bike is blue."]


@pytest.fixture
async def told(rem: Rem) -> list[str]:
    """Store what somebody tells today."""
    messages = [NewMessage(role=Role.USER, content=text) for text in _TOLD]
    await rem.memory(_USER).append(uuid4(), messages, create_session=True)
    return _TOLD


@pytest.mark.parametrize(
    ("question", "places"),
    [("What did I do yesterday?", [0]), ("what did we do last night", [1]), ("What did I do three days ago?", [])],
)
async def test_later_message_about_a_time_is_listed(
    rem: Rem, told: list[str], question: str, places: list[int]
) -> None:
    found = [row["content"] for row in await answer(rem, question)]
    assert found == [told[place] for place in places]


async def test_message_is_listed_once(rem: Rem, told: list[str]) -> None:
    found = [row["content"] for row in await answer(rem, "What did I say today?")]
    assert sorted(found) == sorted(told)


def test_long_and_open_times_are_not_searched() -> None:
    now = datetime(2026, 11, 18, tzinfo=UTC)
    assert make_time_search(Period(now - timedelta(days=MAX_DAYS + 1), now)) is None
    assert make_time_search(Period(now, None)) is None
    search = make_time_search(Period(now, now + timedelta(days=1)))
    assert search is not None
    assert "Wednesday November 18" in search.text
