"""The tool ask_rem."""

from __future__ import annotations

import pytest

from rem import Rem
from rem.db.store import Store
from rem.errors import (
    ModelTimeoutError,
    NotFoundError,
)
from rem.models import User
from rem.tools.search import ask_rem
from tests.tools.tool_env import RecordingDelegate, env_for

ALICE, BOB = "alice@example.com", "bob@example.com"


async def test_a_question_is_understood_by_an_agent_if_there_is_a_model(rem: Rem, alice: Store) -> None:
    await alice.upsert(User(name="Sarah Chen"))
    delegate = RecordingDelegate({"status": "success", "output": {"answer": "Sarah."}})
    with_model = env_for(rem, ALICE, delegate=delegate, has_model=True)
    assert (await ask_rem(with_model, "who is Sarah Chen?"))["output"] == {"answer": "Sarah."}
    without = env_for(rem, ALICE, delegate=delegate)
    assert (await ask_rem(without, "who is Sarah Chen?"))["results"][0]["key"] == "sarah-chen"
    assert len(delegate.requests) == 1


@pytest.mark.parametrize("error", [ModelTimeoutError(), NotFoundError(), TimeoutError()])
async def test_a_question_is_answered_by_the_memory_if_the_model_fails(
    rem: Rem, alice: Store, error: Exception
) -> None:
    await alice.upsert(User(name="Sarah Chen"))
    env = env_for(rem, ALICE, delegate=RecordingDelegate(error), has_model=True)
    if type(error) is NotFoundError:
        with pytest.raises(NotFoundError):
            await ask_rem(env, "who is Sarah Chen?")
        return
    answer = await ask_rem(env, "who is Sarah Chen?")
    assert answer["results"][0]["key"] == "sarah-chen"
    assert answer["notes"][0]["code"] == "without_model"
