"""`POST /chat/completions`: chat with an agent by OpenAI's protocol."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from rem.agents.answer_stream import AnswerStream
from rem.agents.chat import AgentAnswer
from rem.api.chat_request import ChatMessage, ChatRequest, ChatToolCall
from rem.api.dependencies import AgentsDep, ContextDep, SettingsDep
from rem.api.disconnect import cancel_on_disconnect
from rem.api.errors import ErrorResponse
from rem.api.sse import ChunkEncoder, SseResponse, new_completion_id, to_tool_call, token_usage
from rem.audio.transcription import decode_audio, transcribe
from rem.errors import InvalidInputError
from rem.settings import Settings

router = APIRouter(tags=["chat"])

SESSION_HEADER = "X-Session-Id"


class CompletionMessage(BaseModel):
    """The message of the agent."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    tool_calls: list[ChatToolCall] | None = Field(
        default=None, description="calls of the client's tools, to be carried out"
    )


class Choice(BaseModel):
    """The only choice: REM returns one answer."""

    index: int = 0
    message: CompletionMessage
    finish_reason: str


class CompletionUsage(BaseModel):
    """The number of tokens of the answer, including those of agents that it delegated to."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """A complete answer in OpenAI's format."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage
    session_id: str | None = Field(
        default=None, description="the session that stores the answer; also in the header X-Session-Id"
    )
    message_id: str | None = None
    masked: list[str] = Field(default=[], description="what was masked in the stored messages, such as `api key`")
    approval_id: str | None = Field(
        default=None, description="the request for approval on which the answer waits (`/approvals/{id}`)"
    )


RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ChatCompletion,
        "description": "The answer; with `stream`: server-sent events, OpenAI's chunks and REM's named events.",
        "content": {"text/event-stream": {}},
        "headers": {
            SESSION_HEADER: {"description": "The session that stores the answer.", "schema": {"type": "string"}}
        },
    },
    **{status: {"model": ErrorResponse} for status in (404, 409, 502, 503, 504)},
}


@router.post("/chat/completions", responses=RESPONSES, response_model=None)
async def complete_chat(  # the headers are parameters to appear in the OpenAPI document
    request: Request,
    body: ChatRequest,
    context: ContextDep,
    agents: AgentsDep,
    settings: SettingsDep,
    x_session_id: Annotated[str | None, Header(description="The session; default: a new one.")] = None,
    x_agent_schema: Annotated[str | None, Header(description="The agent; default: `rem`.")] = None,
    x_model_name: Annotated[str | None, Header(description="The model; overrides the one in the body.")] = None,
    x_chat_is_audio: Annotated[bool, Header(description="The last message is a recording in base64.")] = False,
) -> Response:
    """Ask an agent. It receives the earlier messages of the session, and its answer is stored in the session."""
    text = await _get_text(body.question, x_chat_is_audio, settings)
    stream = await agents.start(body.to_agent_request(context, text))
    headers = {SESSION_HEADER: stream.session_id} if stream.session_id else {}
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        encoder = ChunkEncoder(stream, with_usage=with_usage)
        return SseResponse(encoder.encode(), headers, on_interruption=encoder.encode_interruption)
    answer = await cancel_on_disconnect(request, stream.collect())
    return JSONResponse(_to_completion(answer, stream).model_dump(mode="json"), headers=headers)


async def _get_text(question: ChatMessage, is_audio: bool, settings: Settings) -> str:
    """Return the text of the user's message, with its recordings transcribed."""
    text_is_recording = is_audio and not question.recordings
    recordings = [question.text] if text_is_recording else question.recordings
    if not recordings:
        return question.text
    transcripts = [await transcribe(decode_audio(recording, settings), settings) for recording in recordings]
    written = "" if text_is_recording else question.text
    text = "\n".join(part for part in (written, *transcripts) if part.strip())
    if not text:
        raise InvalidInputError("No words were understood in the recording: speak again, or send text.")
    return text


def _to_completion(answer: AgentAnswer, stream: AnswerStream) -> ChatCompletion:
    return ChatCompletion(
        id=new_completion_id(),
        created=int(time.time()),
        model=answer.model,
        choices=[Choice(message=_to_message(answer), finish_reason=answer.finish_reason)],
        usage=CompletionUsage(**token_usage(stream)),
        session_id=answer.session_id,
        message_id=answer.message_id,
        masked=answer.masked,
        approval_id=answer.approval_id,
    )


def _to_message(answer: AgentAnswer) -> CompletionMessage:
    calls = [ChatToolCall.model_validate(to_tool_call(call)) for call in answer.client_calls]
    # With calls, OpenAI's content is null if nothing was said.
    return CompletionMessage(content=answer.text if answer.text or not calls else None, tool_calls=calls or None)
