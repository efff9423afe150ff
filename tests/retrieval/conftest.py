"""A REM that searches by words alone, for what has nothing to do with vectors."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rem import Rem
from rem.settings import EmbeddingSettings, Settings


@pytest.fixture
async def wordy(settings: Settings) -> AsyncIterator[Rem]:
    """An open REM without an embedder."""
    async with Rem.open(settings.model_copy(update={"embedding": EmbeddingSettings(provider="none")})) as rem:
        yield rem
