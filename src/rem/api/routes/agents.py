"""`/agents`: agents that are defined in YAML, and their answers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rem.agents.chat import AgentAnswer, AgentRequest
from rem.agents.schema import AgentSchema
from rem.api.dependencies import AgentsDep, ContextDep, JsonBody, ScopeDep
from rem.api.disconnect import cancel_on_disconnect
from rem.api.openapi_errors import Responses, error_responses
from rem.api.pages import Page
from rem.errors import InvalidInputError
from rem.models.field_types import utc_now

router = APIRouter(prefix="/agents", tags=["agents"])

_YAML = "application/yaml"
_YAML_TYPES = (_YAML, "application/x-yaml", "text/yaml", "text/x-yaml")
_EXAMPLE = {
    "type": "object",
    "description": "You answer questions about cooking, in two sentences.",
    "properties": {},
    "json_schema_extra": {"kind": "agent", "name": "cook", "version": "1.0.0", "tools": [{"name": "search_rem"}]},
}
_DOCUMENT: dict[str, Any] = {"schema": {"type": "object", "title": "AgentDocument"}, "example": _EXAMPLE}
_CONTENT = {"application/json": _DOCUMENT, _YAML: _DOCUMENT}
_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": _CONTENT}}
_AS_WRITTEN: Responses = {200: {"description": "The agent's definition.", "content": _CONTENT}}
Name = Annotated[str, Path(description="The agent's name, such as `rem`.", max_length=200)]


class AgentSummary(BaseModel):
    """An agent, in a few words."""

    name: str
    version: str
    kind: str
    summary: str
    source: Literal["built in", "folder", "database"]
    tools: list[str]
    structured_output: bool
    model: str | None = None


class AgentRunRequest(BaseModel):
    """What an agent is asked."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"input": "What do we know about Sarah Chen?"}}
    )

    input: str = Field(min_length=1, description="The message.")
    session_id: str | None = Field(default=None, description="The conversation to go on with; X-Session-Id, too.")
    model: str | None = Field(default=None, description="Another model than the agent's own.")


class ToolCall(BaseModel):
    """A tool that the agent called."""

    model_config = ConfigDict(extra="allow")

    name: str
    args: Any = None
    result: Any = None


class TokenUsage(BaseModel):
    """How many tokens the answer took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AgentResponse(BaseModel):
    """What an agent answered."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "answer": "Sarah Chen leads the API team.",
                "reasoning": None,
                "tool_calls": [{"name": "lookup", "args": {"key": "sarah-chen"}, "result": {"count": 1}}],
                "confidence": 0.95,
                "timestamp": "2026-11-15T10:00:00Z",
                "agent": "rem",
                "model": "openai:gpt-4o",
                "session_id": "0b0c9c53-0a0e-4d51-8b2e-0b3b4a1c9f10",
                "usage": {"prompt_tokens": 150, "completion_tokens": 12, "total_tokens": 162},
            }
        }
    )

    answer: str
    reasoning: str | None = Field(default=None, description="What the model thought before it answered.")
    tool_calls: list[ToolCall] = Field(default_factory=list)
    confidence: float | None = Field(default=None, ge=0, le=1, description="As the agent noted it; null if it did not.")
    timestamp: datetime = Field(default_factory=utc_now)
    output: dict[str, Any] | None = Field(default=None, description="The fields of an agent with structured output.")
    agent: str
    model: str
    session_id: str | None = Field(default=None, description="Where the conversation is kept.")
    message_id: str | None = None
    usage: TokenUsage


@router.get("", summary="List the agents")
async def list_agents(agents: AgentsDep, scope: ScopeDep) -> Page[AgentSummary]:
    """The agents that the caller can ask: built in, of the server's folder, and stored ones."""
    return Page[AgentSummary](data=[_summary(schema) for schema in await agents.catalog.list(scope)])


