"""The HTTP API on the test's own database, and clients of several people."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from rem.api.main import create_app
from rem.settings import Settings
from tests.api.live_server import client, served


@pytest.fixture
async def address(settings: Settings) -> AsyncIterator[str]:
    """Where the API listens."""
    async with served(create_app(settings)) as address:
        yield address


@pytest.fixture
async def anyone(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """A client who does not say who they are."""
    async with client(address) as opened:
        yield opened


@pytest.fixture
async def as_alice(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Alice's client."""
    async with client(address, "alice@example.com") as opened:
        yield opened


@pytest.fixture
async def as_bob(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Bob's client."""
    async with client(address, "bob@example.com") as opened:
        yield opened
