"""A memory with three resources."""

from __future__ import annotations

import pytest

from rem.app import Rem
from rem.models import Resource
from tests.agents.local.local_chat import CONTEXT


@pytest.fixture
async def memory(rem: Rem) -> Rem:
    store = rem.store(CONTEXT.scope)
    await store.upsert_many(
        [
            Resource(
                name="Atlas launch", content="The launch of Atlas slipped to June because the index was too slow."
            ),
            Resource(name="Atlas budget", content="The budget of Atlas is 40,000 euros a year."),
            Resource(name="Garden", content="The tomatoes want water twice a day."),
        ]
    )
    return rem
