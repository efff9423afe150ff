"""The tools, resources and prompts that the MCP server lists."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

import pytest
from fastmcp import Client

from rem.mcp.server import INSTRUCTIONS, create_mcp
from rem.query.parser import parse_query
from rem.tools.binding import get_traits
from rem.tools.registry import TOOLS
from tests.tools.tool_env import env_for


@pytest.fixture
def client() -> Client[Any]:
    """A client in this process, without a database."""
    return Client(create_mcp(lambda: env_for(None, "alice@example.com")))


async def test_tools_have_descriptions_and_annotations(client: Client[Any]) -> None:
    async with client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    assert list(tools) == list(TOOLS)
    for name, tool in tools.items():
        assert tool.annotations is not None
        traits = get_traits(TOOLS[name])
        assert tool.annotations.read_only_hint is traits.is_read_only
        assert tool.annotations.destructive_hint is traits.is_destructive
        assert tool.annotations.open_world_hint is traits.is_open_world
        assert "For example:" in (tool.description or "")
        assert tool.input_schema["additionalProperties"] is False
        assert "env" not in tool.input_schema["properties"]


async def test_server_sends_its_name_version_and_instructions(client: Client[Any]) -> None:
    async with client:
        about = client.server_info
        assert about is not None
        assert (about.name, about.version, client.instructions) == ("rem", version("remstack"), INSTRUCTIONS)
    named = set(re.findall(r"\b[a-z]+_[a-z_]+\b", INSTRUCTIONS))
    assert named - {"happened_at", "superseded_by"} <= set(TOOLS)


async def test_resources_are_listed_as_json(client: Client[Any]) -> None:
    async with client:
        fixed, templates = await client.list_resources(), await client.list_resource_templates()
    assert {str(page.uri) for page in fixed} == {
        "rem://agents",
        "rem://schema/entities",
        "rem://schema/query-types",
        "rem://sessions",
        "rem://status",
        "rem://help",
    }
    assert {page.uri_template for page in templates} == {
        "rem://agents/{name}",
        "rem://sessions/{id}",
        "rem://moments/{page}",
        "rem://moments/key/{key}",
        "user://profile/{user_id}",
    }
    pages: list[Any] = [*fixed, *templates]
    assert {page.mime_type for page in pages} == {"application/json"}
    assert all(page.description for page in pages)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("recall", {"topic": "Project Atlas"}),
        ("prepare_meeting", {"person": "Sarah Chen", "subject": "the roadmap"}),
        ("prepare_meeting", {"person": "Sarah Chen"}),
        ("what_happened", {"period": "last week"}),
        ("take_notes", {"subject": "pricing"}),
        ("write_agent", {"purpose": "prepare my week"}),
    ],
)
async def test_prompt_has_its_arguments_and_names_existing_tools(
    client: Client[Any],
    name: str,
    arguments: dict[str, str],
) -> None:
    async with client:
        assert len(await client.list_prompts()) == 5
        (message,) = (await client.get_prompt(name, arguments)).messages
    text = getattr(message.content, "text", "")
    assert all(value in text for value in arguments.values())
    tools = set(re.findall(r"\b(?:[a-z]+_(?:rem|agent|resource|schema|into_rem)|lookup|fuzzy|traverse)\b", text))
    assert tools
    assert tools <= set(TOOLS)
    for query in re.findall(r"^SELECT .*$", text, re.MULTILINE):
        parse_query(query)
