"""`rem audit`: read the log of who did what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from rem.cli.runtime import JsonOption, TenantOption, print_to_stderr, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem

ActionName: TypeAlias = Literal["read", "write", "login", "delete", "approve", "admin"]

MAX_SHOWN_ROWS = 3
"""A search reads many rows, whose ids would bury everything else."""

app = typer.Typer(help="Read the log of who did what.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Keep `log` a command of its own."""


@app.command("log")
def show_log(
    actor: Annotated[
        str | None, typer.Option(help="Only what this user did: an e-mail address or an id; for commands, the account.")
    ] = None,
    about: Annotated[str | None, typer.Option(metavar="USER", help="Only what was done to this user.")] = None,
    action: Annotated[ActionName | None, typer.Option(help="Only this kind of action.")] = None,
    table: Annotated[str | None, typer.Option(help="Only what concerns this table.")] = None,
    row: Annotated[str | None, typer.Option(metavar="ID", help="Only what concerns the row with this id.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only entries from this time on (UTC).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only entries before this time (UTC).")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The maximum number of entries.")] = 50,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show the entries of a tenant, newest first. They name rows by table and id, and have no content."""
    from rem.audit.log import AuditFilter
    from rem.cli.output import print_json, print_table
    from rem.context import parse_uuid, resolve_user_id
    from rem.errors import InvalidInputError

    row_id = None if row is None else parse_uuid(row)
    if row is not None and row_id is None:
        raise InvalidInputError(f"--row {row} is not the id of a row: `rem lookup KEY --json` prints ids.")
    wanted = AuditFilter(
        None if actor is None else resolve_user_id(actor),
        action,
        None if about is None else resolve_user_id(about),
        table,
        row_id,
        _parse_time(since),
        _parse_time(until),
    )

    async def work(rem: Rem) -> tuple[list[dict[str, Any]], bool]:
        return await rem.audit_log.find(tenant, wanted, limit=limit), rem.audit_log.is_enabled

    entries, is_enabled = run_with_rem(work)
    if not is_enabled:
        print_to_stderr("The audit log is off in the settings of this command: set AUDIT__ENABLED=true.")
    if as_json:
        print_json(entries)
    elif entries:
        print_table(["time", "who", "what", "operation", "status", "rows"], [_to_line(entry) for entry in entries])
    else:
        echo("There are no such entries.")


def _parse_time(text: str | None) -> Any:
    from rem.forget.expiry import parse_time

    return None if text is None else parse_time(text)


def _to_line(entry: dict[str, Any]) -> tuple[str, ...]:
    who = entry["actor"] or "(anonymous)"
    targets = [_format_target(target) for target in entry["targets"]]
    if len(targets) > MAX_SHOWN_ROWS:
        targets[MAX_SHOWN_ROWS:] = [f"and {len(targets) - MAX_SHOWN_ROWS} more (--json has them)"]
    about = [f"user {entry['subject']}"] if entry["subject"] else []
    return (
        f"{entry['at']:%Y-%m-%d %H:%M:%S}",
        f"{who} ({entry['via']})",
        entry["action"],
        entry["operation"],
        "" if entry["status"] is None else str(entry["status"]),
        ", ".join([*about, *targets]),
    )


def _format_target(target: dict[str, Any]) -> str:
    if "more" in target:
        return f"and {target['more']} more"
    name = target.get("id") or target.get("hash")
    return f"{target['table']}/{name}" if name else str(target["table"])
