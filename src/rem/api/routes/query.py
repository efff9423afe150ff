"""`/query`: query the memory in REM's query language, in plain words or by a plan; parse and complete queries."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Body, Request, Response
from fastapi import Query as QueryParameter
from pydantic import BaseModel, ConfigDict, Field

from rem.api.caller_turns import find_turns
from rem.api.dependencies import AgentsDep, ContextDep, JsonBody, RemDep, ScopeDep
from rem.api.disconnect import cancel_on_disconnect
from rem.api.openapi_errors import error_responses
from rem.api.pagination import Page, make_rows_response
from rem.app import Rem
from rem.context import Scope
from rem.errors import InvalidInputError
from rem.query.completion import KnownKey, VerbHelp, find_keys, list_verbs
from rem.query.language.parser import parse_query
from rem.query.language.printer import print_query
from rem.query.syntax_tree import Fuzzy, Query, Search, Traverse, to_json
from rem.tools.env import ToolEnv
from rem.tools.search import ask_rem

router = APIRouter(tags=["query"])

Mode: TypeAlias = Literal["rem-dialect", "natural-language", "plain-words", "staged-plan"]

EXAMPLES: dict[str, Any] = {
    "lookup": {"summary": "By key", "value": {"query": "LOOKUP sarah-chen"}},
    "search": {"summary": "By meaning", "value": {"query": 'SEARCH "database migration" FROM resources', "limit": 5}},
    "natural": {
        "summary": "In natural language",
        "value": {"query": "who is sarah chen?", "mode": "natural-language"},
    },
    "plan": {
        "summary": "A plan: the results of a query feed the next",
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

    query: str | None = Field(default=None, description="The query or the question; not used with a plan.")
    mode: Mode = Field(default="rem-dialect", description="The language of the query.")
    plan: dict[str, Any] | None = Field(default=None, description="The stages, for `staged-plan`.")
    limit: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        strict=True,
        description="The maximum number of rows; overrides the LIMIT of the query.",
    )
    explain: bool = Field(
        default=False, strict=True, description="Also return the parsed query and the duration of each step."
    )


class QueryResponse(BaseModel):
    """The rows of the result, best first. Except for SQL, rows have `table`, `key`, `record`, mostly a `score`."""

    model_config = ConfigDict(extra="allow")

    query_type: str = Field(description="The verb of the result: LOOKUP, FUZZY, SEARCH, TRAVERSE, SQL, PLAN or AGENT.")
    results: list[dict[str, Any]]
    count: int
    notes: list[str] | None = Field(
        default=None, description="Remarks on the result, for example the query that was derived."
    )
    tree: dict[str, Any] | None = Field(default=None, description="With `explain`: the parsed query.")
    steps: list[dict[str, Any]] | None = Field(
        default=None, description="With `explain`: the steps, with their milliseconds and rows."
    )


class ParseRequest(BaseModel):
    """A query to parse."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"query": "LOOKUP sarah-chen"}})

    query: str


class ParsedQuery(BaseModel):
    """A valid query."""

    query_type: str = Field(description="The verb.")
    query: str = Field(description="The query in its shortest form.")
    tree: dict[str, Any]


class QueryLanguage(BaseModel):
    """The words of the query language."""

    verbs: list[VerbHelp]
    tables: list[str]


@router.post("/query", response_model=QueryResponse, summary="Query the memory", dependencies=[JsonBody])
async def query(
    http: Request,
    request: Annotated[QueryRequest, Body(openapi_examples=EXAMPLES)],
    rem: RemDep,
    agents: AgentsDep,
    context: ContextDep,
) -> Response:
    """Run a query over the caller's own memory and the rows that the workspace shares.

    `rem-dialect`: LOOKUP, FUZZY, SEARCH, TRAVERSE or SQL. `natural-language`: a question or a name; an agent answers
    it (`query_type` is then `AGENT`), or, without a language model, the nearest query. `plain-words`: a question or a
    name; the nearest query answers it, never a language model. `staged-plan`: several queries, where the results of one
    feed the next.
    """
    if request.mode == "natural-language":
        answer = _answer_natural_language(request, rem, agents.env_with_delegate(context))
    else:
        answer = _run_in_turn(find_turns(http.scope), request, rem, context.scope)
    result = await cancel_on_disconnect(http, answer)
    if request.limit is not None and len(result["results"]) > request.limit:
        result["results"] = result["results"][: request.limit]
        result["count"] = request.limit
    return await make_rows_response(result, "results")


