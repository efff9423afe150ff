"""`/query`: query the memory in REM's query language, or in plain words; parse and complete queries."""

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
from rem.db.database import taking_turns
from rem.models.results import Note, NoteCode, Result, item_to_json
from rem.query.completion import KnownKey, VerbHelp, find_keys, list_verbs
from rem.query.parser import parse_query
from rem.query.printer import print_query
from rem.query.tree import Fuzzy, Query, Search, Traverse, to_json
from rem.tools.env import ToolEnv
from rem.tools.search import ask_query_agent

router = APIRouter(tags=["query"])

Mode: TypeAlias = Literal["rem-dialect", "natural-language", "plain-words"]

EXAMPLES: dict[str, Any] = {
    "lookup": {"summary": "By key", "value": {"query": "LOOKUP sarah-chen"}},
    "search": {"summary": "By meaning", "value": {"query": 'SEARCH "database migration" FROM resources', "limit": 5}},
    "natural": {
        "summary": "In natural language",
        "value": {"query": "who is sarah chen?", "mode": "natural-language"},
    },
}


class QueryRequest(BaseModel):
    """A query of the memory."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(description="The query or the question.")
    mode: Mode = Field(default="rem-dialect", description="The language of the query.")
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


class NoteOutput(BaseModel):
    """A remark on a result. Programs decide by its code."""

    code: NoteCode
    text: str = Field(description="The remark for people.")


class QueryResponse(BaseModel):
    """The rows of the result, best first. Except for SQL, rows have `table`, `key`, `record`, mostly a `score`."""

    model_config = ConfigDict(extra="allow")

    query_type: str = Field(description="The verb of the result: LOOKUP, FUZZY, SEARCH, TRAVERSE, SQL or AGENT.")
    results: list[dict[str, Any]]
    count: int
    notes: list[NoteOutput] | None = Field(
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
    it (`query_type` is then `AGENT`), or, without a language model, the memory itself. `plain-words`: a question or a
    name; the memory itself answers it, never a language model. The note `answer` is its answer (see `POST /ask`).
    """
    tree = _override_limit(parse_query(request.query), request.limit) if request.mode == "rem-dialect" else None
    if request.mode == "natural-language":
        env = http.app.state.running_chats.count_agents(agents.env_with_delegate(context), http.scope)
        answer = _answer_natural_language(request, rem, env)
    else:
        answer = _run_in_turn(find_turns(http.scope), request, tree, rem, context.scope)
    result = await cancel_on_disconnect(http, answer)
    if request.limit is not None:
        result = result.keep_first(request.limit)
    fields = result.describe(explain=request.explain) | {"results": result.list_items()}
    if request.explain and tree is not None:
        fields["tree"] = to_json(tree)
    return await make_rows_response(fields, "results", item_to_json)


@router.post("/query/parse", summary="Parse a query", responses=error_responses(400), dependencies=[JsonBody])
async def parse(request: ParseRequest) -> ParsedQuery:
    """Parse a query without running it. The error of an invalid query has its place and a valid query near it."""
    tree = parse_query(request.query)
    values = to_json(tree)
    return ParsedQuery(query_type=values["type"], query=print_query(tree), tree=values)


@router.get("/query/language", summary="Get the query language")
async def get_query_language(rem: RemDep, scope: ScopeDep) -> QueryLanguage:
    """Return the verbs with their clauses, and the tables."""
    return QueryLanguage(verbs=list_verbs(), tables=sorted(rem.for_user(scope).store.types.models))


@router.get("/query/keys", summary="Complete a key")
async def complete_key(
    rem: RemDep,
    scope: ScopeDep,
    prefix: Annotated[str, QueryParameter(description="The beginning of a key.", max_length=1024)] = "",
    table: Annotated[str | None, QueryParameter(description="Only keys of this table.")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="The maximum number of keys.")] = 10,
) -> Page[KnownKey]:
    """Return keys that begin with a text, in alphabetical order."""
    keys = await find_keys(rem.for_user(scope).store, prefix, table=table, limit=limit + 1)
    return Page[KnownKey](data=keys[:limit], has_more=len(keys) > limit)


async def _run_in_turn(
    turns: asyncio.Semaphore, request: QueryRequest, tree: Query | None, rem: Rem, scope: Scope
) -> Result:
    async with turns:
        with taking_turns(None):
            if tree is None:
                return await rem.for_user(scope).find(request.query)
            return await rem.for_user(scope).query(tree, text=request.query)


async def _answer_natural_language(request: QueryRequest, rem: Rem, env: ToolEnv) -> Result:
    """Return the answer of the query agent or, without a language model, the rows of the nearest query."""
    answer = await ask_query_agent(env, request.query)
    if isinstance(answer, tuple):
        result = await rem.for_user(env.scope).find(request.query)
        return replace(result, notes=(*answer, *result.notes))
    output = answer["output"]
    row = output if isinstance(output, dict) else {"answer": output}
    return Result("AGENT", rows=[row], notes=(Note("answered_by", f"Answered by the agent {answer['agent']}."),))


def _override_limit(query: Query, limit: int | None) -> Query:
    """Return the query with another limit, if there is one and the verb has a limit."""
    if limit is None or not isinstance(query, Fuzzy | Search | Traverse):
        return query
    return replace(query, limit=limit)
