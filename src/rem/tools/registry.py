"""All tools by name."""

from __future__ import annotations

from rem.tools.action import action
from rem.tools.ask_agent import ask_agent
from rem.tools.ask_rem import ask_rem
from rem.tools.binding import ToolFunction
from rem.tools.fuzzy import fuzzy
from rem.tools.get_schema import get_schema
from rem.tools.ingest_into_rem import ingest_into_rem
from rem.tools.list_schema import list_schema
from rem.tools.lookup import lookup
from rem.tools.parse_and_ingest_file import parse_and_ingest_file
from rem.tools.read_resource import read_resource
from rem.tools.register_metadata import register_metadata
from rem.tools.save_agent import save_agent
from rem.tools.search_rem import search_rem
from rem.tools.traverse import traverse

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
        ingest_into_rem,
        parse_and_ingest_file,
        read_resource,
        list_schema,
        get_schema,
        save_agent,
    )
}
READ_ONLY = frozenset({"search_rem", "lookup", "fuzzy", "traverse", "read_resource", "list_schema", "get_schema"})
"""Those that change nothing. A question may be put to an agent, whose conversation is kept."""
