"""Read a stream of server-sent events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
import orjson


@dataclass(frozen=True)
class SentEvent:
    """One event of a stream; `name` is None for OpenAI's own chunks."""

    name: str | None
    data: dict[str, Any]

    @property
    def text(self) -> str:
        """The text of the answer in this event."""
        delta = self.data["choices"][0]["delta"] if self.data.get("choices") else {}
        return str(delta.get("content") or "")


def events_of(http: httpx.Client, body: dict[str, Any], **headers: str) -> list[SentEvent]:
    """Send a request and return the events of its answer. Check that `[DONE]` comes last."""
    with http.stream("POST", "/api/v1/chat/completions", json={**body, "stream": True}, headers=headers) as response:
        raw = response.read().decode()
    assert response.status_code == 200, raw
    *blocks, end = [block for block in raw.split("\n\n") if block and not block.startswith(":")]
    assert end == "data: [DONE]"
    return [_event(block) for block in blocks]


def _event(block: str) -> SentEvent:
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    return SentEvent(fields.get("event"), orjson.loads(fields["data"]))


def named(events: list[SentEvent], name: str) -> list[dict[str, Any]]:
    """Return the data of all events with this name."""
    return [event.data for event in events if event.name == name]


def text_of(events: list[SentEvent]) -> str:
    """Return the complete text."""
    return "".join(event.text for event in events)
