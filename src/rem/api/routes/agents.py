"""`/agents`: list, save and delete agents that are defined in YAML, and run them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from rem.agents.chat import AgentRequest
from rem.agents.response import AgentResponse
from rem.agents.schema import AgentSchema
from rem.api.dependencies import AgentsDep, ContextDep, JsonBody, ScopeDep
from rem.api.disconnect import cancel_on_disconnect
from rem.api.openapi_errors import Responses, error_responses
from rem.api.pagination import Page
from rem.errors import InvalidInputError

router = APIRouter(prefix="/agents", tags=["agents"])

YAML = "application/yaml"
YAML_TYPES = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")
EXAMPLE = {
    "type": "object",
    "description": "You answer questions about cooking, in two sentences.",
    "properties": {},
    "json_schema_extra": {"kind": "agent", "name": "cook", "version": "1.0.0", "tools": [{"name": "search_rem"}]},
}
DOCUMENT: dict[str, Any] = {"schema": {"type": "object", "title": "AgentDocument"}, "example": EXAMPLE}
CONTENT = {"application/json": DOCUMENT, YAML: DOCUMENT}
REQUEST_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": CONTENT}}
DEFINITION_RESPONSE: Responses = {200: {"description": "The agent's definition.", "content": CONTENT}}
AgentName = Annotated[str, Path(description="The agent's name, such as `rem`.", max_length=200)]


class AgentSummary(BaseModel):
    """The main fields of an agent."""

    name: str
    version: str
    kind: str
    summary: str
    source: Literal["built in", "folder", "database"]
    tools: list[str]
    structured_output: bool
    model: str | None = None


class AgentRunRequest(BaseModel):
    """A message to an agent."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"input": "What do we know about Sarah Chen?"}}
    )

    input: str = Field(min_length=1, description="The message.")
    session_id: str | None = Field(
        default=None, description="The session to continue; also as the header X-Session-Id."
    )
    model: str | None = Field(default=None, description="A model to use instead of the agent's own.")


@router.get("", summary="List the agents")
async def list_agents(agents: AgentsDep, scope: ScopeDep) -> Page[AgentSummary]:
    """List the agents that the caller can run: built-in ones, those of the server's folder, and saved ones."""
    return Page[AgentSummary](data=[_to_summary(schema) for schema in await agents.catalog.list(scope)])


@router.get(
    "/{name}", summary="Get an agent", response_model=None, responses=DEFINITION_RESPONSE | error_responses(404)
)
async def get_agent(
    agents: AgentsDep,
    scope: ScopeDep,
    name: AgentName,
    form: Annotated[
        Literal["json", "yaml"] | None, Query(alias="format", description="Overrides the Accept header.")
    ] = None,
    accept: Annotated[str, Header(description="`application/yaml` for YAML.")] = "",
) -> Response:
    """Return the definition of an agent as JSON or YAML."""
    schema = await agents.catalog.get(name, scope)
    wants_yaml = form == "yaml" or (form is None and any(media_type in accept for media_type in YAML_TYPES))
    return Response(schema.as_yaml(), media_type=YAML) if wants_yaml else JSONResponse(schema.as_document())


@router.post("", summary="Save an agent", openapi_extra=REQUEST_BODY, responses=error_responses(409, 415))
async def save_agent(request: Request, agents: AgentsDep, scope: ScopeDep) -> AgentSummary:
    """Save an agent of the caller, in YAML or JSON. It replaces the caller's agent with the same name."""
    return _to_summary(await agents.catalog.save(await _read_text(request), scope))


@router.put(
    "/{name}",
    summary="Save an agent under its name",
    openapi_extra=REQUEST_BODY,
    responses=error_responses(404, 409, 415),
)
async def put_agent(request: Request, agents: AgentsDep, scope: ScopeDep, name: AgentName) -> AgentSummary:
    """Save an agent of the caller. The name in the definition must be the name in the path."""
    from rem.agents.yaml_parser import parse_agent

    text = await _read_text(request)
    defined_name = (await asyncio.to_thread(parse_agent, text, "the body")).name
    if defined_name != name:
        raise InvalidInputError(f"The definition has the name {defined_name!r}, the path {name!r}: use the same name.")
    return _to_summary(await agents.catalog.save(text, scope))


@router.delete("/{name}", status_code=204, summary="Delete an agent", responses=error_responses(404, 409))
async def delete_agent(agents: AgentsDep, scope: ScopeDep, name: AgentName) -> None:
    """Delete an agent that the caller saved."""
    await agents.catalog.delete(name, scope)


@router.post(
    "/{name}/run", summary="Run an agent", responses=error_responses(404, 409, 502, 504), dependencies=[JsonBody]
)
async def run_agent(
    http: Request,
    agents: AgentsDep,
    context: ContextDep,
    name: AgentName,
    request: AgentRunRequest,
    response: Response,
    x_session_id: Annotated[str | None, Header(description="The session to continue.")] = None,
) -> AgentResponse:
    """Run an agent and return its complete answer. `POST /chat/completions` can stream it."""
    if request.session_id:
        context = context.in_session(request.session_id)
    agent_request = AgentRequest(context=context, text=request.input, agent=name, model=request.model)
    answer = await cancel_on_disconnect(http, agents.run(agent_request))
    if answer.session_id:
        response.headers["X-Session-Id"] = answer.session_id
    return AgentResponse.from_answer(answer)


def _to_summary(schema: AgentSchema) -> AgentSummary:
    is_file = schema.source not in ("built in", "database")
    return AgentSummary(
        name=schema.name,
        version=schema.version,
        kind=schema.kind,
        summary=schema.summary,
        # Clients need not know the paths of the server.
        source="folder" if is_file else schema.source,
        tools=schema.tool_names,
        structured_output=schema.structured_output,
        model=schema.model,
    )


async def _read_text(request: Request) -> str:
    """Return the body. Refuse other types than YAML and JSON, because any web page may send plain text."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in ("application/json", *YAML_TYPES):
        raise HTTPException(415, f"An agent is written in YAML or JSON: send it as {YAML} or application/json.")
    try:
        return (await request.body()).decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError("The agent is not UTF-8 text: save it as UTF-8.") from error
