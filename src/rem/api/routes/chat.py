"""`POST /chat/completions`."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from rem.agents.answer_stream import AnswerStream
from rem.agents.chat import AgentAnswer, AgentRequest
from rem.api.chat_request import ChatMessage, ChatRequest
from rem.api.dependencies import AgentsDep, ContextDep, SettingsDep
from rem.api.disconnect import cancel_on_disconnect
from rem.api.errors import ErrorResponse
from rem.api.sse import ChunkEncoder, SseResponse, new_completion_id, token_usage
from rem.audio.transcription import decode_audio, transcribe
from rem.errors import InvalidInputError
from rem.settings import Settings

router = APIRouter(tags=["chat"])

_SESSION = "X-Session-Id"


class CompletionMessage(BaseModel):
    """What the agent said."""

    role: Literal["assistant"] = "assistant"
    content: str


class Choice(BaseModel):
    """The one answer."""

    index: int = 0
    message: CompletionMessage
    finish_reason: str


class CompletionUsage(BaseModel):
    """How many tokens the answer took, those of agents that were asked on the way included."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """A whole answer, in OpenAI's shape."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage
    session_id: str | None = Field(default=None, description="also in the header X-Session-Id")
    message_id: str | None = None


_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ChatCompletion,
        "description": "The answer; with `stream`, server-sent events: OpenAI's chunks, and REM's named events.",
        "content": {"text/event-stream": {}},
        "headers": {_SESSION: {"description": "Where it is remembered.", "schema": {"type": "string"}}},
    },
    **{status: {"model": ErrorResponse} for status in (404, 409, 502, 503, 504)},
}


@router.post("/chat/completions", responses=_RESPONSES, response_model=None)
async def complete_chat(  # the headers are parameters so that the documentation shows them
    request: Request,
    body: ChatRequest,
    context: ContextDep,
    agents: AgentsDep,
    settings: SettingsDep,
    x_session_id: Annotated[str | None, Header(description="The conversation; a new one if not given.")] = None,
    x_agent_schema: Annotated[str | None, Header(description="Which agent answers; `rem` if not given.")] = None,
    x_model_name: Annotated[str | None, Header(description="The model; goes before the body's.")] = None,
    x_chat_is_audio: Annotated[bool, Header(description="The last message is a recording in base64.")] = False,
) -> Response:
    """Ask an agent. It is told what was said before in the session, and what it answers is remembered."""
    question = body.question
    turn = AgentRequest(
        context=context,
        text=await _text_of(question, x_chat_is_audio, settings),
        model=body.model,
        client_history=body.history,
        instructions=body.instructions,
        model_settings=body.model_settings,
        output_schema=body.response_format.output_schema if body.response_format else None,
    )
    conversation = await agents.start(turn)
    headers = {_SESSION: conversation.session_id} if conversation.session_id else {}
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        return SseResponse(ChunkEncoder(conversation, with_usage=with_usage).encode(), headers)
    answer = await cancel_on_disconnect(request, conversation.collect())
    return JSONResponse(_completion(answer, conversation).model_dump(mode="json"), headers=headers)


async def _text_of(question: ChatMessage, is_audio: bool, settings: Settings) -> str:
    """What the user says, also if it was spoken."""
    is_recording = is_audio and not question.recordings
    recordings = [question.text] if is_recording else question.recordings
    if not recordings:
        return question.text
    spoken = [await transcribe(decode_audio(recording, settings), settings) for recording in recordings]
    said = "\n".join(text for text in ("" if is_recording else question.text, *spoken) if text.strip())
    if not said:
        raise InvalidInputError("No words were understood in the recording: speak again, or send text.")
    return said


def _completion(answer: AgentAnswer, conversation: AnswerStream) -> ChatCompletion:
    return ChatCompletion(
        id=new_completion_id(),
        created=int(time.time()),
        model=answer.model,
        choices=[Choice(message=CompletionMessage(content=answer.text), finish_reason=answer.finish_reason)],
        usage=CompletionUsage(**token_usage(conversation)),
        session_id=answer.session_id,
        message_id=answer.message_id,
    )
