"""The HTTP API on the test database, and clients of several users."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from rem.api.main import create_app
from rem.settings import Settings
from tests.api.live_server import client, served


@pytest.fixture
async def address(settings: Settings) -> AsyncIterator[str]:
    """Serve the API, and yield its address."""
    async with served(create_app(settings)) as address:
        yield address


@pytest.fixture
async def anyone(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield an anonymous client."""
    async with client(address) as opened:
        yield opened


@pytest.fixture
async def as_alice(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of Alice."""
    async with client(address, "alice@example.com") as opened:
        yield opened


@pytest.fixture
async def as_bob(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of Bob."""
    async with client(address, "bob@example.com") as opened:
        yield opened
