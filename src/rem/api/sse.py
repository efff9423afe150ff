"""Stream an answer as server-sent events: OpenAI's chunks, and REM's named events between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
from starlette.responses import Response

from rem.agents.json_safe import to_json_safe
from rem.api.credential_watch import get_interruption
from rem.api.disconnect import wait_for_disconnect
from rem.api.errors import to_error_body
from rem.errors import RemError
from rem.events import DoneEvent, ErrorEvent, Event, TextEvent

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from rem.agents.answer_stream import AnswerStream
    from rem.agents.chat import ClientToolCall

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
LINE_ENDS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029", "\u0085".encode(): b"\\u0085"}
"""Characters other than CR and LF that end a line in Python's `splitlines` and elsewhere, and their JSON escapes."""
PING_SECONDS = 15.0
"""Shorter than the idle timeouts that are common in proxies (30 to 60 seconds)."""
MAX_QUEUED_CHUNKS = 256
"""A client that is slower than this buffer slows down the model, instead of filling the memory."""


class ChunkEncoder:
    """Encodes the events of one answer as OpenAI chunks.

    A named event is also a complete chunk, with further fields, because OpenAI's clients parse every event.
    """

    def __init__(self, answer: AnswerStream, *, with_usage: bool) -> None:
        self._answer = answer
        self._with_usage = with_usage
        self._base: dict[str, Any] = {
            "id": new_completion_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": answer.model,
        }

    async def encode(self) -> AsyncGenerator[bytes]:
        """Yield the encoded chunks and events of the answer, `[DONE]` last."""
        yield self._encode_chunk({"role": "assistant", "content": ""})
        async with aclosing(self._answer.events()) as events:
            async for event in events:
                if isinstance(event, TextEvent):
                    yield self._encode_chunk({"content": event.content})
                    continue
                if isinstance(event, DoneEvent):
                    for index, call in enumerate(self._answer.client_calls):
                        yield self._encode_chunk({"tool_calls": [{"index": index, **to_tool_call(call)}]})
                    yield self._encode_chunk({}, self._finish_reason())
                yield self._encode_event(event)
        if self._with_usage:
            yield self._encode({"choices": [], "usage": token_usage(self._answer)})
        yield DONE

    def encode_interruption(self, error: RemError) -> bytes:
        """Return the end of an answer that the server interrupts, because it stops or the caller's key is revoked."""
        fields = ErrorEvent(agent=self._answer.agent, code=error.code, message=str(error)).model_dump(
            mode="json", exclude_none=True
        )
        fields["error"] = to_error_body(error).model_dump(mode="json")
        done = self._encode_event(DoneEvent(agent=self._answer.agent, reason="error"))
        return self._encode_named("error", fields) + self._encode_chunk({}, "stop") + done + DONE

    def _finish_reason(self) -> str:
        reason = self._answer.finish_reason
        return "stop" if reason == "error" else reason

    def _encode_chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return self._encode({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    def _encode_event(self, event: Event) -> bytes:
        fields = event.model_dump(mode="json", exclude_none=True)
        if isinstance(event, ErrorEvent) and self._answer.error is not None:
            fields["error"] = to_error_body(self._answer.error).model_dump(mode="json")
        return self._encode_named(event.type, fields)

    def _encode_named(self, name: str, fields: dict[str, Any]) -> bytes:
        choice = {"index": 0, "delta": {}, "finish_reason": None}
        return b"event: " + name.encode() + b"\n" + self._encode({"choices": [choice], **to_json_safe(fields)})

    def _encode(self, fields: dict[str, Any]) -> bytes:
        return b"data: " + escape_line_ends(orjson.dumps({**self._base, **fields})) + b"\n\n"


def to_tool_call(call: ClientToolCall) -> dict[str, Any]:
    """Return a call of a client's tool in OpenAI's format."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def escape_line_ends(data: bytes) -> bytes:
    """Return JSON without the characters that some readers take for the end of a line, such as U+2028."""
    for encoded, escaped in LINE_ENDS.items():
        if encoded in data:
            data = data.replace(encoded, escaped)
    return data


def new_completion_id() -> str:
    """Return a new id for an answer."""
    return f"chatcmpl-{uuid4().hex}"


def token_usage(answer: AnswerStream) -> dict[str, int]:
    """Return the number of tokens that an answer used, by OpenAI's field names."""
    usage = answer.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }


class SseResponse(Response):
    """Sends the chunks of an iterator, as many at once as are ready, and a ping when there are none for a while.

    It cancels the iterator as soon as the client disconnects. Starlette's own streaming response notices that only
    when it sends the next chunk; until then, a model would go on without a reader.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        headers: Mapping[str, str],
        ping_seconds: float = PING_SECONDS,
        *,
        on_interruption: Callable[[RemError], bytes] = lambda _error: b"",
    ) -> None:
        """Send `chunks`, or what `on_interruption` returns if the server interrupts them before their end."""
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._chunks = chunks
        self._ping_seconds = ping_seconds
        self._on_interruption = on_interruption
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_QUEUED_CHUNKS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends or the client disconnects."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        producer = asyncio.create_task(self._fill_queue())
        sender = asyncio.create_task(self._send_queue(send))
        listener = asyncio.create_task(wait_for_disconnect(receive))
        tasks = (producer, sender, listener)
        is_interrupted = False
        try:
            await asyncio.wait((sender, listener), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # A server that stops cancels a request, and so does a revoked credential.
            is_interrupted = not sender.done() and not listener.done()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if is_interrupted:
                end = self._on_interruption(get_interruption(scope))
                await send({"type": "http.response.body", "body": end, "more_body": False})
        for task in (producer, sender):
            if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, OSError):
                raise error

    async def _fill_queue(self) -> None:
        """Put the chunks into the queue, and None at the end."""
        try:
            async with aclosing(self._chunks) as chunks:
                async for chunk in chunks:
                    await self._queue.put(chunk)
        finally:
            with suppress(asyncio.QueueFull):
                self._queue.put_nowait(None)

    async def _send_queue(self, send: Send) -> None:
        while True:
            try:
                async with asyncio.timeout(self._ping_seconds):
                    chunks = [await self._queue.get()]
            except TimeoutError:
                await send({"type": "http.response.body", "body": PING, "more_body": True})
                continue
            while not self._queue.empty():
                chunks.append(self._queue.get_nowait())
            body = b"".join(chunk for chunk in chunks if chunk is not None)
            is_last = None in chunks
            await send({"type": "http.response.body", "body": body, "more_body": not is_last})
            if is_last:
                return
