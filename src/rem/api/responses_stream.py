"""An answer in the format of OpenAI's `/responses`: one object, or server-sent events."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import orjson

from rem.api.errors import to_error_body
from rem.api.sse import escape_line_ends
from rem.errors import RemError
from rem.events import TextEvent

if TYPE_CHECKING:
    from rem.agents.answer_stream import AnswerStream
    from rem.agents.chat import ClientToolCall
    from rem.api.responses_request import ResponsesRequest

_STORED_ID = re.compile(r"^resp_(?P<session>[0-9a-f]{32})_[0-9a-f]{32}$")


def make_response_id(session_id: str | None) -> str:
    """Return a new id for a response. It names the session, so that the next request can continue it."""
    return f"resp_{UUID(session_id).hex}_{uuid4().hex}" if session_id else f"resp_{uuid4().hex}"


def find_session_id(response_id: str) -> str | None:
    """Return the session of a response; None if it was not stored, or if this is no id of a response."""
    match = _STORED_ID.match(response_id)
    return str(UUID(match["session"])) if match else None


class ResponseEncoder:
    """Encodes one answer as a response. REM's own events have no place in this protocol and are left out."""

    def __init__(self, request: ResponsesRequest, answer: AnswerStream) -> None:
        self._request = request
        self._answer = answer
        self._id = make_response_id(answer.session_id)
        self._created = int(time.time())
        self._message_id = f"msg_{uuid4().hex}"
        self._number = -1
        self._text: list[str] = []

    def to_object(self, status: str, error: RemError | None = None) -> dict[str, Any]:
        """Return the response with what has been said so far."""
        usage = self._answer.usage
        reason = self._answer.finish_reason
        if status == "completed" and reason in ("length", "content_filter"):
            status = "incomplete"
        limit = "max_output_tokens" if reason == "length" else reason
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None if error is None else {"code": "server_error", "message": str(error)},
            "incomplete_details": {"reason": limit} if status == "incomplete" else None,
            "instructions": self._request.instructions,
            "max_output_tokens": self._request.max_output_tokens,
            "model": self._answer.model,
            "output": self._list_output() if status != "in_progress" else [],
            "parallel_tool_calls": self._request.parallel_tool_calls is not False,
            "previous_response_id": self._request.previous_response_id,
            "store": self._request.store,
            "temperature": self._request.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": self._request.top_p,
            "truncation": "auto",
            "usage": {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.total_tokens,
            },
            "user": self._request.user,
            "metadata": self._request.metadata or {},
            "session_id": self._answer.session_id,
        }

    def set_text(self, text: str) -> None:
        """Set the text of an answer that is not streamed."""
        self._text = [text]

    async def encode(self) -> AsyncGenerator[bytes]:
        """Yield the events of the response; the last one has the whole response."""
        yield self._encode("response.created", response=self.to_object("in_progress"))
        yield self._encode("response.in_progress", response=self.to_object("in_progress"))
        async with aclosing(self._answer.events()) as events:
            async for event in events:
                if isinstance(event, TextEvent) and event.content:
                    if not self._text:
                        for opening in self._open_message():
                            yield opening
                    self._text.append(event.content)
                    yield self._encode("response.output_text.delta", **self._place(), delta=event.content, logprobs=[])
        for closing in self._close_items():
            yield closing
        if self._answer.error is not None:
            yield self._encode("response.failed", response=self.to_object("failed", self._answer.error))
            return
        response = self.to_object("completed")
        yield self._encode(f"response.{response['status']}", response=response)

    def encode_interruption(self, error: RemError) -> bytes:
        """Return the end of a response that the server interrupts."""
        body = to_error_body(error)
        return self._encode("error", code=body.code, message=body.message, param=None)

    def _open_message(self) -> Iterator[bytes]:
        item = {**self._make_message("in_progress"), "content": []}
        yield self._encode("response.output_item.added", output_index=0, item=item)
        yield self._encode("response.content_part.added", **self._place(), part=_make_part(""))

    def _close_items(self) -> Iterator[bytes]:
        if self._text:
            text = "".join(self._text)
            yield self._encode("response.output_text.done", **self._place(), text=text, logprobs=[])
            yield self._encode("response.content_part.done", **self._place(), part=_make_part(text))
            yield self._encode("response.output_item.done", output_index=0, item=self._make_message("completed"))
        for index, item in enumerate(_list_calls(self._answer.client_calls), start=1 if self._text else 0):
            place = {"output_index": index, "item_id": item["id"]}
            opened = {**item, "arguments": "", "status": "in_progress"}
            yield self._encode("response.output_item.added", output_index=index, item=opened)
            yield self._encode("response.function_call_arguments.delta", **place, delta=item["arguments"])
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield self._encode("response.function_call_arguments.done", **place, **done)
            yield self._encode("response.output_item.done", output_index=index, item=item)

    def _list_output(self) -> list[dict[str, Any]]:
        messages = [self._make_message("completed")] if self._text else []
        return [*messages, *_list_calls(self._answer.client_calls)]

    def _make_message(self, status: str) -> dict[str, Any]:
        content = [_make_part("".join(self._text))]
        return {"id": self._message_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def _encode(self, name: str, /, **fields: Any) -> bytes:
        self._number += 1
        data = orjson.dumps({"type": name, "sequence_number": self._number, **fields})
        return b"event: " + name.encode() + b"\ndata: " + escape_line_ends(data) + b"\n\n"


def _make_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _list_calls(calls: Sequence[ClientToolCall]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"fc_{call.id}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
        for call in calls
    ]
