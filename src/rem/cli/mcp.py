"""`rem mcp`: REM for MCP clients, by standard input and output; `rem mcp config`: how they find it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import TenantOption, UserOption, print_to_stderr, run_async

if TYPE_CHECKING:
    from rem.context import AgentContext

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

_TENANT = "default"
_PASSED_ON = ("REM_HOME",)
"""Settings that a client passes on: it starts REM without the user's shell."""


@app.callback()
def mcp(context: typer.Context, user: UserOption = None, tenant: TenantOption = _TENANT) -> None:
    """Serve MCP on standard input and output, for a client that starts this command (see `rem mcp config`).

    Everything happens as the given user. Over HTTP, `rem serve` has MCP at /api/v1/mcp.
    """
    if context.invoked_subcommand is None:
        from rem.context import AgentContext, Scope

        scope = Scope.for_user(user, tenant)
        caller = AgentContext(user_id=scope.user_id, tenant_id=scope.tenant_id)
        run_async(lambda: _serve(caller))


async def _serve(caller: AgentContext) -> None:
    from contextlib import AsyncExitStack

    from rem.agents.service import Agents
    from rem.app import Rem
    from rem.mcp.server import create_mcp
    from rem.settings import get_settings

    settings = get_settings()
    async with AsyncExitStack() as open_things:
        rem = None
        if settings.postgres.enabled:
            rem = await open_things.enter_async_context(Rem.open(settings, on_progress=print_to_stderr))
        agents = Agents(rem, settings)
        open_things.push_async_callback(agents.close)
        server = create_mcp(lambda: agents.env_with_delegate(caller))
        # Standard output belongs to the protocol: whatever else is said goes to standard error.
        await server.run_stdio_async(show_banner=False, log_level="WARNING")


@app.command("config")
def config(
    context: typer.Context,
    client: Annotated[
        str, typer.Argument(help="claude-desktop, claude-code, cursor, vscode, zed, windsurf or gemini-cli.")
    ] = "claude-desktop",
    url: Annotated[
        str | None,
        typer.Option("--url", help="Use a running server, such as http://127.0.0.1:8000/api/v1/mcp, instead."),
    ] = None,
    user: UserOption = None,
    tenant: TenantOption = _TENANT,
) -> None:
    """Print what to put into the settings of an MCP client, as JSON; where it belongs is said on standard error."""
    from rem.cli.output import print_json
    from rem.errors import InvalidInputError
    from rem.mcp.clients import CLIENTS, make_local_config, make_remote_config

    if client not in CLIENTS:
        raise InvalidInputError(f"There is no client {client!r}: choose one of {', '.join(CLIENTS)}.")
    # `rem mcp --user … config` means the same as `rem mcp config --user …`.
    before = context.parent.params if context.parent else {}
    user, tenant = user or before.get("user"), tenant if tenant != _TENANT else before.get("tenant", tenant)
    chosen = CLIENTS[client]
    if url is None:
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        print_json(make_local_config(chosen, [*_command(), *_arguments(user, tenant)], env))
        _tell_of_settings()
    else:
        print_json(make_remote_config(chosen, url, _headers(user, tenant)))
    print_to_stderr(f"Put this into {chosen.file}.")


def _command() -> list[str]:
    """The installed command, by its whole path: a client does not know the environment that it is installed in."""
    script = Path(sys.executable).with_name("rem")
    return [str(script)] if script.exists() else [sys.executable, "-m", "rem"]


def _arguments(user: str | None, tenant: str) -> list[str]:
    named = ["--user", user] if user else []
    return ["mcp", *named, *(["--tenant", tenant] if tenant != _TENANT else [])]


def _headers(user: str | None, tenant: str) -> dict[str, str]:
    named = {"X-User-Id": user} if user else {}
    return {**named, **({"X-Tenant-Id": tenant} if tenant != _TENANT else {})}


def _tell_of_settings() -> None:
    """Settings may be secrets, so they are named and not copied."""
    from rem.settings import Settings

    groups = tuple(f"{group.upper()}__" for group in Settings.model_fields)
    others = sorted(name for name in os.environ if name.upper().startswith(groups))
    if others or Path(".env").is_file():
        named = ", ".join([*others, *([".env"] if Path(".env").is_file() else [])])
        print_to_stderr(f"The client does not see these settings of yours: {named}. Add what is needed under env.")
