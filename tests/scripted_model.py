"""A language model with scripted answers, in OpenAI's protocol over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.http_server import serve_in_thread


@dataclass(frozen=True)
class Call:
    """The model calls a tool."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    id: str = "call_1"


@dataclass(frozen=True)
class Pause:
    """The model pauses."""

    seconds: float


@dataclass(frozen=True)
class Raw:
    """The provider sends raw bytes instead of a chunk."""

    data: bytes


@dataclass(frozen=True)
class HangUp:
    """The provider closes the connection in the middle."""


@dataclass(frozen=True)
class Refuse:
    """The provider answers with an error."""

    status: int
    message: str = "no"


Step: TypeAlias = str | Call | Pause | Raw | HangUp | Refuse
Script: TypeAlias = Callable[[dict[str, Any]], Sequence[Step]]


def last_text(body: dict[str, Any]) -> str:
    """Return the last user message of a request."""
    texts = [message["content"] for message in body["messages"] if message["role"] == "user"]
    content = texts[-1] if texts else ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def has_result(body: dict[str, Any]) -> bool:
    """Return whether the last message of the request is a tool result."""
    return str(body["messages"][-1]["role"]) == "tool"


def instructions(body: dict[str, Any]) -> str:
    """Return the system prompt of a request."""
    return "\n".join(
        str(message["content"]) for message in body["messages"] if message["role"] in ("system", "developer")
    )


class ScriptedModel:
    """Answers each request with the steps that `script` returns for its body."""

    def __init__(self) -> None:
        self.script: Script = lambda _body: ["Hello", " from", " the", " model."]
        self.requests: list[dict[str, Any]] = []
        self.open = 0
        """Number of streams that are being sent to connected clients."""
        self.url = ""
        self.transcript = "Hello."
        """What the model hears in every recording."""
        self.recordings: list[bytes] = []

    def app(self) -> Starlette:
        """Return the application of the server."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/audio/transcriptions", self._transcribe, methods=["POST"]),
            ]
        )

    async def _transcribe(self, request: Request) -> Response:
        async with request.form() as form:
            file = form["file"]
            assert isinstance(file, UploadFile)
            self.recordings.append(await file.read())
        return JSONResponse({"text": self.transcript})

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        steps = self.script(body)
        refusal = next((step for step in steps if isinstance(step, Refuse)), None)
        if refusal is not None:
            return JSONResponse({"error": {"message": refusal.message, "type": "x"}}, refusal.status)
        if body.get("stream"):
            return StreamingResponse(self._stream(body, steps), media_type="text/event-stream")
        await asyncio.sleep(sum(step.seconds for step in steps if isinstance(step, Pause)))
        return JSONResponse(_complete_answer(body, steps))

    async def _stream(self, body: dict[str, Any], steps: Sequence[Step]) -> AsyncIterator[bytes]:
        self.open += 1
        try:
            yield _chunk(body, {"role": "assistant", "content": ""})
            for index, step in enumerate(steps):
                match step:
                    case str():
                        yield _chunk(body, {"content": step})
                    case Call():
                        yield _chunk(body, {"tool_calls": [{"index": index, **_call(step)}]})
                    case Pause():
                        await asyncio.sleep(step.seconds)
                    case Raw():
                        yield step.data
                    case HangUp():
                        raise ConnectionAbortedError
            called = any(isinstance(step, Call) for step in steps)
            yield _chunk(body, {}, "tool_calls" if called else "stop")
            if (body.get("stream_options") or {}).get("include_usage"):
                yield _line({**_base(body), "choices": [], "usage": _usage(body, steps)})
            yield b"data: [DONE]\n\n"
        finally:
            self.open -= 1


def _base(body: dict[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}


def _line(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _chunk(body: dict[str, Any], delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _line({**_base(body), "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _call(call: Call) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(body: dict[str, Any], steps: Sequence[Step]) -> dict[str, int]:
    completion_tokens = sum(isinstance(step, str) for step in steps)
    return {
        "prompt_tokens": len(body["messages"]),
        "completion_tokens": completion_tokens,
        "total_tokens": len(body["messages"]) + completion_tokens,
    }


def _complete_answer(body: dict[str, Any], steps: Sequence[Step]) -> dict[str, Any]:
    calls = [_call(step) for step in steps if isinstance(step, Call)]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(step for step in steps if isinstance(step, str)) or None,
    }
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {**_base(body), "object": "chat.completion", "choices": [choice], "usage": _usage(body, steps)}


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    """Run a model; its address is in `url`."""
    model = ScriptedModel()
    with serve_in_thread(model.app(), timeout_graceful_shutdown=1) as address:
        model.url = f"{address}/v1"
        yield model
