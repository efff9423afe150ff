"""The resources that clients read by address, and the tool read_resource.

MCP clients and agents get the same pages. Every page shows only data of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any
from urllib.parse import unquote

from pydantic import Field

from rem.context import resolve_user_id
from rem.errors import InvalidInputError, NotFoundError, ToolFailedError
from rem.models import Entity, Message, Moment, Session
from rem.query.grammar import VERBS, describe_grammar
from rem.search.embedding_model import load_current_model
from rem.text import collapse_spaces
from rem.tools.binding import tool
from rem.tools.env import AgentDirectory, ToolEnv
from rem.tools.help import load_help_topics
from rem.tools.profile import load_own_profile
from rem.tools.schema import list_entity_types, outline_entity_type
from rem.tools.trimming import MAX_PREVIEW_CHARS, cut_text, drop_empty_fields

MAX_LISTED_SESSIONS = 50
MAX_SHOWN_MESSAGES = 50
MOMENTS_PER_PAGE = 20
MAX_PAGE_NUMBER = 1_000_000
MAX_SUMMARY_CHARS = 300
MAX_MOMENT_CHARS = 20_000
_PROFILE_FIELDS = (
    "name",
    "email",
    "role",
    "tier",
    "summary",
    "interests",
    "preferred_topics",
    "activity_level",
    "metadata",
)
_VERB_EXAMPLES = {
    "LOOKUP": ("the entity with a key; exact and instant", 'LOOKUP "sarah-chen"'),
    "FUZZY": ("names that are similar to a text", 'FUZZY "sara" THRESHOLD 0.7'),
    "SEARCH": ("entities about a topic, by meaning and words", 'SEARCH "machine learning" FROM resources LIMIT 5'),
    "TRAVERSE": ("connected entities", 'TRAVERSE FROM "sarah-chen" TYPE manages DEPTH 2'),
    "SQL": ("the result of any SELECT", "SELECT name FROM users LIMIT 3"),
}


@tool(read_only=True)
async def read_resource(
    env: ToolEnv,
    uri: Annotated[str, Field(min_length=1, max_length=4096, description="The address, such as rem://agents.")],
) -> dict[str, Any]:
    """Read a page about the memory itself, its agents, or the user.

    - user://profile/me: who the user is, their interests and preferences
    - rem://agents, rem://agents/{name}: which agents can be asked, and how one is defined
    - rem://schema/entities, rem://schema/query-types: what is stored, and the query language with examples
    - rem://sessions, rem://sessions/{id}: the user's conversations
    - rem://moments/{page}, rem://moments/key/{key}: what happened, the latest first; pages count from 1
    - rem://status: versions, counts, and whether search and a language model are set up
    - rem://help: what REM is and how it is used
    To find something by name or topic use lookup or search_rem. For example: read_resource(uri="user://profile/me")
    """
    return {"status": "success", "uri": uri, "content": await read_page(env, uri)}


async def read_page(env: ToolEnv, uri: str) -> Any:
    """Return the content of the page at `uri`. Raise NotFoundError if there is none that the caller may read."""
    address = uri.strip()
    is_allowed = env.may_read is None or env.may_read(address)
    for page in RESOURCE_PAGES if is_allowed else ():
        arguments = _match_template(page.uri, address)
        if arguments is not None:
            return await page.content(env, **arguments)
    addresses = ", ".join(page.uri for page in RESOURCE_PAGES)
    raise NotFoundError(f"There is no resource {address[:200]!r}. The resources: {addresses}.")


def _match_template(template: str, address: str) -> dict[str, str] | None:
    """Return the arguments of an address such as `rem://agents/{name}`; None if it does not match the template."""
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
    match = re.fullmatch(pattern, address.rstrip("/"))
    return {name: unquote(value) for name, value in match.groupdict().items()} if match else None


async def agents(env: ToolEnv) -> dict[str, Any]:
    """List the agents that can be asked, each with a description."""
    rows = [
        {
            "name": agent.name,
            "description": _get_first_paragraph(agent.description),
            "uri": f"rem://agents/{agent.name}",
        }
        for agent in await _get_directory(env).list(env.scope)
    ]
    return {"agents": rows, "count": len(rows)}


async def agent(env: ToolEnv, name: str) -> dict[str, Any]:
    """Show the definition of one agent, as JSON and as YAML. The YAML is a template for a new agent."""
    definition = await _get_directory(env).get(name, env.scope)
    return {"name": definition.name, "definition": definition.as_document(), "yaml": definition.as_yaml()}


async def entities(env: ToolEnv) -> dict[str, Any]:
    """List the tables in memory: each with its fields, its key, and the fields that SEARCH reads."""
    types = [outline_entity_type(model) for model in await list_entity_types(env)]
    return {"entities": types, "count": len(types)}


async def query_types(env: ToolEnv) -> dict[str, Any]:
    """Describe the query language: its grammar, and each verb with its purpose and an example."""
    lines = describe_grammar().splitlines()
    verbs = [
        {
            "verb": verb.name,
            "asks_for": _VERB_EXAMPLES[verb.name][0],
            "syntax": line,
            "clauses": {clause.name: clause.expected for clause in verb.clauses},
            "example": _VERB_EXAMPLES[verb.name][1],
        }
        for verb, line in zip(VERBS.values(), lines, strict=True)
    ]
    return {
        "query_types": verbs,
        "grammar": describe_grammar(),
        "modes": ["rem-dialect", "natural-language"],
    }


async def sessions(env: ToolEnv) -> dict[str, Any]:
    """List the caller's sessions, newest first."""
    store = env.rem.for_user(env.scope).store
    latest = await store.find(Session, order_by="-updated_at", limit=MAX_LISTED_SESSIONS)
    return {"sessions": [_session_to_json(row) for row in latest], "count": await store.count(Session)}


