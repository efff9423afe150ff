"""search_rem: a query over the caller's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from loguru import logger
from pydantic import Field

from rem.errors import AgentNotFoundError, InvalidInputError, ModelError
from rem.query.language.parser import parse_query
from rem.query.plans.plan import PlanResult
from rem.query.result import QueryResult
from rem.query.tree import Direction, Fuzzy, Lookup, Query, Search, Traverse
from rem.tools.env import ToolEnv
from rem.tools.trimming import fit_to_budget

_FETCHED = 3
"""So many times as many rows are fetched as are wanted, because some will be left out."""
_MOST_FETCHED = 100


def count_rows_to_fetch(wanted: int) -> int:
    """How many rows a search over everything needs, so that enough remain."""
    return min(wanted * _FETCHED, max(wanted, _MOST_FETCHED))


def exclude_current_session(result: QueryResult, asked: str, session_id: str | None, wanted: int) -> QueryResult:
    """The best rows of a search over everything that are no echo of the question.

    The question is stored before it is answered and fits itself best; who asks the same again has asked it before. The
    model knows the conversation that it is in. At most half of the rows are messages, if there is enough else.
    """
    rows = list(_no_echo(result.results, _normalize(asked), session_id))
    others = sum(row["table"] != "messages" for row in rows)
    room = max(wanted // 2, wanted - others)
    kept = []
    for row in rows:
        if row["table"] == "messages":
            room -= 1
            if room < 0:
                continue
        kept.append(row)
    return replace(result, results=kept[:wanted])


def _no_echo(rows: list[dict[str, Any]], asked: str, session_id: str | None) -> Iterator[dict[str, Any]]:
    seen = {asked}
    for row in rows:
        if row.get("table") == "messages":
            record = row["record"]
            said = _normalize(str(record.get("content", "")))
            if said in seen or (session_id is not None and record.get("session_id") == session_id):
                continue
            seen.add(said)
        yield row


def _normalize(text: str) -> str:
    return " ".join(text.split()).casefold()


QueryMode: TypeAlias = Literal["rem-dialect", "natural-language", "staged-plan"]
MAX_LIMIT_ROWS = 100
Limit: TypeAlias = Annotated[
    int | None,
    Field(ge=1, le=MAX_LIMIT_ROWS, description="At most this many rows; the query's own LIMIT if not given."),
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
            return to_tool_result(await ask_memory(env, query, limit), limit)
        case "staged-plan":
            return _of_plan(await env.rem.run_plan(query, user=env.scope), limit)
    raise InvalidInputError(f"There is no mode {mode!r}: use rem-dialect, natural-language or staged-plan.")


async def _of_query(env: ToolEnv, text: str, limit: int | None) -> dict[str, Any]:
    parsed = parse_query(text)
    tree = with_limit(parsed, limit) or parsed
    if isinstance(tree, Search) and tree.table is None:
        wider = replace(tree, limit=count_rows_to_fetch(tree.limit))
        found = await env.rem.query(wider, user=env.scope)
        return to_tool_result(exclude_current_session(found, tree.text, env.context.session_id, tree.limit))
    # A mistake is explained by the text that was written.
    return to_tool_result(await env.rem.query(text if tree is parsed else tree, user=env.scope), limit)


async def ask_memory(env: ToolEnv, question: str, limit: int | None = None) -> QueryResult:
    """The answer to plain language, without what is being said right now."""
    wanted = limit or Search("").limit
    found = await env.rem.ask(question, limit=count_rows_to_fetch(wanted), user=env.scope)
    if found.query_type not in ("SEARCH", "FUZZY"):
        return found
    return exclude_current_session(found, question, env.context.session_id, wanted)


def with_limit(query: Query, limit: int | None) -> Query | None:
    """The query with another limit; None where its own stays, because none is asked for or it takes none."""
    return replace(query, limit=limit) if limit and isinstance(query, Fuzzy | Search | Traverse) else None


async def run_query(env: ToolEnv, query: Query, *, offset: int = 0) -> dict[str, Any]:
    """The answer to a query that was not written by a model."""
    result = await env.rem.query(query, user=env.scope)
    return to_tool_result(result, is_whole=isinstance(query, Lookup), offset=offset)


def to_tool_result(
    result: QueryResult, limit: int | None = None, *, is_whole: bool | None = None, offset: int = 0
) -> dict[str, Any]:
    """A result as a model gets it. What was looked up is given whole, if there is room."""
    if limit is not None and result.count > limit:
        result = replace(result, results=result.results[:limit], notes=(*result.notes, _more(result.count, limit)))
    whole = result.query_type == "LOOKUP" if is_whole is None else is_whole
    return {"status": "success", **fit_to_budget(result.as_json(), whole=whole, offset=offset)}


def _more(count: int, limit: int) -> str:
    return f"{count} rows were found, and limit={limit} of them are shown."


def _of_plan(plan: PlanResult, limit: int | None) -> dict[str, Any]:
    """The rows of the stage that answers; of the others, what became of them."""
    final = to_tool_result(plan[plan.answer].result, limit)
    stages = [
        {name: value for name, value in stage.as_json().items() if name not in ("results", "query_type")}
        for stage in plan.stages
    ]
    return {**final, "query_type": "PLAN", "answer": plan.answer, "stages": stages}


async def lookup(
    env: ToolEnv,
    key: Annotated[str, Field(description="A name or key, such as Sarah Chen, sarah-chen or users/sarah@example.com.")],
    offset: Annotated[
        int, Field(ge=0, le=1_000_000_000, description="Where to read on in a long text: the number in the note.")
    ] = 0,
) -> dict[str, Any]:
    """Get one thing from memory by its exact name or key, with its whole text. Instant; use it whenever you have a key.

    Also for keys that stand in other answers: edges (dst), sources, notes such as
    [Message truncated - REM LOOKUP session-…-msg-4 to recover full content], where the key is session-…-msg-4.
    If nothing answers to the key, use fuzzy (misspelt names) or search_rem with SEARCH (by meaning).
    For example: lookup(key="sarah-chen")
    """
    if not key.strip():
        raise InvalidInputError("The key is empty: give a name such as sarah-chen.")
    return await run_query(env, Lookup((key,)), offset=offset)


async def fuzzy(
    env: ToolEnv,
    text: Annotated[str, Field(description="A name or part of one, possibly misspelt.")],
    limit: Annotated[int, Field(ge=1, le=50, description="At most this many rows.")] = 5,
) -> dict[str, Any]:
    """Find names in memory that are nearly what you have: misspelt, incomplete or spoken ones.

    Use lookup if you have the exact name, and search_rem with SEARCH for a topic rather than a name.
    For example: fuzzy(text="sara chenn") finds sarah-chen.
    """
    if not text.strip():
        raise InvalidInputError("The text is empty: give a name, or a part of one.")
    return await run_query(env, Fuzzy(text, limit=limit))


async def traverse(
    env: ToolEnv,
    key: Annotated[str, Field(description="The name or key to start from.")],
    type: Annotated[  # noqa: A002  # the word of the query language
        str | None, Field(description="Only edges of this type, such as manages; several with commas between them.")
    ] = None,
    depth: Annotated[int, Field(ge=0, le=5, description="How many edges away; 0 lists the types of the edges.")] = 1,
    direction: Annotated[Direction, Field(description="out: what it points at; in: what points at it.")] = "both",
    limit: Annotated[int, Field(ge=1, le=100, description="At most this many rows.")] = 25,
) -> dict[str, Any]:
    """Follow the connections of something in memory: who manages whom, what a project depends on, who was at an event.

    Use depth=0 first if you do not know which types of edges there are. Each row has its depth, the path to it and the
    type of the edge. To find the thing to start from, use lookup or fuzzy.
    For example: traverse(key="sarah-chen", type="manages", depth=2)
    """
    if not key.strip():
        raise InvalidInputError("The key is empty: give the name of the thing to start from.")
    types = tuple(part.strip() for part in (type or "").split(",") if part.strip())
    start = Lookup((key,))
    return await run_query(env, Traverse(start, types, depth=depth, limit=limit, direction=direction))


QUERY_AGENT = "query-agent"
_SECONDS = 120


async def ask_rem(
    env: ToolEnv,
    question: Annotated[str, Field(min_length=1, description="The question, in plain words and any language.")],
) -> dict[str, Any]:
    """Ask the memory a question in plain language, without knowing how it is organised.

    Use it for open questions ("what did we decide about pricing?"). If you know a name or the query language, use
    lookup or search_rem, which are exact and faster. The notes say how the question was understood.
    For example: ask_rem(question="who works on Project Atlas?")
    """
    notes: tuple[str, ...] = ()
    # The agent that writes queries must not be asked by itself.
    if env.delegate is not None and env.has_model and env.context.agent_schema_uri != QUERY_AGENT:
        try:
            return await env.delegate(QUERY_AGENT, question, _SECONDS)
        except (AgentNotFoundError, ModelError, TimeoutError) as error:
            logger.warning("The question is answered without a language model: {}", type(error).__name__)
            notes = (f"Answered without a language model: {error or 'it took too long.'}",)
    answer = to_tool_result(await ask_memory(env, question))
    return {**answer, "notes": [*notes, *answer["notes"]]} if notes else answer
