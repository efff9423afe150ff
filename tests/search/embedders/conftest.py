"""Fixtures: the model of the package, and a scripted HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rem.search.embedder import Embedder
from rem.search.embedder_factory import open_embedder
from rem.settings import EmbeddingSettings, Settings
from tests.search.embedders.scripted_server import ScriptedServer


@pytest.fixture
async def local() -> AsyncIterator[Embedder]:
    """Open the embedder of the package."""
    embedder = open_embedder(Settings(embedding=EmbeddingSettings(provider="local")))
    yield embedder
    await embedder.close()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """Start a server that returns the answers of its script in order."""
    async with ScriptedServer() as server:
        yield server
