"""`rem agents …`: the agents that can be asked, and how to add your own."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_async, run_with_rem

if TYPE_CHECKING:
    from rem.agents.catalog import AgentCatalog, CatalogEntry
    from rem.agents.schema import AgentSchema
    from rem.agents.yaml_parser import ParsedAgent
    from rem.app import Rem

R = TypeVar("R")

app = typer.Typer(help="The agents that can be asked, and your own.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(help="The agent's name, such as query-agent.")]


@app.command("list")
def list_agents(user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """Show the agents: built in, in your folder, in the database; also definitions that cannot be used, and why."""
    from rem.cli.output import print_json
    from rem.context import Scope

    async def work(catalog: AgentCatalog) -> list[CatalogEntry]:
        return list(await catalog.list_entries(Scope.for_user(user, tenant)))

    entries = _with_catalog(work)
    if as_json:
        print_json([_row(entry) for entry in entries])
        return
    for entry in entries:
        if entry.schema is not None:
            typer.echo(f"{entry.name:<20} {entry.source}")
            typer.echo(f"    {entry.schema.summary}")
    for entry in entries:
        if entry.error is not None:
            print_to_stderr(f"Cannot be used: {entry.error}")


@app.command()
def show(name: Name, user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """Show how an agent is defined, as YAML that you can start an agent of your own from."""
    from rem.cli.output import print_json
    from rem.context import Scope

    async def work(catalog: AgentCatalog) -> AgentSchema:
        return await catalog.get(name, Scope.for_user(user, tenant))

    schema = _with_catalog(work)
    if as_json:
        print_json(schema.as_document() | {"source": schema.source})
    else:
        typer.echo(schema.as_yaml(), nl=False)


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="YAML files with an agent each; - is standard input.")],
    as_json: JsonOption = False,
) -> None:
    """Check agents without a database; every problem is named with its line and field."""
    from rem.cli.output import print_json
    from rem.errors import InvalidAgentError

    found = [(str(file), _read(file)) for file in files]
    if as_json:
        print_json([_report(file, read) for file, read in found])
    else:
        for file, read in found:
            if read.schema is not None and not read.issues:
                typer.echo(f"{file}: {read.schema.name} {read.schema.version} is valid.")
    problems = [problem.format(file) for file, read in found for problem in read.issues]
    if problems:
        raise InvalidAgentError("\n".join(problems))


@app.command()
def save(
    file: Annotated[Path, typer.Argument(help="A YAML file with an agent; - is standard input.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Keep an agent in the database as the user's own (without --user: for everyone), over the one of its name."""
    from rem.agents.yaml_parser import describe_issues
    from rem.cli.output import format_command, print_json
    from rem.context import Scope
    from rem.errors import InvalidAgentError

    read = _read(file)
    if read.schema is None:
        raise InvalidAgentError(describe_issues(read.issues, str(file)))
    text = read.schema.as_yaml()

    async def work(catalog: AgentCatalog) -> AgentSchema:
        return await catalog.save(text, Scope.for_user(user, tenant))

    saved = _with_catalog(work)
    if as_json:
        print_json({"name": saved.name, "version": saved.version, "kind": saved.kind, "source": saved.source})
    else:
        again = format_command("agents", "show", saved.name, user=user, tenant=tenant)
        typer.echo(f"Saved {saved.name} {saved.version}; `{again}` shows it.")


@app.command()
def delete(name: Name, user: UserOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """Delete an agent that the user saved (without --user: one that everyone shares)."""
    from rem.cli.output import format_command, print_json
    from rem.context import Scope

    async def work(catalog: AgentCatalog) -> None:
        await catalog.delete(name, Scope.for_user(user, tenant))

    _with_catalog(work)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        back = format_command("restore", "schemas", name, user=user, tenant=tenant)
        typer.echo(f"Deleted {name}; `{back}` brings it back.")


def _with_catalog(work: Callable[[AgentCatalog], Awaitable[R]]) -> R:
    """Run a coroutine on the catalogue; without a database if that is switched off."""
    from rem.agents.catalog import AgentCatalog
    from rem.settings import get_settings

    settings = get_settings()

    async def with_rem(rem: Rem) -> R:
        return await work(AgentCatalog(settings, rem))

    if settings.postgres.enabled:
        return run_with_rem(with_rem)
    return run_async(lambda: work(AgentCatalog(settings, None)))


def _read(file: Path) -> ParsedAgent:
    from rem.agents.catalog import check_name, read_agent_file
    from rem.agents.yaml_parser import AgentIssue, ParsedAgent, read_agent_bytes

    if str(file) == "-":
        return check_name(read_agent_bytes(sys.stdin.buffer.read(), "-"))
    try:
        return read_agent_file(file)
    except OSError as error:
        return ParsedAgent(None, [AgentIssue(f"cannot be read: {error.strerror}")])


def _row(entry: CatalogEntry) -> dict[str, Any]:
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


def _report(file: str, read: ParsedAgent) -> dict[str, Any]:
    problems = [{"line": problem.line, "field": problem.field, "message": problem.message} for problem in read.issues]
    return {"file": file, "name": read.name, "valid": not read.issues, "problems": problems}