async def session(env: ToolEnv, id: str) -> dict[str, Any]:  # noqa: A002  # the name in the address
    """Show one session with its latest messages, by id or name."""
    store = env.rem.for_user(env.scope).store
    row = await store.get(Session, await env.rem.for_user(env.scope).sessions.resolve_session_id(id))
    latest = await store.find(Message, {"session_id": row.id}, order_by="-message_index", limit=MAX_SHOWN_MESSAGES)
    messages = [
        {
            "key": message.key,
            "role": message.role,
            "content": cut_text(message.content, MAX_PREVIEW_CHARS, message.key),
        }
        | drop_empty_fields({"tool_name": message.tool_name, "created_at": message.created_at})
        for message in reversed(latest)
    ]
    return {**_session_to_json(row), "messages": messages, "shown": len(messages)}


async def moments(env: ToolEnv, page: str) -> dict[str, Any]:
    """List moments, newest first, by page; the first page is 1."""
    number = int(page) if re.fullmatch(r"[0-9]{1,7}", page) else 0
    if not 1 <= number <= MAX_PAGE_NUMBER:
        raise InvalidInputError(f"A page is a whole number from 1 on, not {page[:100]!r}: rem://moments/1.")
    store = env.rem.for_user(env.scope).store
    total = await store.count(Moment)
    rows = await store.find(
        Moment,
        order_by="-starts_timestamp, -created_at",
        limit=MOMENTS_PER_PAGE,
        offset=(number - 1) * MOMENTS_PER_PAGE,
    )
    pages = max(1, -(-total // MOMENTS_PER_PAGE))
    return {"moments": [_entity_to_json(row) for row in rows], "page": number, "pages": pages, "count": total}


async def moment(env: ToolEnv, key: str) -> dict[str, Any]:
    """Show one moment, by its key."""
    matches = await env.rem.for_user(env.scope).store.lookup(key, table="moments")
    if not matches:
        raise NotFoundError(f"There is no moment with the key {key[:200]!r}.")
    return _entity_to_json(matches[0], MAX_MOMENT_CHARS)


async def profile(env: ToolEnv, user_id: str) -> dict[str, Any]:
    """Show the caller's profile, by `me`, the caller's id or e-mail address. Other profiles are not found."""
    own_id = env.scope.user_id
    if own_id is None or env.context.user_id is None or (user_id != "me" and resolve_user_id(user_id) != own_id):
        raise NotFoundError(f"There is no profile of {user_id[:200]!r}: user://profile/me is the caller's own.")
    record = await load_own_profile(env)
    if record is None:
        return {"user_id": own_id, "note": "Nothing is known about this user yet."}
    fields = drop_empty_fields({name: record.get(name) for name in _PROFILE_FIELDS})
    return {"user_id": own_id, "key": record["key"], **fields}


async def status(env: ToolEnv) -> dict[str, Any]:
    """Show versions, the caller's row counts, and whether search by meaning and a language model are set up."""
    page: dict[str, Any] = {
        "rem": version("remstack"),
        "memory": "off: set POSTGRES__ENABLED=true" if env.memory is None else "on",
        "language_model": "configured" if env.has_model else "none: set LLM__DEFAULT_MODEL",
    }
    if env.memory is None:
        return page
    server = env.rem.database.server_info
    waiting = await env.rem.index_backlog()
    async with env.rem.database.connection() as connection:
        embedding_model = await load_current_model(connection)
    store = env.rem.for_user(env.scope).store
    counts = {model.entity_type.table: await store.count(model) for model in await list_entity_types(env)}
    return {
        **page,
        "postgresql": server.version,
        "pgvector": server.vector.installed,
        "embedding_model": embedding_model.name if embedding_model else "none yet: search goes by words",
        "index": "some rows wait to be indexed" if waiting else "up to date",
        "counts": {table: count for table, count in counts.items() if count},
    }


async def help_topics(env: ToolEnv) -> dict[str, Any]:
    """Explain REM itself: what it is, and how to store, search, forget, and use sessions, agents and models."""
    topics = [{"name": topic.name, "title": topic.title, "text": topic.text} for topic in load_help_topics()]
    return {"topics": topics, "count": len(topics)}


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """A resource: its address, in which `{name}` stands for an argument, and the function that returns its content."""

    uri: str
    content: Callable[..., Coroutine[Any, Any, Any]]

    @property
    def name(self) -> str:
        """The name that MCP clients show."""
        return self.content.__name__


RESOURCE_PAGES: tuple[ResourcePage, ...] = (
    ResourcePage("rem://agents", agents),
    ResourcePage("rem://agents/{name}", agent),
    ResourcePage("rem://schema/entities", entities),
    ResourcePage("rem://schema/query-types", query_types),
    ResourcePage("rem://sessions", sessions),
    ResourcePage("rem://sessions/{id}", session),
    ResourcePage("rem://moments/{page}", moments),
    ResourcePage("rem://moments/key/{key}", moment),
    ResourcePage("rem://status", status),
    ResourcePage("rem://help", help_topics),
    ResourcePage("user://profile/{user_id}", profile),
)


def _get_directory(env: ToolEnv) -> AgentDirectory:
    if env.agents is None:
        raise ToolFailedError("There are no agents here.")
    return env.agents


def _get_first_paragraph(text: str) -> str:
    """Return the first paragraph in one line, with at most MAX_SUMMARY_CHARS characters."""
    line = collapse_spaces(text.strip().split("\n\n")[0])
    return line if len(line) <= MAX_SUMMARY_CHARS else f"{line[:MAX_SUMMARY_CHARS]}…"


def _session_to_json(row: Session) -> dict[str, Any]:
    fields = {"id", "name", "description", "agent_schema", "message_count", "created_at", "updated_at"}
    return {**drop_empty_fields(row.model_dump(mode="json", include=fields)), "uri": f"rem://sessions/{row.id}"}


def _entity_to_json(entity: Entity, max_chars: int = MAX_PREVIEW_CHARS) -> dict[str, Any]:
    record = drop_empty_fields(entity.model_dump(mode="json"))
    return {
        name: cut_text(value, max_chars, entity.key) if isinstance(value, str) else value
        for name, value in record.items()
    }
