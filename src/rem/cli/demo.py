"""`rem demo`: the sample workspace, and what to try with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rem.cli.runtime import JsonOption, TenantOption, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.db.load import LoadReport

_TRY = (
    (("lookup", "sarah-chen"), "a person, by her key"),
    (("lookup", "Quarterly Report"), "the same key however you write it; its edges point at her"),
    (("lookup", "users/sarah@example.com"), "by e-mail address, in one table"),
    (("query", 'SEARCH "who looks after the database"'), "by meaning and by words"),
    (("query", 'TRAVERSE FROM "quarterly-report" DEPTH 2'), "what is connected"),
    (("db", "status"), "what is stored, and where"),
    (("db", "dump", "-o", "workspace.yaml"), "what is shared, as YAML that `rem db load` reads back"),
)


def demo(tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """Load a small, linked sample workspace and show what to try with it. Loading it again changes nothing."""
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
    _print_what_to_try(tenant)


def _print_what_to_try(tenant: str) -> None:
    from rem.cli.output import format_command

    # The state of the database is that of all tenants.
    scopes = ("default" if words == ("db", "status") else tenant for words, _ in _TRY)
    commands = [
        (format_command(*words, tenant=scope), gives) for (words, gives), scope in zip(_TRY, scopes, strict=True)
    ]
    width = max(len(line) for line, _ in commands)
    typer.echo("\nThe sample workspace is loaded. Try:\n")
    for line, gives in commands:
        typer.echo(f"  {line:<{width}}  {gives}")
    typer.echo()
