"""`rem demo`: load the sample workspace into its own tenant, print commands to try, and remove it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import JsonOption, print_to_stderr, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.load import LoadReport
    from rem.demo import RemovedWorkspace

EXAMPLE_COMMANDS = (
    (("lookup", "sarah-chen"), "find a person by key"),
    (("lookup", "Quarterly Report"), "keys can be written in many ways"),
    (("lookup", "users/sarah@example.com"), "find a user by e-mail address"),
    (("query", 'SEARCH "who looks after the database"'), "search by meaning and by words"),
    (("query", 'TRAVERSE FROM "quarterly-report" DEPTH 2'), "follow the edges"),
    (("ask", "Who leads Project Atlas?"), "ask in plain words"),
    (("db", "dump", "-o", "workspace.yaml"), "write the shared rows as YAML"),
    (("demo", "--remove"), "remove the sample workspace"),
)
MAX_PRINTED_ROWS = 5


def demo(
    remove: Annotated[
        bool, typer.Option("--remove", help="Erase the sample workspace, and the chats in the tenant demo.")
    ] = False,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            help="The tenant to load it into. By default: demo, which holds nothing else. --remove removes it from "
            "demo and from default, where earlier versions put it.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Load the sample workspace and print commands to try.

    Loading it again changes nothing. It has its own tenant, so it is in nobody's answers.
    """
    if remove:
        _remove(tenant, as_json=as_json)
    else:
        _load(tenant, as_json=as_json)


def _load(tenant: str | None, *, as_json: bool) -> None:
    from rem.cli.db import print_load_report
    from rem.cli.indexing import index_new_rows
    from rem.cli.output import format_command, format_count, print_json, progress_bar
    from rem.context import DEFAULT_TENANT
    from rem.demo import DEMO_TENANT

    into = tenant or DEMO_TENANT

    async def work(rem: Rem) -> tuple[LoadReport, int]:
        with progress_bar("Loading") as on_rows:
            report = await rem.load_demo(tenant=into, on_rows=on_rows)
        await index_new_rows(rem, tenant=into)
        return report, 0 if into == DEFAULT_TENANT else await rem.count_demo_rows(tenant=DEFAULT_TENANT)

    report, old_rows = run_with_rem(work)
    if as_json:
        print_json(report)
    else:
        print_load_report(report, tenant=into)
        _print_example_commands(into)
    if old_rows:
        remove_command = format_command("demo", "--remove", "--tenant", DEFAULT_TENANT)
        print_to_stderr(
            f"The tenant {DEFAULT_TENANT} also holds {format_count(old_rows, 'sample row')}, which are in everyone's "
            f"answers: `{remove_command}` removes them."
        )


def _remove(tenant: str | None, *, as_json: bool) -> None:
    from rem.cli.output import format_count, print_json
    from rem.context import DEFAULT_TENANT
    from rem.demo import DEMO_TENANT

    tenants = (DEMO_TENANT, DEFAULT_TENANT) if tenant is None else (tenant,)

    async def work(rem: Rem) -> list[RemovedWorkspace]:
        return [await rem.remove_demo(tenant=name) for name in tenants]

    reports = run_with_rem(work)
    if as_json:
        print_json(reports)
        return
    for report in reports:
        if report.erased or report.kept or report.chats or report.tenant == tenants[0]:
            chats = f" and {format_count(report.chats, 'chat')}" if report.chats else ""
            erased = f"{format_count(len(report.erased), 'sample row')}{chats}"
            echo(f"Erased {erased} of the tenant {report.tenant}.")
        if report.kept:
            more = f" and {len(report.kept) - MAX_PRINTED_ROWS} more" if len(report.kept) > MAX_PRINTED_ROWS else ""
            echo(f"Kept, because they were changed: {', '.join(report.kept[:MAX_PRINTED_ROWS])}{more}.")


def _print_example_commands(tenant: str) -> None:
    from rem.cli.output import format_command
    from rem.demo import DEMO_TENANT

    echo(f"\nThe sample workspace is loaded into the tenant {tenant}. Try:\n")
    for words, description in EXAMPLE_COMMANDS:
        # Below its command, because most terminals are too narrow for both in one line.
        is_default = words[0] == "demo" and tenant == DEMO_TENANT
        echo(f"  {format_command(*words, tenant='default' if is_default else tenant)}")
        echo(f"      {description}")
    echo()
