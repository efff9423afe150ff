"""`rem demo`: load the sample workspace into its own tenant, print commands to try, and remove it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import JsonOption, run_with_rem
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
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant to load it into, or to remove it from.")] = "demo",
    as_json: JsonOption = False,
) -> None:
    """Load the sample workspace and print commands to try.

    Loading it again changes nothing. It has its own tenant, so it is in nobody's answers.
    """
    if remove:
        _remove(tenant, as_json=as_json)
    else:
        _load(tenant, as_json=as_json)


def _load(tenant: str, *, as_json: bool) -> None:
    from rem.cli.db import print_load_report
    from rem.cli.indexing import index_new_rows
    from rem.cli.output import print_json, progress_bar
    from rem.demo import load_workspace

    async def work(rem: Rem) -> LoadReport:
        with progress_bar("Loading") as on_rows:
            report = await load_workspace(rem.for_user(tenant=tenant).store, on_rows)
        await index_new_rows(rem, tenant=tenant)
        return report

    report = run_with_rem(work)
    if as_json:
        print_json(report)
    else:
        print_load_report(report, tenant=tenant)
        _print_example_commands(tenant)


def _remove(tenant: str, *, as_json: bool) -> None:
    from rem.cli.output import format_count, print_json
    from rem.demo import remove_workspace

    async def work(rem: Rem) -> RemovedWorkspace:
        return await remove_workspace(rem.for_user(tenant=tenant).store)

    report = run_with_rem(work)
    if as_json:
        print_json(report)
        return
    chats = f" and {format_count(report.chats, 'chat')}" if report.chats else ""
    echo(f"Erased {format_count(len(report.erased), 'sample row')}{chats} of the tenant {report.tenant}.")
    if report.kept:
        more = f" and {len(report.kept) - MAX_PRINTED_ROWS} more" if len(report.kept) > MAX_PRINTED_ROWS else ""
        echo(f"Kept, because they were changed: {', '.join(report.kept[:MAX_PRINTED_ROWS])}{more}.")


def _print_example_commands(tenant: str) -> None:
    from rem.cli.output import format_command

    echo(f"\nThe sample workspace is loaded into the tenant {tenant}. Try:\n")
    for words, description in EXAMPLE_COMMANDS:
        # Below its command, because most terminals are too narrow for both in one line.
        is_default = words[0] == "demo" and tenant == "demo"
        echo(f"  {format_command(*words, tenant='default' if is_default else tenant)}")
        echo(f"      {description}")
    echo()
