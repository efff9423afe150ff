"""The tools that search: search_rem, lookup, fuzzy, traverse and ask_rem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from loguru import logger
from pydantic import Field

from rem.errors import AgentNotFoundError, InvalidInputError, ModelError
from rem.models.message import MessageKind
from rem.models.results import Hit, JsonRow, Note, Result
from rem.query.executor import note_misspelt_clause
from rem.query.parser import parse_query
from rem.query.tree import Direction, Fuzzy, Lookup, Query, Search, Traverse
from rem.text import fold_text
from rem.tools.binding import tool
from rem.tools.env import ToolEnv, TurnWindow
from rem.tools.rows import count_text_chars, to_flat_rows
from rem.tools.trimming import count_whole_text_chars, fit_to_budget

QueryMode: TypeAlias = Literal["rem-dialect", "natural-language"]
MAX_LIMIT_ROWS = 100
Limit: TypeAlias = Annotated[
    int | None,
    Field(ge=1, le=MAX_LIMIT_ROWS, description="At most this many rows; the query's own LIMIT if not given."),
]
QUERY_AGENT = "query-agent"
QUERY_AGENT_TIMEOUT_SECONDS = 120
EXCERPT_NOTE = Note(
    "excerpts", "A text with `chars` is an excerpt of a text of that length: LOOKUP its key to read it all."
)
MAX_COMPARED_CHARS = 10_000
MAX_EXTRA_ROWS = 60
"""A search fetches up to this many rows more than requested, because messages that the model has are removed."""


@tool(read_only=True)
async def search_rem(
    env: ToolEnv,
    query: Annotated[str, Field(min_length=1, description="The query.")],
    mode: Annotated[QueryMode, Field(description="How the query is written.")] = "rem-dialect",
    limit: Limit = None,
) -> JsonRow:
    """Search the user's memory: people, documents, events, past conversations. Use this before you answer from memory.

    The default mode takes REM's query language:
    - LOOKUP "sarah-chen": you know the name or key of something. Always try this first, it is exact and instant.
    - FUZZY "sara chenn": the name may be misspelt or incomplete.
    - SEARCH "why did the launch slip" FROM moments SINCE 2026-07-01 UNTIL 2026-08-01 LIMIT 5: by meaning and words;
      FROM, SINCE and UNTIL are optional.
    - TRAVERSE FROM "sarah-chen" TYPE manages DEPTH 2: what is connected with something; TYPE and DEPTH are optional.
    - SELECT name, role FROM users WHERE role ILIKE '%engineer%': counting, filtering, sorting; SELECT only.
    With mode="natural-language" the query is a plain question.

    Every row has a table, a key and a text; happened_at is when it was said, written or took place, and superseded_by
    names the row that replaced it. A row with said_by is what an assistant answered, and no evidence.
    Cite the keys that you used. LOOKUP a key to read the rest of a long text.
    No rows? Try FUZZY, then SEARCH with other words, before you say that nothing is known.
    For example: search_rem(query="SEARCH \\"database migration\\" FROM resources LIMIT 3")
    """
    match mode:
        case "rem-dialect":
            return await _run_dialect_query(env, query, limit)
        case "natural-language":
            return to_tool_result(env, await ask_memory(env, query, limit), query, limit)
    raise InvalidInputError(f"There is no mode {mode!r}: use rem-dialect or natural-language.")


@tool(read_only=True)
async def search(
    env: ToolEnv,
    query: Annotated[str, Field(min_length=1, description="A question or words; also a query such as LOOKUP x.")],
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT_ROWS, description="At most this many rows.")] = 10,
) -> JsonRow:
    """Search the user's memory in plain words: notes, people, events, past conversations.

    Use this before you answer from memory. Every row has a table, a key and a text; happened_at is when it was said,
    written or took place. Cite the keys that you used. No rows? Try other words before you say that nothing is known.
    For example: search(query="when do we launch?")
    """
    return to_tool_result(env, await ask_memory(env, query, limit), query, limit)


@tool(read_only=True)
async def lookup(
    env: ToolEnv,
    key: Annotated[str, Field(description="A name or key, such as Sarah Chen, sarah-chen or users/sarah@example.com.")],
    offset: Annotated[
        int, Field(ge=0, le=1_000_000_000, description="Where to read on in a long text: the number in the note.")
    ] = 0,
) -> JsonRow:
    """Get one thing from memory by its exact name or key, with its whole text. Instant; use it whenever you have a key.

    Also for keys that stand in other answers: edges, sources, notes such as
    [Message truncated - REM LOOKUP session-…-msg-4 to recover full content], where the key is session-…-msg-4.
    If nothing answers to the key, use fuzzy (misspelt names) or search_rem with SEARCH (by meaning).
    For example: lookup(key="sarah-chen")
    """
    if not key.strip():
        raise InvalidInputError("The key is empty: give a name such as sarah-chen.")
    return to_tool_result(env, await env.rem.for_user(env.scope).query(Lookup((key,))), key, offset=offset)


@tool(read_only=True)
async def fuzzy(
    env: ToolEnv,
    text: Annotated[str, Field(description="A name or part of one, possibly misspelt.")],
    limit: Annotated[int, Field(ge=1, le=50, description="At most this many rows.")] = 5,
) -> JsonRow:
    """Find names in memory that are similar to the given one: misspelt, incomplete or spoken names.

    Use lookup if you have the exact name, and search_rem with SEARCH for a topic rather than a name.
    For example: fuzzy(text="sara chenn") finds sarah-chen.
    """
    if not text.strip():
        raise InvalidInputError("The text is empty: give a name, or a part of one.")
    return to_tool_result(env, await _run_without_known_messages(env, Fuzzy(text, limit=limit)), text)


@tool(read_only=True)
async def traverse(
    env: ToolEnv,
    key: Annotated[str, Field(description="The name or key to start from.")],
    type: Annotated[  # noqa: A002  # the word of the query language
        str | None, Field(description="Only edges of this type, such as manages; several with commas between them.")
    ] = None,
    depth: Annotated[int, Field(ge=0, le=5, description="How many edges away; 0 lists the types of the edges.")] = 1,
    direction: Annotated[Direction, Field(description="out: what it points at; in: what points at it.")] = "both",
    limit: Annotated[int, Field(ge=1, le=100, description="At most this many rows.")] = 25,
) -> JsonRow:
    """Follow the connections of something in memory: who manages whom, what a project depends on, who was at an event.

    Use depth=0 first if you do not know which types of edges there are. Each row has its depth, the path to it and the
    type of the edge. To find the thing to start from, use lookup or fuzzy.
    For example: traverse(key="sarah-chen", type="manages", depth=2)
    """
    if not key.strip():
        raise InvalidInputError("The key is empty: give the name of the thing to start from.")
    types = tuple(part.strip() for part in (type or "").split(",") if part.strip())
    walk = Traverse(Lookup((key,)), types, depth=depth, limit=limit, direction=direction)
    return to_tool_result(env, await env.rem.for_user(env.scope).query(walk), "")


@tool()
async def ask_rem(
    env: ToolEnv,
    question: Annotated[str, Field(min_length=1, description="The question, in plain words and any language.")],
) -> JsonRow:
    """Ask the memory a question in plain language, without knowing how it is organised.

    Use it for open questions ("what did we decide about pricing?"). If you know a name or the query language, use
    lookup or search_rem, which are exact and faster. The first note is the answer in a sentence, if there is one.
    For example: ask_rem(question="who works on Project Atlas?")
    """
    answer = await ask_query_agent(env, question)
    if not isinstance(answer, tuple):
        return answer
    result = await ask_memory(env, question)
    return to_tool_result(env, replace(result, notes=(*answer, *result.notes)), question)


async def ask_query_agent(env: ToolEnv, question: str) -> JsonRow | tuple[Note, ...]:
    """Return the answer of the query agent or, if it cannot answer, notes that say why."""
    # The query agent must not call itself.
    if env.delegate is None or not env.has_model or env.context.agent_schema_uri == QUERY_AGENT:
        return ()
    try:
        return await env.delegate(QUERY_AGENT, question, QUERY_AGENT_TIMEOUT_SECONDS)
    except (AgentNotFoundError, ModelError, TimeoutError) as error:
        logger.warning("The question is answered without a language model: {}", type(error).__name__)
        return (Note("without_model", f"Answered without a language model: {error or 'it took too long.'}"),)


async def ask_memory(env: ToolEnv, question: str, limit: int | None = None) -> Result:
    """Return the rows and the answer to a question in plain words, without the messages that the model already has."""
    max_rows = limit or Search("").limit
    result = await env.rem.for_user(env.scope).find(question)
    return drop_known_messages(result, env.window, max_rows)


def drop_known_messages(result: Result, window: TurnWindow, max_rows: int) -> Result:
    """Return the best `max_rows` rows without messages that were searched for and that the model already has.

    The question is stored before it is answered, so it would be its own best hit. Of messages with the same text, the
    best is kept.
    """
    if result.verb not in ("SEARCH", "FUZZY", "LOOKUP"):
        return result
    return replace(result, hits=list(_remove_echoes(result.hits, window))).keep_best(max_rows)


def to_tool_result(
    env: ToolEnv, result: Result, query_text: str, limit: int | None = None, *, offset: int = 0
) -> JsonRow:
    """Return a query result as JSON that is cheap to read for a model.

    `query_text` chooses the excerpts of long texts. LOOKUP keeps whole texts as far as they fit; `offset` is the
    position in a long text from which it is returned.
    """
    if limit is not None and result.count > limit:
        note = Note("rows_cut", f"{result.count} rows were found, and limit={limit} of them are shown.")
        result = replace(result.keep_first(limit), notes=(*result.notes, note))
    is_whole = result.verb == "LOOKUP"
    rows = to_flat_rows(result, query_text, env.context.session_id)
    notes = [*result.notes, *([EXCERPT_NOTE] if any("chars" in row for row in rows) else [])]
    answer = {"status": "success", "query_type": result.verb, "results": rows, "count": result.count}
    max_chars = count_whole_text_chars(result.count) if is_whole else count_text_chars(result.count)
    return fit_to_budget(answer, notes, max_text_chars=max_chars, offset=offset)


async def _run_dialect_query(env: ToolEnv, text: str, limit: int | None) -> JsonRow:
    parsed = parse_query(text)
    tree = _with_limit(parsed, limit) or parsed
    if isinstance(tree, Search | Fuzzy):
        result = await _run_without_known_messages(env, tree)
        return to_tool_result(env, replace(result, notes=(*result.notes, *note_misspelt_clause(text))), tree.text)
    # An unchanged query is passed as text: error messages then quote it as it was written.
    return to_tool_result(env, await env.rem.for_user(env.scope).query(text if tree is parsed else tree), text, limit)


async def _run_without_known_messages(env: ToolEnv, query: Search | Fuzzy) -> Result:
    """Run a query without messages that the model already has."""
    wider = replace(query, limit=_count_rows_to_fetch(env.window, query.limit))
    result = await env.rem.for_user(env.scope).query(wider)
    if isinstance(query, Search) and query.table is None:
        result = await env.rem.for_user(env.scope).arrange(env.window.question or query.text, result)
        result = replace(result, hits=[hit for hit in result.hits if not _repeats(hit, env.window.question)])
    return drop_known_messages(result, env.window, query.limit)


def _repeats(hit: Hit, question: str) -> bool:
    """Return whether a hit is the question of this turn, as the user asked it before."""
    return hit.record.get("kind") == MessageKind.QUESTION and _fold_head(hit.text) in _fold_head(question)


def _with_limit(query: Query, limit: int | None) -> Query | None:
    """Return the query with this limit; None if there is no limit to set or the query takes none."""
    return replace(query, limit=limit) if limit and isinstance(query, Fuzzy | Search | Traverse) else None


def _count_rows_to_fetch(window: TurnWindow, max_rows: int) -> int:
    """Return how many rows are fetched so that enough are left without the known messages."""
    return max_rows + min(max_rows + len(window.messages), MAX_EXTRA_ROWS)


def _fold_head(text: str) -> str:
    """Return the beginning of a text, to compare it with another. A message can have a million characters."""
    return fold_text(text[:MAX_COMPARED_CHARS])


def _remove_echoes(hits: list[Hit], window: TurnWindow) -> Iterator[Hit]:
    """Yield the hits without messages of the window, and without messages whose text was seen before."""
    seen: set[str] = set()
    for hit in hits:
        # What was looked up by its key is wanted.
        if hit.table == "messages" and hit.asked is None:
            content = _fold_head(hit.text)
            if content in seen or window.contains(hit.record):
                continue
            seen.add(content)
        yield hit
