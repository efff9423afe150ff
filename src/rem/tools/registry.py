"""All tools by name, in the order in which they are listed."""

from __future__ import annotations

from rem.tools.agents import ask_agent, save_agent
from rem.tools.binding import ToolFunction
from rem.tools.control import correct, forget, remember
from rem.tools.notes import action, register_metadata
from rem.tools.remember import ingest_into_rem, parse_and_ingest_file
from rem.tools.resources import read_resource
from rem.tools.schema import get_schema, list_schema
from rem.tools.search import ask_rem, fuzzy, lookup, search, search_rem, traverse

TOOLS: dict[str, ToolFunction] = {
    function.__name__: function
    for function in (
        search_rem,
        lookup,
        fuzzy,
        traverse,
        ask_rem,
        ask_agent,
        register_metadata,
        action,
        remember,
        forget,
        correct,
        ingest_into_rem,
        parse_and_ingest_file,
        read_resource,
        list_schema,
        get_schema,
        save_agent,
    )
}
"""The tools that MCP clients and agents may call."""
AGENT_TOOLS: dict[str, ToolFunction] = {**TOOLS, search.__name__: search}
"""The tools that agents may call. For an MCP client, `search` would be one more tool that does what `ask_rem` does."""
