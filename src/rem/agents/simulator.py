"""The simulator: an agent that plays a script with every kind of event, for testing clients."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any

from rem.agents.chat import ClientToolCall, FinishReason, Usage
from rem.agents.tool_gaps import ToolGapReport
from rem.events import (
    ActionCard,
    ActionRequestEvent,
    AnyEvent,
    CardAction,
    CardChoice,
    CardInput,
    MetadataEvent,
    ProgressEvent,
    ReasoningEvent,
    TextEvent,
    ToolCallEvent,
)
from rem.models import Approval
from rem.text import collapse_spaces

SIMULATOR = "simulator"
"""The name of the agent that this module plays, and of its model."""
MAX_QUOTED_PROMPT_CHARS = 200
_THOUGHTS = (
    "The user wants to see what this client can show.",
    "Every kind of event is to come once, in the order of a real answer.",
    "First the memory is searched, then the answer is written.",
    "At the end come notes on the answer and a card that asks for feedback.",
)
_STEPS = ("Understanding the request", "Searching memory", "Writing the answer")
_SOURCES = ["sarah-chen", "project-atlas", "decision-hybrid-search"]
_NOTES: dict[str, Any] = {
    "confidence": 0.95,
    "sources": _SOURCES,
    "references": ["project-atlas"],
    "flags": ["simulated"],
    "risk_level": "low",
    "risk_score": 5,
    "extra": {"topics": ["events", "markdown"]},
}
_WORDS = re.compile(r"\S+\s*")
_ANSWER = """\
## A simulated answer

You wrote: *{prompt}*

Everything here is scripted; **no language model** was asked. A client should render:

### Lists

- plain items, with `inline code`
- items with **strong** and *emphasized* words
  - nested ones
1. numbered ones, too

### A table

| Event | Where it belongs |
| --- | --- |
| `reasoning` | a part that can be folded |
| `progress` | a bar or steps |
| `tool_call` | the status of tools |
| `action_request` | buttons and fields |

### Code

```python
from openai import OpenAI

client = OpenAI(base_url="http://localhost:8000/api/v1", api_key="not-needed")
```

> Quotes, Unicode (Zoë, 東京, 🙂) and a [link](https://example.com) end the tour.
"""


class SimulatedRun:
    """A run of the simulator. It uses no model and no tools."""

    usage = Usage()
    tool_gaps: list[ToolGapReport] = []  # noqa: RUF012  # never changed
    approval: Approval | None = None
    client_calls: Sequence[ClientToolCall] = ()

    def __init__(self, agent: str, prompt: str) -> None:
        self.agent = agent
        self.model = SIMULATOR
        self.finish_reason: FinishReason = "stop"
        self.output: dict[str, Any] | None = None
        self._prompt = prompt

    async def events(self) -> AsyncGenerator[AnyEvent]:
        """Yield the events of the script."""
        async for event in simulate(self._prompt):
            yield event if event.agent else event.model_copy(update={"agent": self.agent})


async def simulate(prompt: str, *, delay_seconds: float = 0.0) -> AsyncIterator[AnyEvent]:
    """Yield the events of a scripted answer, without the final `done`. The same prompt gives the same events."""
    for event in _play_script(_quote_prompt(prompt)):
        yield event
        # Also without a delay: other tasks get their turn.
        await asyncio.sleep(delay_seconds)


def _play_script(prompt: str) -> Iterator[AnyEvent]:
    for step, thought in enumerate(_THOUGHTS, start=1):
        yield ReasoningEvent(content=thought, step=step)
    yield _make_progress(1, "in_progress")
    yield _make_progress(1, "completed")
    yield _make_progress(2, "in_progress")
    yield from _play_tool_calls(prompt)
    yield _make_progress(2, "completed")
    yield _make_progress(3, "in_progress")
    for piece in _WORDS.findall(_ANSWER.format(prompt=prompt)):
        yield TextEvent(content=piece)
    yield _make_progress(3, "completed")
    yield MetadataEvent.model_validate({**_NOTES, "model_version": "simulator"})
    yield ActionRequestEvent(card=_make_card())


def _make_progress(step: int, status: str) -> ProgressEvent:
    return ProgressEvent.model_validate(
        {"step": step, "total_steps": len(_STEPS), "label": _STEPS[step - 1], "status": status}
    )


def _play_tool_calls(prompt: str) -> Iterator[AnyEvent]:
    """Yield two tool calls, the second one started before the first has ended, as models do."""
    search, note = ("search_rem", "sim-call-1"), ("register_metadata", "sim-call-2")
    search_arguments = {"query": prompt, "mode": "natural-language"}
    rows = [{"key": key} for key in _SOURCES]
    search_result = {"status": "success", "query_type": "SEARCH", "results": rows, "count": len(rows)}
    yield ToolCallEvent(tool_name=search[0], tool_id=search[1], status="started", arguments=search_arguments)
    yield ToolCallEvent(tool_name=note[0], tool_id=note[1], status="started", arguments=_NOTES)
    yield ToolCallEvent(
        tool_name=search[0], tool_id=search[1], status="completed", arguments=search_arguments, result=search_result
    )
    yield ToolCallEvent(
        tool_name=note[0], tool_id=note[1], status="completed", arguments=_NOTES, result={"status": "success"}
    )


def _make_card() -> ActionCard:
    return ActionCard(
        id="simulator-feedback",
        prompt="Was this answer helpful?",
        display_style="inline",
        actions=[
            CardAction(id="yes", title="Yes", style="positive", data={"action": "feedback", "rating": 5}),
            CardAction(id="no", title="No", style="secondary", data={"action": "feedback", "rating": 1}),
            CardAction(type="Action.OpenUrl", id="docs", title="Read more", url="https://example.com/docs"),
        ],
        inputs=[
            CardInput(id="comment", label="Anything to add?", placeholder="What could be better?", is_multiline=True),
            CardInput(
                type="Input.ChoiceSet",
                id="part",
                label="Which part is this about?",
                choices=[CardChoice(title="The text", value="text"), CardChoice(title="The tools", value="tools")],
            ),
            CardInput(type="Input.Toggle", id="contact", label="You may ask me about it", value=False),
        ],
        timeout_ms=30_000,
    )


def _quote_prompt(prompt: str) -> str:
    """Return the prompt in one line that cannot break the Markdown of the script."""
    line = collapse_spaces(prompt).replace("*", "").replace("`", "'")
    return line if len(line) <= MAX_QUOTED_PROMPT_CHARS else f"{line[:MAX_QUOTED_PROMPT_CHARS]}…"
