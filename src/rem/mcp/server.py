"""Create the MCP server with REM's tools, resources and prompts."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastmcp import FastMCP
from fastmcp.exceptions import NotFoundError as UnknownResourceError
from fastmcp.exceptions import ResourceError, ToolError, ValidationError
from fastmcp.server.middleware import Middleware
from fastmcp.tools import FunctionTool
from mcp_types import ToolAnnotations
from pydantic import ValidationError as PydanticValidationError

from rem.errors import NotFoundError, RemError
from rem.mcp.consent import ConsentMiddleware, ask_user
from rem.mcp.prompts import PROMPTS
from rem.tools.binding import EnvSource, ToolFunction, bind_tool, describe_validation_error, get_traits
from rem.tools.env import ToolEnv
from rem.tools.registry import TOOLS
from rem.tools.resources import RESOURCE_PAGES, ResourcePage

if TYPE_CHECKING:
    from fastmcp.server.middleware import CallNext, MiddlewareContext


INSTRUCTIONS = """\
REM is the long-term memory of the user you work for: people, documents, events and past conversations, under keys that
people can read (sarah-chen, q3-report), connected by typed edges.

Before you answer anything that may be remembered, look it up:
1. You have a name or key: lookup. It is exact and instant.
2. The name may be misspelt: fuzzy.
3. You have a topic or a question: search_rem with SEARCH, or ask_rem in plain words.
4. You want to know what is connected: traverse.
5. You need counts, filters or order: search_rem with SELECT; list_schema tells the tables.
Cite the keys that you used. Each row has its date (happened_at); of rows that contradict each other the newest holds,
and superseded_by names the row that replaced one. A row with chars is an excerpt: lookup its key for the whole text. If
nothing is found, say so; do not guess.
To keep what the user says for later conversations: remember; a document: ingest_into_rem. To remove or replace it:
forget and correct; they show what they would change, and only the user can confirm it.
Everything happens as the user who is connected; there is no way, and no need, to name another one."""


def create_mcp(env_of: EnvSource, *, can_ask: bool = False, middleware: Sequence[Middleware] = ()) -> FastMCP[Any]:
    """Create a server. `env_of` returns the environment of each call, which identifies the caller.

    `can_ask` says that the transport can carry a question to the user (elicitation), if the client supports it.
    `middleware` runs before a tool is called or an answer of the user is carried out.
    """
    env_of = _let_client_ask(env_of) if can_ask else env_of
    server: FastMCP[Any] = FastMCP(
        "rem",
        instructions=INSTRUCTIONS,
        version=version("remstack"),
        mask_error_details=True,
        strict_input_validation=True,
        middleware=[ErrorMiddleware(), *middleware, ConsentMiddleware(env_of)],
    )
    for name, function in TOOLS.items():
        server.add_tool(_make_tool(name, function, env_of))
    for page in RESOURCE_PAGES:
        _add_page(server, page, env_of)
    for prompt in PROMPTS:
        server.prompt(prompt)
    return server


def _let_client_ask(env_of: EnvSource) -> EnvSource:
    """Return an environment source whose tools can ask the user through the client."""

    async def env() -> ToolEnv:
        provided = env_of()
        return replace(provided if isinstance(provided, ToolEnv) else await provided, ask_user=ask_user)

    return env


def _make_tool(name: str, function: ToolFunction, env_of: EnvSource) -> FunctionTool:
    return _describe_tool(name, function).model_copy(update={"fn": bind_tool(function, env_of, to_tool_error)})


@cache
def _describe_tool(name: str, function: ToolFunction) -> FunctionTool:
    """Return a tool with its schemas but without an environment. All servers share it: the schemas take time."""
    traits = get_traits(function)
    annotations = ToolAnnotations(
        title=name.replace("_", " "),
        read_only_hint=traits.is_read_only,
        destructive_hint=traits.is_destructive,
        open_world_hint=traits.is_open_world,
    )
    return FunctionTool.from_function(
        bind_tool(function, _get_no_env),
        name=name,
        description=inspect.getdoc(function),
        annotations=annotations,
        tags=set(),
    )


def _get_no_env() -> ToolEnv:
    raise LookupError("a description of a tool cannot be called")


def _add_page(server: FastMCP[Any], page: ResourcePage, env_of: EnvSource) -> None:
    add = server.resource(
        page.uri, name=page.name, description=inspect.getdoc(page.content), mime_type="application/json"
    )
    add(bind_tool(page.content, env_of, to_resource_error))


class _PageNotFoundError(ResourceError):
    """The page does not exist, or belongs to another user."""


def to_tool_error(error: RemError) -> Exception:
    """Return the MCP error for a failed tool call. It is not logged: its message is for the caller."""
    return ToolError(str(error), log_level=logging.DEBUG)


def to_resource_error(error: RemError) -> Exception:
    """Return the MCP error for a failed read. A resource of another user is reported as not found."""
    error_class = _PageNotFoundError if isinstance(error, NotFoundError) else ResourceError
    return error_class(str(error), log_level=logging.DEBUG)


class ErrorMiddleware(Middleware):
    """Describes invalid arguments field by field, and reports a missing page with the code of the protocol."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Run a tool, and describe invalid arguments."""
        try:
            return await call_next(context)
        except ValidationError as error:
            cause = error.__cause__
            if not isinstance(cause, PydanticValidationError):
                raise
            raise ToolError(
                f"The arguments of {context.message.name} are not valid. {describe_validation_error(cause)}",
                log_level=logging.DEBUG,
            ) from error

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Read a resource, and report a missing page."""
        try:
            return await call_next(context)
        except _PageNotFoundError as error:
            raise UnknownResourceError(str(error)) from error
