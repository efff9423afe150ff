"""SseResponse: a stream of server-sent events that notices at once when nobody listens any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
from starlette.responses import Response

from rem.agents.json_safe import to_json_safe
from rem.api.disconnect import wait_for_disconnect
from rem.api.errors import to_error_body
from rem.events import DoneEvent, ErrorEvent, Event, TextEvent

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from rem.agents.answer_stream import AnswerStream


PING = b": ping\n\n"
_PING_SECONDS = 15.0
_WAITING = 256
"""So many chunks may wait for a slow client before the model has to wait, too."""


class SseResponse(Response):
    """Sends what an iterator yields, several pieces at once if they are there, and a ping when it is quiet.

    Starlette's own response learns of a closed connection only when it sends the next piece: a model that thinks for
    a minute would think for nobody.
    """

    media_type = "text/event-stream"

    def __init__(
        self, pieces: AsyncGenerator[bytes], headers: Mapping[str, str], ping_seconds: float = _PING_SECONDS
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._pieces = pieces
        self._ping_seconds = ping_seconds
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, until it ends or the client goes away."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        producing = asyncio.create_task(self._produce())
        sending = asyncio.create_task(self._send(send))
        listening = asyncio.create_task(wait_for_disconnect(receive))
        tasks = (producing, sending, listening)
        try:
            await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in (producing, sending):
            if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, OSError):
                raise error

    async def _produce(self) -> None:
        try:
            async with aclosing(self._pieces) as pieces:
                async for piece in pieces:
                    await self._queue.put(piece)
        finally:
            with suppress(asyncio.QueueFull):
                self._queue.put_nowait(None)

    async def _send(self, send: Send) -> None:
        while True:
            try:
                async with asyncio.timeout(self._ping_seconds):
                    pieces = [await self._queue.get()]
            except TimeoutError:
                await send({"type": "http.response.body", "body": PING, "more_body": True})
                continue
            while not self._queue.empty():
                pieces.append(self._queue.get_nowait())
            body = b"".join(piece for piece in pieces if piece is not None)
            is_over = None in pieces
            await send({"type": "http.response.body", "body": body, "more_body": not is_over})
            if is_over:
                return


DONE = b"data: [DONE]\n\n"


class ChunkEncoder:
    """Encodes the events of one answer. A named event is a chunk with more beside it, because clients read them all."""

    def __init__(self, conversation: AnswerStream, *, with_usage: bool) -> None:
        self._conversation = conversation
        self._with_usage = with_usage
        self._base: dict[str, Any] = {
            "id": new_completion_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": conversation.model,
        }

    async def encode(self) -> AsyncGenerator[bytes]:
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
            told["error"] = to_error_body(self._conversation.error).model_dump(mode="json")
        choice = {"index": 0, "delta": {}, "finish_reason": None}
        data = orjson.dumps({**self._base, "choices": [choice], **to_json_safe(told)})
        return b"event: " + event.type.encode() + b"\ndata: " + data + b"\n\n"

    def _usage(self) -> bytes:
        return (
            b"data: " + orjson.dumps({**self._base, "choices": [], "usage": token_usage(self._conversation)}) + b"\n\n"
        )


def new_completion_id() -> str:
    """The id of an answer."""
    return f"chatcmpl-{uuid4().hex}"


def token_usage(conversation: AnswerStream) -> dict[str, int]:
    """How many tokens an answer took, in OpenAI's words."""
    usage = conversation.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
