"""`POST /query`: the memory, asked in REM's language, in plain language, or by a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel, ConfigDict, Field

from rem.api.dependencies import AgentsDep, ContextDep, JsonBody, RemDep
from rem.api.disconnect import cancel_on_disconnect
from rem.app import Rem
from rem.context import Scope
from rem.errors import InvalidInputError
from rem.query.language.parser import parse_query
from rem.query.tree import Fuzzy, Query, Search, Traverse
from rem.tools.env import ToolEnv
from rem.tools.search import ask_rem

router = APIRouter(tags=["query"])

Mode: TypeAlias = Literal["rem-dialect", "natural-language", "staged-plan"]

_EXAMPLES: dict[str, Any] = {
    "lookup": {"summary": "By key", "value": {"query": "LOOKUP sarah-chen"}},
    "search": {"summary": "By meaning", "value": {"query": 'SEARCH "database migration" FROM resources', "limit": 5}},
    "natural": {
        "summary": "In plain language",
        "value": {"query": "who is sarah chen?", "mode": "natural-language"},
    },
    "plan": {
        "summary": "Queries that feed each other",
        "value": {
            "mode": "staged-plan",
            "plan": {
                "stages": [
                    {"id": "people", "query": 'FUZZY "sarah" FROM users'},
                    {"id": "known", "query": "TRAVERSE FROM {people.key} DEPTH 1"},
                ]
            },
        },
    },
}


class QueryRequest(BaseModel):
    """A query of the memory."""

    model_config = ConfigDict(extra="forbid")

    query: str | None = Field(default=None, description="The query, or the question; not for a plan.")
    mode: Mode = Field(default="rem-dialect", description="How the query is written.")
    plan: dict[str, Any] | None = Field(default=None, description="The stages, for `staged-plan`.")
    limit: int | None = Field(
        default=None, ge=1, le=1000, strict=True, description="How many rows, in place of the query's LIMIT."
    )
    explain: bool = Field(default=False, strict=True, description="Also tell how long each step took.")


class QueryResponse(BaseModel):
    """The rows of an answer, best first. All but those of SQL have `table`, `key` and `record`, most a `score`."""

    model_config = ConfigDict(extra="allow")

    query_type: str = Field(description="The verb that answered: LOOKUP, FUZZY, SEARCH, TRAVERSE, SQL, PLAN or AGENT.")
    results: list[dict[str, Any]]
    count: int
    notes: list[str] | None = Field(default=None, description="What to know of the answer: how it was understood, …")


@router.post("/query", response_model_exclude_none=True, summary="Ask the memory", dependencies=[JsonBody])
async def query(
    http: Request,
    request: Annotated[QueryRequest, Body(openapi_examples=_EXAMPLES)],
    rem: RemDep,
    agents: AgentsDep,
    context: ContextDep,
) -> QueryResponse:
    """Answer a query over what the caller may see: their own memory and what their workspace shares.

    `rem-dialect` takes LOOKUP, FUZZY, SEARCH, TRAVERSE and SQL; `natural-language` takes a question or a name, which an
    agent answers (`query_type` is then `AGENT`), or without a language model the nearest query; `staged-plan` takes
    queries whose results feed each other.
    """
    if request.mode == "natural-language":
        asked = _plain_language(request, rem, agents.env_with_delegate(context))
        answer = await cancel_on_disconnect(http, asked)
    else:
        answer = await _answer(request, rem, context.scope)
    if request.limit is not None and len(answer["results"]) > request.limit:
        answer["results"] = answer["results"][: request.limit]
        answer["count"] = request.limit
    return QueryResponse.model_validate(answer)


async def _answer(request: QueryRequest, rem: Rem, scope: Scope) -> dict[str, Any]:
    if request.mode == "staged-plan":
        if request.plan is None or request.query is not None:
            raise InvalidInputError('A staged plan is given as `plan`, and without `query`: {"plan": {"stages": […]}}.')
        return (await rem.run_plan(request.plan, user=scope)).as_json(explain=request.explain)
    result = await rem.query(_limited(_text(request), request.limit), user=scope)
    return result.as_json(explain=request.explain)


async def _plain_language(request: QueryRequest, rem: Rem, env: ToolEnv) -> dict[str, Any]:
    """What the agent that writes queries answers; without a language model, the rows of the nearest query."""
    text = _text(request)
    if not env.has_model:
        return (await rem.ask(text, user=env.scope)).as_json(explain=request.explain)
    answer = await ask_rem(env, text)
    if "output" not in answer:
        return answer
    output = answer["output"]
    row = output if isinstance(output, dict) else {"answer": output}
    return {"query_type": "AGENT", "results": [row], "count": 1, "notes": [f"Answered by the agent {answer['agent']}."]}


def _text(request: QueryRequest) -> str:
    if request.plan is not None:
        raise InvalidInputError('A `plan` needs "mode": "staged-plan".')
    if request.query is None:
        raise InvalidInputError('`query` is missing: {"query": "LOOKUP sarah-chen"}.')
    return request.query


def _limited(text: str, limit: int | None) -> str | Query:
    """The query with another limit, if the verb has one."""
    if limit is None:
        return text
    tree = parse_query(text)
    return replace(tree, limit=limit) if isinstance(tree, Fuzzy | Search | Traverse) else tree
