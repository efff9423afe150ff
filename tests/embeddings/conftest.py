"""Fixtures: the real local model, and a scripted HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rem.embeddings import Embedder, open_embedder
from rem.settings import EmbeddingSettings, Settings
from tests.embeddings.scripted_server import ScriptedServer


@pytest.fixture(scope="session")
def models_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a REM_HOME in which the graph of the model is built once."""
    return tmp_path_factory.mktemp("models-home")


@pytest.fixture
async def local(models_home: Path) -> AsyncIterator[Embedder]:
    """Open the local embedder with the real weights."""
    embedder = open_embedder(
        Settings(rem_home=models_home, embedding=EmbeddingSettings(provider="local", model="all-MiniLM-L6-v2"))
    )
    yield embedder
    await embedder.close()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """Start a server that returns the answers of its script in order."""
    async with ScriptedServer() as server:
        yield server