@router.get("/{name}", summary="Get an agent", response_model=None, responses=_AS_WRITTEN | error_responses(404))
async def get_agent(
    agents: AgentsDep,
    scope: ScopeDep,
    name: Name,
    form: Annotated[
        Literal["json", "yaml"] | None, Query(alias="format", description="In place of the Accept header.")
    ] = None,
    accept: Annotated[str, Header(description="`application/yaml` for YAML.")] = "",
) -> Response:
    """The definition of an agent, as JSON or as YAML."""
    schema = await agents.catalog.get(name, scope)
    wants_yaml = form == "yaml" or (form is None and any(kind in accept for kind in _YAML_TYPES))
    return Response(schema.as_yaml(), media_type=_YAML) if wants_yaml else JSONResponse(schema.as_document())


@router.post("", summary="Save an agent", openapi_extra=_BODY, responses=error_responses(409, 415))
async def save_agent(request: Request, agents: AgentsDep, scope: ScopeDep) -> AgentSummary:
    """Keep an agent of the caller's own, written in YAML or JSON, over the one of its name if there is one."""
    return _summary(await agents.catalog.save(await _text(request), scope))


@router.put(
    "/{name}", summary="Save an agent under its name", openapi_extra=_BODY, responses=error_responses(404, 409, 415)
)
async def put_agent(request: Request, agents: AgentsDep, scope: ScopeDep, name: Name) -> AgentSummary:
    """The same, refused if the definition has another name than the path."""
    from rem.agents.yaml_parser import parse_agent

    text = await _text(request)
    written = parse_agent(text, "the body").name
    if written != name:
        raise InvalidInputError(f"The definition is of {written!r} and the path says {name!r}: make them the same.")
    return _summary(await agents.catalog.save(text, scope))


@router.delete("/{name}", status_code=204, summary="Delete an agent", responses=error_responses(404, 409))
async def delete_agent(agents: AgentsDep, scope: ScopeDep, name: Name) -> None:
    """Delete an agent that the caller saved."""
    await agents.catalog.delete(name, scope)


@router.post(
    "/{name}/run", summary="Ask an agent", responses=error_responses(404, 409, 502, 504), dependencies=[JsonBody]
)
async def run_agent(
    http: Request,
    agents: AgentsDep,
    context: ContextDep,
    name: Name,
    request: AgentRunRequest,
    response: Response,
    x_session_id: Annotated[str | None, Header(description="The conversation to go on with.")] = None,
) -> AgentResponse:
    """The whole answer of an agent at once. `POST /chat/completions` streams it."""
    if request.session_id:
        context = context.in_session(request.session_id)
    turn = AgentRequest(context=context, text=request.input, agent=name, model=request.model)
    answer = await cancel_on_disconnect(http, agents.run(turn))
    if answer.session_id:
        response.headers["X-Session-Id"] = answer.session_id
    return _response(answer)


def _summary(schema: AgentSchema) -> AgentSummary:
    is_file = schema.source not in ("built in", "database")
    return AgentSummary(
        name=schema.name,
        version=schema.version,
        kind=schema.kind,
        summary=schema.summary,
        # The path of the file is the server's own business.
        source="folder" if is_file else schema.source,
        tools=schema.tool_names,
        structured_output=schema.structured_output,
        model=schema.model,
    )


def _response(answer: AgentAnswer) -> AgentResponse:
    usage = answer.usage
    return AgentResponse(
        answer=answer.text,
        reasoning=answer.reasoning,
        tool_calls=[ToolCall.model_validate(call) for call in answer.tool_calls],
        confidence=answer.confidence,
        output=answer.output,
        agent=answer.agent,
        model=answer.model,
        session_id=answer.session_id,
        message_id=answer.message_id,
        usage=TokenUsage(
            prompt_tokens=usage.input_tokens, completion_tokens=usage.output_tokens, total_tokens=usage.total_tokens
        ),
    )


async def _text(request: Request) -> str:
    """The body, if its type says what it is: plain text, which any web page may send, is not enough."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", *_YAML_TYPES):
        raise HTTPException(415, f"An agent is written in YAML or JSON: send it as {_YAML} or application/json.")
    try:
        return (await request.body()).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("The agent is not UTF-8 text: save it as UTF-8.") from error
