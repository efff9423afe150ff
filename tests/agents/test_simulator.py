"""The simulator plays every kind of event, always in the same order."""

from __future__ import annotations

import time

import pytest

from rem.agents.simulator import simulate
from rem.events import (
    ActionRequestEvent,
    AnyEvent,
    MetadataEvent,
    ProgressEvent,
    ReasoningEvent,
    TextEvent,
    ToolCallEvent,
)


async def events(prompt: str) -> list[AnyEvent]:
    return [event async for event in simulate(prompt)]


def text_of(script: list[AnyEvent]) -> str:
    return "".join(event.content for event in script if isinstance(event, TextEvent))


async def test_script_starts_with_four_reasoning_steps() -> None:
    thoughts = [event for event in (await events("demo"))[:4] if isinstance(event, ReasoningEvent)]
    assert [event.step for event in thoughts] == [1, 2, 3, 4]


async def test_progress_steps_start_and_end_in_order() -> None:
    progress = [event for event in await events("demo") if isinstance(event, ProgressEvent)]
    assert [(event.step, event.status) for event in progress] == [
        (step, status) for step in (1, 2, 3) for status in ("in_progress", "completed")
    ]
    assert {event.total_steps for event in progress} == {3}


async def test_every_tool_call_ends_with_its_own_id() -> None:
    calls = [event for event in await events("demo") if isinstance(event, ToolCallEvent)]
    started = {event.tool_id: event for event in calls if event.status == "started"}
    completed = {event.tool_id: event for event in calls if event.status == "completed"}
    assert len(started) >= 2
    assert list(started) == list(completed)
    assert all(completed[tool_id].tool_name == event.tool_name for tool_id, event in started.items())
    assert all(event.result is not None for event in completed.values())


async def test_text_is_markdown_in_many_chunks() -> None:
    script = await events("demo")
    assert sum(isinstance(event, TextEvent) for event in script) > 50
    text = text_of(script)
    for sign in ("## ", "\n- ", "\n1. ", "| --- |", "```python", "**", "> "):
        assert sign in text


async def test_script_ends_with_metadata_and_a_card() -> None:
    metadata, request = (await events("demo"))[-2:]
    assert isinstance(metadata, MetadataEvent)
    assert metadata.confidence == 0.95
    assert metadata.sources
    assert isinstance(request, ActionRequestEvent)
    assert len(request.card.actions) >= 2
    assert {field.type for field in request.card.inputs} == {"Input.Text", "Input.ChoiceSet", "Input.Toggle"}


async def test_same_prompt_gives_same_events() -> None:
    assert await events("demo") == await events("demo")


@pytest.mark.parametrize("prompt", ["", "{braces} %s", "a\n\n# b\n```", "Zoë 東京 🙂", "x" * 100_000])
async def test_prompt_is_quoted_in_one_line(prompt: str) -> None:
    text = text_of(await events(prompt))
    line = next(line for line in text.splitlines() if line.startswith("You wrote: "))
    assert prompt.split("\n")[0][:100] in line
    assert len(line) < 300


async def test_delay_slows_the_script_down() -> None:
    started = time.perf_counter()
    async for event in simulate("demo", delay_seconds=0.02):
        if isinstance(event, ProgressEvent):
            break
    assert time.perf_counter() - started >= 0.08
