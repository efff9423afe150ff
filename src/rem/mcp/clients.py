"""Make the configuration that connects an MCP client to REM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rem.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class McpClient:
    """An MCP client, and the names of the fields in its settings file."""

    name: str
    file: str
    """The settings file, as a person finds it."""
    servers: str = "mcpServers"
    local: Mapping[str, str] | None = None
    """Further fields beside the command of a local server."""
    url: str | None = "url"
    """The field for the address of a remote server; None if the client supports only local servers."""
    remote: Mapping[str, str] | None = None
    """Further fields beside the address of a remote server."""


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
    """Return the configuration of a client that starts REM itself and uses standard input and output."""
    program, *arguments = command
    server: dict[str, Any] = {**(client.local or {}), "command": program, "args": arguments}
    return {client.servers: {"rem": {**server, "env": dict(env)} if env else server}}


def make_remote_config(client: McpClient, url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the configuration of a client that connects to a running `rem serve`."""
    if client.url is None:
        raise InvalidInputError(f"{client.name} supports only local servers: leave --url out.")
    server: dict[str, Any] = {**(client.remote or {}), client.url: url}
    return {client.servers: {"rem": {**server, "headers": dict(headers)} if headers else server}}
