"""`rem agents`: list, show, check, save and delete agents."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_async, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.agents.catalog import AgentCatalog, CatalogEntry
    from rem.agents.schema import AgentSchema
    from rem.agents.yaml_parser import ParsedAgent
    from rem.app import Rem
    from rem.context import Scope

R = TypeVar("R")

app = typer.Typer(help="List, check, save and delete agents.", no_args_is_help=True, rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(help="The agent's name, such as query-agent.")]


_GAP_COLUMNS = {
    "agent": "agent",
    "tool": "tool",
    "missing_tools": "tool",
    "occurrences": "calls",
    "users": "users",
    "updated_at": "last call",
    "attempted_task": "task of the last call",
}


@app.command("list")
def list_agents(user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """List the agents, and invalid definitions with the reason. `rem eval evaluators` lists the evaluators."""
    from rem.context import Scope

    print_catalog("agent", Scope.for_user(user, tenant), as_json=as_json)


def print_catalog(kind: str, scope: Scope, *, as_json: bool) -> None:
    """Print the agents or the evaluators of a caller, and the definitions that cannot be used."""
    from rem.cli.output import print_json

    async def work(catalog: AgentCatalog) -> list[CatalogEntry]:
        return list(await catalog.list_entries(scope))

    # The kind of an invalid definition is unknown, so it is in both lists.
    entries = [entry for entry in _with_catalog(work) if entry.schema is None or entry.schema.kind == kind]
    if as_json:
        print_json([_entry_to_json(entry) for entry in entries])
        return
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        if entry.schema is not None:
            echo(f"{entry.name:<{width}}  {entry.source}")
            echo(f"    {entry.schema.summary}")
    for entry in entries:
        if entry.error is not None:
            print_to_stderr(f"Cannot be used: {entry.error}")


@app.command()
def show(
    name: NameArgument, user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Print the definition of an agent as YAML."""
    from rem.cli.output import print_json
    from rem.context import Scope

    async def work(catalog: AgentCatalog) -> AgentSchema:
        return await catalog.get(name, Scope.for_user(user, tenant))

    schema = _with_catalog(work)
    if as_json:
        print_json(schema.as_document() | {"source": schema.source})
    else:
        echo(schema.as_yaml(), nl=False)


@app.command()
def gaps(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The maximum number of rows.")] = 50,
    all_users: Annotated[
        bool, typer.Option("--all-users", help="Add up the calls of all users of the tenant, without their tasks.")
    ] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the tools that agents called but do not have."""
    from rem.agents.tool_gaps import count_gaps_of_all_users
    from rem.cli.output import print_json, print_table
    from rem.models import ToolGap

    async def work(rem: Rem) -> list[dict[str, Any]]:
        if all_users:
            return await count_gaps_of_all_users(rem.database, tenant, limit)
        rows = await rem.for_user(user, tenant=tenant).store.find(
            ToolGap, order_by="-occurrences, -updated_at", limit=limit
        )
        return [row.model_dump() for row in rows]

    rows = run_with_rem(work)
    if as_json:
        print_json(rows)
    elif not rows:
        print_to_stderr("No agent has called a tool that it does not have.")
    else:
        columns = {name: title for name, title in _GAP_COLUMNS.items() if name in rows[0]}
        print_table(list(columns.values()), [[_format_gap_cell(row[name]) for name in columns] for row in rows])


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="YAML files with one agent each; - is standard input.")],
    as_json: JsonOption = False,
) -> None:
    """Check agent files and print every error with its line and field."""
    from rem.cli.output import print_json
    from rem.errors import InvalidAgentError

    agents = [(str(file), _read_agent(file)) for file in files]
    if as_json:
        print_json([_agent_to_json(file, agent) for file, agent in agents])
    else:
        for file, agent in agents:
            if agent.schema is not None and not agent.issues:
                echo(f"{file}: {agent.schema.name} {agent.schema.version} is valid.")
    issues = [issue.format(file) for file, agent in agents for issue in agent.issues]
    if issues:
        raise InvalidAgentError("\n".join(issues))


@app.command()
def save(
    file: Annotated[Path, typer.Argument(help="A YAML file with an agent; - is standard input.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Save an agent in the database. Without --user: for everyone.

    It replaces a saved agent with the same name.
    """
    from rem.agents.yaml_parser import describe_issues
    from rem.cli.output import format_command, print_json
    from rem.context import Scope
    from rem.errors import InvalidAgentError

    agent = _read_agent(file)
    if agent.schema is None:
        raise InvalidAgentError(describe_issues(agent.issues, str(file)))
    text = agent.schema.as_yaml()

    async def work(catalog: AgentCatalog) -> AgentSchema:
        return await catalog.save(text, Scope.for_user(user, tenant))

    saved = _with_catalog(work)
    if as_json:
        print_json({"name": saved.name, "version": saved.version, "kind": saved.kind, "source": saved.source})
    else:
        show_command = format_command("agents", "show", saved.name, user=user, tenant=tenant)
        echo(f"Saved {saved.name} {saved.version}; `{show_command}` shows it.")


@app.command()
def delete(
    name: NameArgument, user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Delete a saved agent of the user. Without --user: an agent that is saved for everyone."""
    from rem.cli.output import format_command, print_json
    from rem.context import Scope

    async def work(catalog: AgentCatalog) -> None:
        await catalog.delete(name, Scope.for_user(user, tenant))

    _with_catalog(work)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        restore_command = format_command("restore", "schemas", name, user=user, tenant=tenant)
        echo(f"Deleted {name}; `{restore_command}` restores it.")


def _with_catalog(work: Callable[[AgentCatalog], Awaitable[R]]) -> R:
    """Run a coroutine with the agent catalog, without a database if that is switched off."""
    from rem.agents.catalog import AgentCatalog
    from rem.settings import get_settings

    settings = get_settings()

    async def with_rem(rem: Rem) -> R:
        return await work(AgentCatalog(settings, rem))

    if settings.postgres.enabled:
        return run_with_rem(with_rem)
    return run_async(lambda: work(AgentCatalog(settings, None)))


def _read_agent(file: Path) -> ParsedAgent:
    from rem.agents.catalog import check_name, read_agent_file
    from rem.agents.yaml_parser import AgentIssue, ParsedAgent, read_agent_bytes

    if str(file) == "-":
        return check_name(read_agent_bytes(sys.stdin.buffer.read(), "-"))
    try:
        return read_agent_file(file)
    except OSError as error:
        return ParsedAgent(None, [AgentIssue(f"cannot be read: {error.strerror}")])


def _entry_to_json(entry: CatalogEntry) -> dict[str, Any]:
    schema = entry.schema
    return {
        "name": entry.name,
        "source": entry.source,
        "kind": schema.kind if schema else None,
        "version": schema.version if schema else None,
        "summary": schema.summary if schema else None,
        "tools": schema.tool_names if schema else None,
        "structured_output": schema.structured_output if schema else None,
        "model": schema.model if schema else None,
        "problem": entry.error,
    }


def _agent_to_json(file: str, agent: ParsedAgent) -> dict[str, Any]:
    issues = [{"line": issue.line, "field": issue.field, "message": issue.message} for issue in agent.issues]
    return {"file": file, "name": agent.name, "valid": not agent.issues, "problems": issues}


def _format_gap_cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return ", ".join(value) if isinstance(value, list) else value
