"""Chunks: a conversation's events in OpenAI's streaming format."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from rem.agents.sendable import sendable
from rem.api.errors import body_of
from rem.events import DoneEvent, ErrorEvent, Event, TextEvent

if TYPE_CHECKING:
    from rem.agents.conversation import Conversation

DONE = b"data: [DONE]\n\n"


class Chunks:
    """Encodes the events of one answer. A named event is a chunk with more beside it, because clients read them all."""

    def __init__(self, conversation: Conversation, *, with_usage: bool) -> None:
        self._conversation = conversation
        self._with_usage = with_usage
        self._base: dict[str, Any] = {
            "id": completion_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": conversation.model,
        }

    async def encoded(self) -> AsyncGenerator[bytes]:
        """The stream's lines, a chunk or event at a time."""
        yield self._chunk({"role": "assistant", "content": ""})
        async with aclosing(self._conversation.events()) as events:
            async for event in events:
                if isinstance(event, TextEvent):
                    yield self._chunk({"content": event.content})
                    continue
                if isinstance(event, DoneEvent):
                    yield self._chunk({}, self._finish_reason())
                yield self._named(event)
        if self._with_usage:
            yield self._usage()
        yield DONE

    def _finish_reason(self) -> str:
        reason = self._conversation.finish_reason
        return "stop" if reason == "error" else reason

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return b"data: " + orjson.dumps({**self._base, "choices": [choice]}) + b"\n\n"

    def _named(self, event: Event) -> bytes:
        told = event.model_dump(mode="json", exclude_none=True)
        if isinstance(event, ErrorEvent) and self._conversation.error is not None:
            told["error"] = body_of(self._conversation.error).model_dump(mode="json")
        choice = {"index": 0, "delta": {}, "finish_reason": None}
        data = orjson.dumps({**self._base, "choices": [choice], **sendable(told)})
        return b"event: " + event.type.encode() + b"\ndata: " + data + b"\n\n"

    def _usage(self) -> bytes:
        return b"data: " + orjson.dumps({**self._base, "choices": [], "usage": usage_of(self._conversation)}) + b"\n\n"


def completion_id() -> str:
    """The id of an answer."""
    return f"chatcmpl-{uuid4().hex}"


def usage_of(conversation: Conversation) -> dict[str, int]:
    """How many tokens an answer took, in OpenAI's words."""
    usage = conversation.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
