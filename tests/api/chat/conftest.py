"""A real `rem serve` with a scripted language model on loopback, and clients for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from uuid import uuid4

import httpx2 as httpx
import pytest
from openai import OpenAI

from tests.cli.test_serve import serving
from tests.conftest import fresh_database
from tests.scripted_model import ScriptedModel, scripted_model


@dataclass
class Chat:
    """A server, its model, and a user that no other test has."""

    address: str
    model: ScriptedModel
    user: str
    pid: int
    opened: ExitStack = field(default_factory=ExitStack)
    """Closes the clients after the test: an open connection that is collected later is a warning in another test."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the user."""
        return {"X-User-Id": self.user}

    def client(self, user: str | None = None, **headers: str) -> OpenAI:
        """Return OpenAI's client for this user."""
        client = OpenAI(
            base_url=f"{self.address}/api/v1",
            api_key="unused",
            max_retries=0,
            default_headers={"X-User-Id": user or self.user, **headers},
        )
        return self.opened.enter_context(client)

    def http(self, user: str | None = None) -> httpx.Client:
        """Return an HTTP client for this user."""
        return httpx.Client(base_url=self.address, headers={"X-User-Id": user or self.user}, timeout=60)


@pytest.fixture(scope="session")
def chat_server() -> Iterator[Chat]:
    """Start one server for all chat tests of a worker."""
    database = fresh_database()
    dsn = asyncio.run(database.__aenter__())
    try:
        with scripted_model() as model:
            settings = {
                "POSTGRES__CONNECTION_STRING": dsn,
                "LLM__BASE_URL": model.url,
                "LLM__OPENAI_API_KEY": "unused",
                "LLM__DEFAULT_MODEL": "openai:scripted",
                "LLM__TIMEOUT_SECONDS": "5",
                "LLM__MAX_RETRIES": "0",
                "API__MAX_CHATS_PER_CALLER": "1000",
            }
            with serving(settings=settings) as (address, process):
                yield Chat(address, model, "", process.pid)
    finally:
        asyncio.run(database.__aexit__())


@pytest.fixture
def chat(chat_server: Chat) -> Iterator[Chat]:
    """Yield the server with a greeting model and a new user."""
    chat_server.model.script = lambda _body: ["Hello", " from", " the", " model."]
    chat_server.model.requests.clear()
    chat = Chat(chat_server.address, chat_server.model, f"user-{uuid4().hex[:8]}", chat_server.pid)
    with chat.opened:
        yield chat
