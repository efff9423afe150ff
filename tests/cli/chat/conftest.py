"""A scripted model and the places where a chat finds its memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cli.test_serve import serving
from tests.rem_command import output
from tests.scripted_model import Call, Pause, Refuse, ScriptedModel, Step, has_result, last_text, scripted_model

ZOE = "zoe@example.com"


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        model.script = _answer
        yield model


@pytest.fixture
def scripted(dsn: str, model: ScriptedModel) -> dict[str, str]:
    return {
        "POSTGRES__CONNECTION_STRING": dsn,
        "LLM__BASE_URL": model.url,
        "LLM__DEFAULT_MODEL": "openai:scripted",
        "LLM__MAX_RETRIES": "0",
        "REM_USER": ZOE,
    }


def _answer(body: dict[str, Any]) -> Sequence[Step]:
    text = last_text(body)
    if "slowly" in text:
        return ["One", Pause(0.05), " word", Pause(60), " too many"]
    if "fail" in text:
        return [Refuse(500, "the provider is down")]
    if "tool" in text and not has_result(body):
        return [Call("search_rem", {"query": 'FUZZY "zoe"'})]
    if "list" in text:
        return ["# Boats\n\n", "- **Albatross**\n", "- Heron\n\n", "```\nsail\n\nmast\n```\n\n", "That is all."]
    count = sum(message["role"] == "user" for message in body["messages"])
    return [f"You said {text!r}, message {count}."]


@contextmanager
def connect(settings: dict[str, str], place: str) -> Iterator[list[str]]:
    """Yield the options of a chat with the memory of this machine, of a server, or of one that wants an API key."""
    if place == "local":
        yield []
        return
    if place == "remote":
        with serving(settings=settings) as (address, _):
            yield ["--url", address]
        return
    closed = {**settings, "ENVIRONMENT": "production", "AUTH__ENABLED": "true", "AUTH__SESSION_SECRET": "s" * 32}
    key = output("keys", "create", "chat", "--user", ZOE, settings=closed).strip()
    with serving(settings=closed) as (address, _):
        yield ["--url", address, "--api-key", key]
