"""Fixtures: the sessions of two users, without an embedder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from rem.sessions.manager import MemoryManager
from rem.settings import EmbeddingSettings, Settings


@pytest.fixture
async def rem(settings: Settings) -> AsyncIterator[Rem]:
    """Open REM without an embedder, so that searches use words only."""
    async with Rem.open(settings.model_copy(update={"embedding": EmbeddingSettings(provider="none")})) as rem:
        yield rem


@pytest.fixture
def alice(rem: Rem) -> MemoryManager:
    """Return Alice's sessions."""
    return rem.for_user("alice@example.com").sessions


@pytest.fixture
def bob(rem: Rem) -> MemoryManager:
    """Return Bob's sessions."""
    return rem.for_user("bob@example.com").sessions


@pytest.fixture
def session_id() -> UUID:
    """Return the id of a session that does not exist yet."""
    return uuid4()
