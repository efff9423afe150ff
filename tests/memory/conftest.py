"""Conversations of two users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from rem.memory.manager import MemoryManager
from rem.settings import EmbeddingSettings, Settings


@pytest.fixture
async def rem(settings: Settings) -> AsyncIterator[Rem]:
    """An open REM that searches by words alone, which needs no model."""
    async with Rem.open(settings.model_copy(update={"embedding": EmbeddingSettings(provider="none")})) as rem:
        yield rem


@pytest.fixture
def ours(rem: Rem) -> MemoryManager:
    """Alice's conversations."""
    return rem.memory("alice@example.com")


@pytest.fixture
def theirs(rem: Rem) -> MemoryManager:
    """Bob's conversations."""
    return rem.memory("bob@example.com")


@pytest.fixture
def session_id() -> UUID:
    """A session that nobody has begun yet."""
    return uuid4()
