"""`rem demo`: load the sample workspace and print commands to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rem.cli.runtime import JsonOption, TenantOption, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.load import LoadReport

EXAMPLE_COMMANDS = (
    (("lookup", "sarah-chen"), "find a person by key"),
    (("lookup", "Quarterly Report"), "keys can be written in many ways"),
    (("lookup", "users/sarah@example.com"), "find a user by e-mail address"),
    (("query", 'SEARCH "who looks after the database"'), "search by meaning and by words"),
    (("query", 'TRAVERSE FROM "quarterly-report" DEPTH 2'), "follow the edges"),
    (("db", "status"), "show the server and the tables"),
    (("db", "dump", "-o", "workspace.yaml"), "write the shared rows as YAML"),
)


def demo(tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """Load the sample workspace and print commands to try. Loading it again changes nothing."""
    from rem.cli.db import print_load_report
    from rem.cli.indexing import index_new_rows
    from rem.cli.output import print_json, progress_bar

    async def work(rem: Rem) -> LoadReport:
        with progress_bar("Loading") as on_rows:
            report = await rem.load_demo(tenant=tenant, on_rows=on_rows)
        await index_new_rows(rem, tenant=tenant)
        return report

    report = run_with_rem(work)
    if as_json:
        print_json(report)
        return
    print_load_report(report, tenant=tenant)
    _print_example_commands(tenant)


def _print_example_commands(tenant: str) -> None:
    from rem.cli.output import format_command

    # `rem db status` is about all tenants and has no --tenant.
    commands = [
        (format_command(*words, tenant="default" if words == ("db", "status") else tenant), description)
        for words, description in EXAMPLE_COMMANDS
    ]
    width = max(len(line) for line, _ in commands)
    typer.echo("\nThe sample workspace is loaded. Try:\n")
    for line, description in commands:
        typer.echo(f"  {line:<{width}}  {description}")
    typer.echo()
