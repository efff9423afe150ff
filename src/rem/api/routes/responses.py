"""`POST /responses`: chat with an agent by OpenAI's newer protocol."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response

from rem.agents.client_tools import find_call_id
from rem.api.dependencies import AgentsDep, ContextDep, JsonBody
from rem.api.disconnect import cancel_on_disconnect
from rem.api.openapi_errors import error_responses
from rem.api.responses_request import ResponsesRequest
from rem.api.responses_stream import ResponseEncoder, find_session_id
from rem.api.routes.chat import SESSION_HEADER
from rem.api.sse import SseResponse
from rem.app import Rem
from rem.context import AgentContext
from rem.errors import InvalidInputError, MemoryDisabledError, NotFoundError

router = APIRouter(tags=["chat"])
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The response; with `stream`: server-sent events.",
        "content": {"application/json": {}, "text/event-stream": {}},
    },
    **error_responses(404, 409, 502, 504),
}


@router.post("/responses", responses=_RESPONSES, response_model=None, dependencies=[JsonBody])
async def create_response(  # the headers are parameters to appear in the OpenAPI document
    request: Request,
    body: ResponsesRequest,
    context: ContextDep,
    agents: AgentsDep,
    x_session_id: Annotated[str | None, Header(description="The session; default: a new one.")] = None,
    x_agent_schema: Annotated[str | None, Header(description="The agent; default: `rem`.")] = None,
    x_model_name: Annotated[str | None, Header(description="The model; overrides the one in the body.")] = None,
) -> Response:
    """Ask an agent. `previous_response_id` continues the session of an earlier response, as X-Session-Id does."""
    context = _continue_session(context, body.previous_response_id)
    messages = body.messages
    if context.session_id is not None and all(message["role"] == "tool" for message in messages):
        messages = await _add_calls(request.app.state.rem, context, messages)
    chat = body.to_chat_request(messages)
    stream = await agents.start(chat.to_agent_request(context, chat.question.text))
    headers = {SESSION_HEADER: stream.session_id} if stream.session_id else {}
    encoder = ResponseEncoder(body, stream)
    if body.stream:
        return SseResponse(encoder.encode(), headers, on_interruption=encoder.encode_interruption)
    answer = await cancel_on_disconnect(request, stream.collect())
    if answer.text:
        encoder.set_text(answer.text)
    return JSONResponse(encoder.to_object("completed"), headers=headers)


def _continue_session(context: AgentContext, response_id: str | None) -> AgentContext:
    """Return the context in the session of an earlier response."""
    if response_id is None:
        return context
    session_id = find_session_id(response_id)
    if session_id is None:
        raise NotFoundError(f"There is no stored response {response_id!r}: send the whole conversation as input.")
    return context.model_copy(update={"session_id": session_id})


async def _add_calls(rem: Rem | None, context: AgentContext, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return results of tools together with the question and the calls that they belong to, from the session."""
    if rem is None:
        raise MemoryDisabledError
    context = await rem.resolve_session(context)
    memory = rem.for_user(context.scope).sessions
    session_id = UUID(str(context.session_id))
    turn = await memory.continue_turn(session_id)
    question, *later = await memory.get_messages(session_id, after=turn.message_index - 1)
    stored = {message.tool_call_id: message for message in later if message.tool_call_id is not None}
    calls = []
    for result in results:
        call = stored.get(find_call_id(result["tool_call_id"]))
        if call is None:
            raise InvalidInputError(f"input: the last turn of the session has no call {result['tool_call_id']!r}.")
        arguments = orjson.dumps(call.tool_calls[0]["arguments"]).decode()
        function = {"name": call.tool_name, "arguments": arguments}
        calls.append({"id": result["tool_call_id"], "type": "function", "function": function})
    return [
        {"role": "user", "content": question.content},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *results,
    ]
