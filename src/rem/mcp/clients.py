"""What to write into the settings of an MCP client, so that it has REM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rem.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class McpClient:
    """A program that uses MCP servers, and the words that its settings have for them."""

    name: str
    file: str
    """Where the configuration belongs."""
    servers: str = "mcpServers"
    local: Mapping[str, str] | None = None
    """What it wants to read beside the command."""
    url: str | None = "url"
    """What it calls the address of a server; None if it only starts servers itself."""
    remote: Mapping[str, str] | None = None
    """What it wants to read beside the address."""


CLIENTS: dict[str, McpClient] = {
    client.name: client
    for client in (
        McpClient("claude-desktop", "claude_desktop_config.json (Settings, Developer, Edit Config)", url=None),
        McpClient(
            "claude-code",
            ".mcp.json in the project, or mcpServers of ~/.claude.json",
            local={"type": "stdio"},
            remote={"type": "http"},
        ),
        McpClient("cursor", "~/.cursor/mcp.json"),
        McpClient(
            "vscode",
            ".vscode/mcp.json in the workspace",
            servers="servers",
            local={"type": "stdio"},
            remote={"type": "http"},
        ),
        McpClient("zed", "settings.json (zed: open settings)", servers="context_servers"),
        McpClient("windsurf", "~/.codeium/windsurf/mcp_config.json", url="serverUrl"),
        McpClient("gemini-cli", "~/.gemini/settings.json", url="httpUrl"),
    )
}


def make_local_config(client: McpClient, command: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """A configuration with which the client starts REM itself and talks to it by standard input and output."""
    program, *arguments = command
    server: dict[str, Any] = {**(client.local or {}), "command": program, "args": arguments}
    return {client.servers: {"rem": {**server, "env": dict(env)} if env else server}}


def make_remote_config(client: McpClient, url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """A configuration with which the client talks to a running `rem serve`."""
    if client.url is None:
        raise InvalidInputError(f"{client.name} starts servers itself: leave --url out.")
    server: dict[str, Any] = {**(client.remote or {}), client.url: url}
    return {client.servers: {"rem": {**server, "headers": dict(headers)} if headers else server}}
