"""What a load did, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from rem.cli.hints import command
from rem.cli.output import print_table

if TYPE_CHECKING:
    from rem.db.load import LoadReport

_MOST_DELETED = 10


def print_load_report(report: LoadReport, *, user: str | None = None, tenant: str = "default") -> None:
    """The counts by table, what was left deleted, and edges that lead nowhere."""
    print_table(
        ["table", "new", "updated", "unchanged", "left deleted"],
        [
            [table, counts["inserted"], counts["updated"], counts["unchanged"], counts["deleted"]]
            for table, counts in report.tables.items()
        ],
    )
    if report.deleted:
        shown = ", ".join(report.deleted[:_MOST_DELETED])
        more = " ..." if len(report.deleted) > _MOST_DELETED else ""
        restore = command("restore", "TABLE", "KEY", user=user, tenant=tenant)
        typer.echo(f"Deleted before, and left deleted: {shown}{more}. `{restore}` brings one back.")
    if report.dangling:
        dangling = command("db", "dangling", user=user, tenant=tenant)
        typer.echo(
            f"Edges of this memory to keys that do not exist (yet): {report.dangling}. They are kept; "
            f"`{dangling}` lists them."
        )
