"""The simulator: a script of every kind of event, for who builds a client. The same prompt gives the same events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator

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

_LONGEST_SHOWN = 200
_THOUGHTS = (
    "The user wants to see what this client can show.",
    "Every kind of event is to come once, in the order of a real answer.",
    "First the memory is searched, then the answer is written.",
    "At the end come notes on the answer and a card that asks for feedback.",
)
_STEPS = ("Understanding the request", "Searching memory", "Writing the answer")
_SOURCES = ["sarah-chen", "project-atlas", "decision-hybrid-search"]
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


async def simulate(prompt: str, *, delay_seconds: float = 0.0) -> AsyncIterator[AnyEvent]:
    """The events of a scripted answer to any prompt, without the one that ends it; a pause after each if wanted."""
    for event in _script(_shown(prompt)):
        yield event
        # Without a pause, others still get their turn.
        await asyncio.sleep(delay_seconds)


def _script(prompt: str) -> Iterator[AnyEvent]:
    for step, thought in enumerate(_THOUGHTS, start=1):
        yield ReasoningEvent(content=thought, step=step)
    yield _progress(1, "in_progress")
    yield _progress(1, "completed")
    yield _progress(2, "in_progress")
    yield from _search(prompt)
    yield _progress(2, "completed")
    yield _progress(3, "in_progress")
    for piece in _WORDS.findall(_ANSWER.format(prompt=prompt)):
        yield TextEvent(content=piece)
    yield _progress(3, "completed")
    yield MetadataEvent(
        confidence=0.95,
        sources=_SOURCES,
        references=["project-atlas"],
        flags=["simulated"],
        risk_level="low",
        risk_score=5,
        model_version="simulator",
        extra={"topics": ["events", "markdown"]},
    )
    yield ActionRequestEvent(card=_card())


def _progress(step: int, status: str) -> ProgressEvent:
    return ProgressEvent.model_validate(
        {"step": step, "total_steps": len(_STEPS), "label": _STEPS[step - 1], "status": status}
    )


def _search(prompt: str) -> Iterator[AnyEvent]:
    """Two tools, the second called before the first has answered, as models do."""
    search, note = ("search_rem", "sim-call-1"), ("register_metadata", "sim-call-2")
    asked = {"query": prompt, "mode": "natural-language"}
    noted = {"confidence": 0.95, "sources": _SOURCES}
    found = {"status": "success", "query_type": "SEARCH", "count": len(_SOURCES)}
    yield ToolCallEvent(tool_name=search[0], tool_id=search[1], status="started", arguments=asked)
    yield ToolCallEvent(tool_name=note[0], tool_id=note[1], status="started", arguments=noted)
    yield ToolCallEvent(tool_name=search[0], tool_id=search[1], status="completed", arguments=asked, result=found)
    yield ToolCallEvent(
        tool_name=note[0], tool_id=note[1], status="completed", arguments=noted, result={"status": "success"}
    )


def _card() -> ActionCard:
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


def _shown(prompt: str) -> str:
    """The prompt in one line, so that it cannot break the script's Markdown."""
    line = " ".join(prompt.split()).replace("*", "").replace("`", "'")
    return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…"
