"""`rem mcp`: serve MCP on standard input and output; `rem mcp config`: print the configuration of a client."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import TenantOption, UserOption, load_settings, print_to_stderr, run_async

if TYPE_CHECKING:
    from rem.context import AgentContext

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

DEFAULT_TENANT = "default"
PASSED_VARIABLES = ("REM_HOME",)
"""Environment variables that the client's configuration passes on, because it starts REM without the user's shell."""


@app.callback()
def mcp(context: typer.Context, user: UserOption = None, tenant: TenantOption = DEFAULT_TENANT) -> None:
    """Serve MCP on standard input and output.

    An MCP client starts this command (see `rem mcp config`). All calls use the memory of the given user. `rem serve`
    offers MCP over HTTP, at /api/v1/mcp.
    """
    if context.invoked_subcommand is None:
        from rem.context import AgentContext, Scope

        scope = Scope.for_user(user, tenant)
        caller = AgentContext(user_id=scope.user_id, tenant_id=scope.tenant_id)
        run_async(lambda: _serve(caller))


async def _serve(caller: AgentContext) -> None:
    from rem.agents.service import Agents
    from rem.mcp.server import create_mcp

    async with Agents.open(load_settings(), on_progress=print_to_stderr) as agents:
        server = create_mcp(lambda: agents.env_with_delegate(caller), can_ask=True)
        # Standard output is for the protocol only; everything else goes to standard error.
        await server.run_stdio_async(show_banner=False, log_level="WARNING")


@app.command("config")
def config(
    context: typer.Context,
    client: Annotated[
        str, typer.Argument(help="claude-desktop, claude-code, cursor, vscode, zed, windsurf or gemini-cli.")
    ] = "claude-desktop",
    url: Annotated[
        str | None,
        typer.Option("--url", help="Use a running server instead, such as http://127.0.0.1:8000/api/v1/mcp."),
    ] = None,
    user: UserOption = None,
    tenant: TenantOption = DEFAULT_TENANT,
) -> None:
    """Print the configuration of an MCP client as JSON.

    The path of the client's configuration file is printed on standard error.
    """
    from rem.cli.output import print_json
    from rem.errors import InvalidInputError
    from rem.mcp.clients import CLIENTS, make_local_config, make_remote_config

    if client not in CLIENTS:
        raise InvalidInputError(f"There is no client {client!r}: choose one of {', '.join(CLIENTS)}.")
    # `rem mcp --user … config` means the same as `rem mcp config --user …`.
    parent_options = context.parent.params if context.parent else {}
    user, tenant = (
        user or parent_options.get("user"),
        tenant if tenant != DEFAULT_TENANT else parent_options.get("tenant", tenant),
    )
    chosen = CLIENTS[client]
    if url is None:
        env = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        print_json(make_local_config(chosen, [*_rem_command(), *_mcp_arguments(user, tenant)], env))
        _warn_about_settings()
    else:
        print_json(make_remote_config(chosen, url, _headers(user, tenant)))
    print_to_stderr(f"Put this into {chosen.file}.")


def _rem_command() -> list[str]:
    """Return the installed command with its absolute path, because a client does not know the environment."""
    script = Path(sys.executable).with_name("rem")
    return [str(script)] if script.exists() else [sys.executable, "-m", "rem"]


def _mcp_arguments(user: str | None, tenant: str) -> list[str]:
    user_option = ["--user", user] if user else []
    return ["mcp", *user_option, *(["--tenant", tenant] if tenant != DEFAULT_TENANT else [])]


def _headers(user: str | None, tenant: str) -> dict[str, str]:
    user_header = {"X-User-Id": user} if user else {}
    return {**user_header, **({"X-Tenant-Id": tenant} if tenant != DEFAULT_TENANT else {})}


def _warn_about_settings() -> None:
    """Print the names of settings that the client will not see. They are not copied, because they may be secret."""
    from rem.settings import Settings

    groups = tuple(f"{group.upper()}__" for group in Settings.model_fields)
    names = sorted(name for name in os.environ if name.upper().startswith(groups))
    if names:
        print_to_stderr(f"The client does not see these settings: {', '.join(names)}. Add those it needs under env.")
