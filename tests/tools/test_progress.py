"""Progress of long tool calls."""

from __future__ import annotations

import asyncio

import pytest

from rem.errors import InvalidInputError, ToolFailedError
from rem.events import ProgressEvent
from rem.tools import progress
from rem.tools.agents import ask_agent
from rem.tools.progress import announce_long_call, report_step
from tests.tools.tool_env import RecordingClient, RecordingDelegate, env_for

ALICE = "alice@example.com"


def progress_of(client: RecordingClient) -> list[tuple[int, int, str, str]]:
    return [
        (event.step, event.total_steps, event.label, event.status)
        for event in client.events
        if isinstance(event, ProgressEvent)
    ]


async def test_step_ends_completed_or_failed() -> None:
    client = RecordingClient()
    env = env_for(None, ALICE, emit=client.emit)
    async with report_step(env, "Reading", 1, 2):
        pass
    with pytest.raises(InvalidInputError):
        async with report_step(env, "Storing", 2, 2):
            raise InvalidInputError("no")
    assert progress_of(client) == [
        (1, 2, "Reading", "in_progress"),
        (1, 2, "Reading", "completed"),
        (2, 2, "Storing", "in_progress"),
        (2, 2, "Storing", "failed"),
    ]


async def test_only_a_long_call_without_progress_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LONG_CALL_SECONDS", 0.05)
    quick, slow, own = RecordingClient(), RecordingClient(), RecordingClient()
    async with announce_long_call(env_for(None, ALICE, emit=quick.emit), "lookup"):
        pass
    async with announce_long_call(env_for(None, ALICE, emit=slow.emit), "search_rem"):
        await asyncio.sleep(0.2)
    async with announce_long_call(env_for(None, ALICE, emit=own.emit), "ask_agent") as env, report_step(env, "Asking"):
        await asyncio.sleep(0.2)
    assert progress_of(quick) == []
    assert progress_of(slow) == [(1, 1, "Running search_rem", "in_progress"), (1, 1, "Running search_rem", "completed")]
    assert progress_of(own) == [(1, 1, "Asking", "in_progress"), (1, 1, "Asking", "completed")]


async def test_asking_an_agent_reports_progress() -> None:
    for answer, status in (({"status": "success"}, "completed"), (TimeoutError(), "failed")):
        client = RecordingClient()
        env = env_for(None, ALICE, emit=client.emit, delegate=RecordingDelegate(answer))
        if isinstance(answer, Exception):
            with pytest.raises(ToolFailedError):
                await ask_agent(env, "summarizer", "Sum it up.")
        else:
            await ask_agent(env, "summarizer", "Sum it up.")
        assert progress_of(client) == [
            (1, 1, "Asking summarizer", "in_progress"),
            (1, 1, "Asking summarizer", status),
        ]
