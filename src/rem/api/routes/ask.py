"""`/ask`: answer a question from the memory, without a language model."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel, ConfigDict, Field

from rem.api.caller_turns import find_turns
from rem.api.dependencies import ContextDep, JsonBody, RemDep
from rem.api.disconnect import cancel_on_disconnect
from rem.app import Rem
from rem.context import AgentContext
from rem.db.database import taking_turns
from rem.errors import NotFoundError
from rem.models.message import Role
from rem.models.results import Answer

router = APIRouter(tags=["query"])

EXAMPLE: dict[str, Any] = {"question": {"summary": "A question", "value": {"question": "Where is the key of my bike?"}}}


class AskRequest(BaseModel):
    """A question to the memory."""

    model_config = ConfigDict(extra="forbid")

    question: str = Field(description="A question in plain words, a name, or a query.")
    previous: str | None = Field(
        default=None,
        description="The question before it, for a follow-up such as `and when?`. Default: the last message of the "
        "user in the session that X-Session-Id names.",
    )


class Quote(BaseModel):
    """The sentence that answers."""

    hit: int = Field(description="The place of its row in `hits`.")
    start: int = Field(description="Its first character in the text of the row.")
    end: int
    text: str


class AnswerResponse(BaseModel):
    """The answer, and the rows that it was read from."""

    status: Literal["answered", "nearest", "nothing"] = Field(
        description="`nearest`: no row clearly answers, the closest ones are named. `nothing`: nothing was found."
    )
    text: str = Field(description="The answer in words, with titles and dates of its sources.")
    quote: Quote | None
    confidence: float = Field(description="How likely the answer is right, from 0 to 1.")
    hits: list[dict[str, Any]] = Field(description="The rows, best first, as in the results of a query.")
    notes: list[dict[str, Any]]


@router.post("/ask", summary="Ask the memory", dependencies=[JsonBody])
async def ask(
    http: Request, request: Annotated[AskRequest, Body(openapi_examples=EXAMPLE)], rem: RemDep, context: ContextDep
) -> AnswerResponse:
    """Answer a question from the caller's own memory and the rows that the workspace shares.

    A query is run, an exact key is looked up, anything else is searched and read. No language model takes part, and
    nothing is stored.
    """
    answer = await cancel_on_disconnect(http, _ask_in_turn(http, request, rem, context))
    return AnswerResponse.model_validate(answer.as_json())


async def _ask_in_turn(http: Request, request: AskRequest, rem: Rem, context: AgentContext) -> Answer:
    async with find_turns(http.scope):
        with taking_turns(None):
            previous = request.previous if request.previous is not None else await _find_previous(rem, context)
            return await rem.for_user(context.scope).ask(request.question, previous=previous)


async def _find_previous(rem: Rem, context: AgentContext) -> str:
    """Return the last message of the user in the caller's session; "" without one."""
    if context.session_id is None:
        return ""
    context = await rem.resolve_session(context)
    try:
        history = await rem.for_user(context.scope).sessions.get_history(UUID(str(context.session_id)))
    except NotFoundError:
        return ""
    return next((message.content for message in reversed(history.messages) if message.role == Role.USER), "")
