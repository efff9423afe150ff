"""The real model, loaded once per worker, and a server on loopback that answers as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rem.embeddings import Embedder, open_embedder
from rem.settings import EmbeddingSettings, Settings
from tests.embeddings.scripted_server import ScriptedServer


@pytest.fixture(scope="session")
def models_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A REM_HOME in which the model's graph is built once."""
    return tmp_path_factory.mktemp("models-home")


@pytest.fixture
async def local(models_home: Path) -> AsyncIterator[Embedder]:
    """The local embedder with the real weights."""
    embedder = open_embedder(Settings(rem_home=models_home, embedding=EmbeddingSettings(provider="local")))
    yield embedder
    await embedder.close()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    """A server that gives the answers of its script, one after the other."""
    async with ScriptedServer() as server:
        yield server