@router.post("/query/parse", summary="Parse a query", responses=error_responses(400), dependencies=[JsonBody])
async def parse(request: ParseRequest) -> ParsedQuery:
    """Parse a query without running it. The error of an invalid query has its place and a valid query near it."""
    tree = parse_query(request.query)
    values = to_json(tree)
    return ParsedQuery(query_type=values["type"], query=print_query(tree), tree=values)


@router.get("/query/language", summary="Get the query language")
async def get_query_language(rem: RemDep, scope: ScopeDep) -> QueryLanguage:
    """Return the verbs with their clauses, and the tables."""
    return QueryLanguage(verbs=list_verbs(), tables=sorted(rem.store(scope).types.models))


@router.get("/query/keys", summary="Complete a key")
async def complete_key(
    rem: RemDep,
    scope: ScopeDep,
    prefix: Annotated[str, QueryParameter(description="The beginning of a key.", max_length=1024)] = "",
    table: Annotated[str | None, QueryParameter(description="Only keys of this table.")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="The maximum number of keys.")] = 10,
) -> Page[KnownKey]:
    """Return keys that begin with a text, in alphabetical order."""
    keys = await find_keys(rem.store(scope), prefix, table=table, limit=limit + 1)
    return Page[KnownKey](data=keys[:limit], has_more=len(keys) > limit)


async def _run_in_turn(turns: asyncio.Semaphore, request: QueryRequest, rem: Rem, scope: Scope) -> dict[str, Any]:
    async with turns:
        return await _run_query(request, rem, scope)


async def _run_query(request: QueryRequest, rem: Rem, scope: Scope) -> dict[str, Any]:
    if request.mode == "staged-plan":
        if request.plan is None or request.query is not None:
            raise InvalidInputError('The mode staged-plan needs `plan` and no `query`: {"plan": {"stages": […]}}.')
        return (await rem.run_plan(request.plan, user=scope)).as_json(explain=request.explain)
    text = _require_query(request)
    if request.mode == "plain-words":
        return (await rem.ask(text, user=scope, limit=request.limit)).as_json(explain=request.explain)
    tree = _override_limit(parse_query(text), request.limit)
    result = (await rem.query(tree, text=text, user=scope)).as_json(explain=request.explain)
    return {**result, "tree": to_json(tree)} if request.explain else result


async def _answer_natural_language(request: QueryRequest, rem: Rem, env: ToolEnv) -> dict[str, Any]:
    """Return the answer of the query agent or, without a language model, the rows of the nearest query."""
    text = _require_query(request)
    if not env.has_model:
        return (await rem.ask(text, user=env.scope)).as_json(explain=request.explain)
    answer = await ask_rem(env, text)
    if "output" not in answer:
        return answer
    output = answer["output"]
    row = output if isinstance(output, dict) else {"answer": output}
    return {"query_type": "AGENT", "results": [row], "count": 1, "notes": [f"Answered by the agent {answer['agent']}."]}


def _require_query(request: QueryRequest) -> str:
    if request.plan is not None:
        raise InvalidInputError('A `plan` needs "mode": "staged-plan".')
    if request.query is None:
        raise InvalidInputError('`query` is missing: {"query": "LOOKUP sarah-chen"}.')
    return request.query


def _override_limit(query: Query, limit: int | None) -> Query:
    """Return the query with another limit, if there is one and the verb has a limit."""
    if limit is None or not isinstance(query, Fuzzy | Search | Traverse):
        return query
    return replace(query, limit=limit)
