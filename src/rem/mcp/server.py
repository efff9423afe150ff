"""Create the MCP server with REM's tools, resources and prompts."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from typing import Any

from fastmcp import FastMCP
from fastmcp.tools import FunctionTool
from mcp_types import ToolAnnotations

from rem.mcp.errors import ErrorMiddleware, to_resource_error, to_tool_error
from rem.mcp.prompts import PROMPTS
from rem.tools.binding import EnvSource, ToolFunction, bind_tool, get_traits
from rem.tools.registry import TOOLS
from rem.tools.resources import RESOURCE_PAGES, ResourcePage

INSTRUCTIONS = """\
REM is the long-term memory of the user you work for: people, documents, events and past conversations, under keys that
people can read (sarah-chen, q3-report), connected by typed edges.

Before you answer anything that may be remembered, look it up:
1. You have a name or key: lookup. It is exact and instant.
2. The name may be misspelt: fuzzy.
3. You have a topic or a question: search_rem with SEARCH, or ask_rem in plain words.
4. You want to know what is connected: traverse.
5. You need counts, filters or order: search_rem with SELECT; list_schema tells the tables.
Cite the keys that you used. A text that is cut says how to get the rest. If nothing is found, say so; do not guess.
To keep something for later conversations: ingest_into_rem. Everything happens as the user who is connected; there is
no way, and no need, to name another one."""


def create_mcp(env_of: EnvSource) -> FastMCP[Any]:
    """Create a server. `env_of` returns the environment of each call, which identifies the caller."""
    server: FastMCP[Any] = FastMCP(
        "rem",
        instructions=INSTRUCTIONS,
        version=version("remstack"),
        mask_error_details=True,
        strict_input_validation=True,
        middleware=[ErrorMiddleware()],
    )
    for name, function in TOOLS.items():
        server.add_tool(_make_tool(name, function, env_of))
    for page in RESOURCE_PAGES:
        _add_page(server, page, env_of)
    for prompt in PROMPTS:
        server.prompt(prompt)
    return server


def _make_tool(name: str, function: ToolFunction, env_of: EnvSource) -> FunctionTool:
    traits = get_traits(function)
    annotations = ToolAnnotations(
        title=name.replace("_", " "),
        read_only_hint=traits.is_read_only,
        destructive_hint=traits.is_destructive,
        open_world_hint=traits.is_open_world,
    )
    return FunctionTool.from_function(
        bind_tool(function, env_of, to_tool_error),
        name=name,
        description=inspect.getdoc(function),
        annotations=annotations,
        tags=set(),
    )


def _add_page(server: FastMCP[Any], page: ResourcePage, env_of: EnvSource) -> None:
    add = server.resource(
        page.uri, name=page.name, description=inspect.getdoc(page.content), mime_type="application/json"
    )
    add(bind_tool(page.content, env_of, to_resource_error))
