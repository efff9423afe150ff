"""search_rem: a query over the caller's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from rem.errors import InvalidInputError
from rem.query.parser import parse
from rem.query.plan_result import PlanResult
from rem.query.result import QueryResult
from rem.query.tree import Fuzzy, Lookup, Query, Search, Traverse
from rem.tools.env import ToolEnv
from rem.tools.this_talk import rows_to_fetch, without_this_talk
from rem.tools.trimming import trimmed

QueryMode: TypeAlias = Literal["rem-dialect", "natural-language", "staged-plan"]
LARGEST_LIMIT = 100
Limit: TypeAlias = Annotated[
    int | None, Field(ge=1, le=LARGEST_LIMIT, description="At most this many rows; the query's own LIMIT if not given.")
]


async def search_rem(
    env: ToolEnv,
    query: Annotated[
        str, Field(min_length=1, description="The query; for the mode staged-plan, the plan as JSON text.")
    ],
    mode: Annotated[QueryMode, Field(description="How the query is written.")] = "rem-dialect",
    limit: Limit = None,
) -> dict[str, Any]:
    """Search the user's memory: people, documents, events, past conversations. Use this before you answer from memory.

    The default mode takes REM's query language:
    - LOOKUP "sarah-chen": you know the name or key of something. Always try this first, it is exact and instant.
    - FUZZY "sara chenn": the name may be misspelt or incomplete.
    - SEARCH "why did the launch slip" FROM moments LIMIT 5: by meaning and words; FROM is optional.
    - TRAVERSE FROM "sarah-chen" TYPE manages DEPTH 2: what is connected with something; TYPE and DEPTH are optional.
    - SELECT name, role FROM users WHERE role ILIKE '%engineer%': counting, filtering, sorting; SELECT only.
    With mode="natural-language" the query is a plain question. With mode="staged-plan" it is JSON, where one query
    feeds the next: {"stages": [{"id": "a", "query": "SEARCH outage"}, {"id": "b", "query": "TRAVERSE FROM {a.key}"}]}

    Every row has a table and a key: cite the keys that you used. A long text is cut, and says how to get the rest.
    No rows? Try FUZZY, then SEARCH with other words, before you say that nothing is known.
    For example: search_rem(query="SEARCH \\"database migration\\" FROM resources LIMIT 3")
    """
    match mode:
        case "rem-dialect":
            return await _of_query(env, query, limit)
        case "natural-language":
            return answered(await ask(env, query, limit), limit)
        case "staged-plan":
            return _of_plan(await env.rem.run_plan(query, user=env.scope), limit)
    raise InvalidInputError(f"There is no mode {mode!r}: use rem-dialect, natural-language or staged-plan.")


async def _of_query(env: ToolEnv, text: str, limit: int | None) -> dict[str, Any]:
    parsed = parse(text)
    tree = limited(parsed, limit) or parsed
    if isinstance(tree, Search) and tree.table is None:
        wider = replace(tree, limit=rows_to_fetch(tree.limit))
        found = await env.rem.query(wider, user=env.scope)
        return answered(without_this_talk(found, tree.text, env.context.session_id, tree.limit))
    # A mistake is explained by the text that was written.
    return answered(await env.rem.query(text if tree is parsed else tree, user=env.scope), limit)


async def ask(env: ToolEnv, question: str, limit: int | None = None) -> QueryResult:
    """The answer to plain language, without what is being said right now."""
    wanted = limit or Search("").limit
    found = await env.rem.ask(question, limit=rows_to_fetch(wanted), user=env.scope)
    if found.query_type not in ("SEARCH", "FUZZY"):
        return found
    return without_this_talk(found, question, env.context.session_id, wanted)


def limited(query: Query, limit: int | None) -> Query | None:
    """The query with another limit; None where its own stays, because none is asked for or it takes none."""
    return replace(query, limit=limit) if limit and isinstance(query, Fuzzy | Search | Traverse) else None


async def run(env: ToolEnv, query: Query, *, offset: int = 0) -> dict[str, Any]:
    """The answer to a query that was not written by a model."""
    result = await env.rem.query(query, user=env.scope)
    return answered(result, is_whole=isinstance(query, Lookup), offset=offset)


def answered(
    result: QueryResult, limit: int | None = None, *, is_whole: bool | None = None, offset: int = 0
) -> dict[str, Any]:
    """A result as a model gets it. What was looked up is given whole, if there is room."""
    if limit is not None and result.count > limit:
        result = replace(result, results=result.results[:limit], notes=(*result.notes, _more(result.count, limit)))
    whole = result.query_type == "LOOKUP" if is_whole is None else is_whole
    return {"status": "success", **trimmed(result.as_json(), whole=whole, offset=offset)}


def _more(count: int, limit: int) -> str:
    return f"{count} rows were found, and limit={limit} of them are shown."


def _of_plan(plan: PlanResult, limit: int | None) -> dict[str, Any]:
    """The rows of the stage that answers; of the others, what became of them."""
    final = answered(plan[plan.answer].result, limit)
    stages = [
        {name: value for name, value in stage.as_json().items() if name not in ("results", "query_type")}
        for stage in plan.stages
    ]
    return {**final, "query_type": "PLAN", "answer": plan.answer, "stages": stages}
