"""The commands `rem expire`, `rem forget`, `rem erase-user` and `rem sweep`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rem.cli.runtime import (
    ExpireAtOption,
    ExpireInOption,
    ExpireNeverOption,
    JsonOption,
    TenantOption,
    UserOption,
    audited,
    confirm,
    load_settings,
    print_to_stderr,
    run_with_rem,
)
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from datetime import datetime

    from rem.app import Rem
    from rem.forget.change_requests import ChangeReport, ChangeRequest
    from rem.forget.erase_user import EraseReport
    from rem.forget.forget import ForgetReport
    from rem.forget.forget_plan import AffectedRow, ForgetPlan
    from rem.forget.sweep import SweepReport
    from rem.models import Entity

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
MAX_EXAMPLES = 3
"""Statements and files that are shown."""
MAX_SHOWN_ROWS = 12
"""Rows that are shown for each kind. They cannot be brought back, so most of them should be seen before."""
INCOMPLETE_EXIT_CODE = 5
"""The exit code of a removal that left rows."""


def expire(
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="The keys of the rows, such as parking-spot.")],
    within: ExpireInOption = None,
    at: ExpireAtOption = None,
    never: ExpireNeverOption = False,
    table: Annotated[str | None, typer.Option(help="Only in this table.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Set when rows of the user expire. A sweep erases expired rows for good."""
    from rem.cli.delete import find_own_row
    from rem.cli.lookup import require_nonempty_keys
    from rem.cli.output import print_json
    from rem.forget.expiry import expire, parse_expiry

    require_nonempty_keys(keys)
    expires_at = parse_expiry(within, at, never, now=load_settings().now())

    async def work(rem: Rem) -> list[Entity]:
        store = rem.for_user(user, tenant=tenant).store
        rows = list({row.id: row for key in keys for row in [await find_own_row(store, key, table)]}.values())
        await expire(store, rows, expires_at)
        return rows

    rows = run_with_rem(work)
    names = [f"{row.entity_type.table}/{row.key or row.id}" for row in rows]
    if as_json:
        print_json(
            [{"row": name, "id": row.id, "expires_at": expires_at} for name, row in zip(names, rows, strict=True)]
        )
        return
    for name in names:
        echo(f"{name} {format_expiry(expires_at)}.")


def forget(
    label: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A name or a key, such as 'Sarah Chen', or words of a text, such as 'my code word'."
        ),
    ] = None,
    mentions: Annotated[
        bool, typer.Option("--mentions", help="Also erase the messages and texts that name it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: YesOption = False,
    confirm_code: Annotated[
        str | None,
        typer.Option(
            "--confirm", metavar="CODE", help="Confirm a change that an agent has proposed, and nothing else."
        ),
    ] = None,
    reject_code: Annotated[
        str | None, typer.Option("--reject", metavar="CODE", help="Reject a change that an agent has proposed.")
    ] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show everything about a person or thing, then remove it.

    If nothing has that name, show the texts that have these words.
    """
    from rem.cli.approvals import approve_change, reject_request
    from rem.errors import InvalidInputError

    if sum(given is not None for given in (label, confirm_code, reject_code)) != 1:
        raise InvalidInputError("Give one of these: what to forget, --confirm CODE or --reject CODE.")
    if label is not None:
        _forget_name(label, mentions, dry_run, yes, user, tenant, as_json)
        return
    if confirm_code is not None:
        approve_change(confirm_code, yes=yes, user=user, tenant=tenant, as_json=as_json)
    else:
        reject_request(reject_code or "", None, user, tenant, as_json)


def _forget_name(
    label: str, mentions: bool, dry_run: bool, yes: bool, user: str | None, tenant: str, as_json: bool
) -> None:
    """Remove everything about a name; if nothing has it, the texts that have its words."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> tuple[ForgetPlan, ForgetReport | None, bool]:
        plan = await rem.for_user(user, tenant=tenant).plan_forget(label, mentions=mentions)
        if plan.is_empty and not plan.mentions and await rem.for_user(user, tenant=tenant).changes.has_rows(label):
            return plan, None, True
        needs_confirmation = not (yes or dry_run or plan.is_empty)
        if needs_confirmation or not as_json:
            _show_plan(plan, err=as_json)
        if dry_run or plan.is_empty:
            return plan, None, False
        if needs_confirmation:
            confirm(f"Forget {label} for good?")
        return plan, await rem.for_user(plan.scope).forget(plan), False

    with audited("forget", tenant):
        plan, report, is_topic = run_with_rem(work)
    if is_topic:
        _forget_topic(label, mentions, dry_run, yes, user, tenant, as_json)
        return
    if as_json:
        print_json({"plan": plan.as_json(), "report": None if report is None else report.as_json()})
    elif report is not None:
        _show_report(report)
    if report is not None and not report.is_gone:
        raise typer.Exit(INCOMPLETE_EXIT_CODE)


def _forget_topic(
    topic: str, mentions: bool, dry_run: bool, yes: bool, user: str | None, tenant: str, as_json: bool
) -> None:
    """Remove the texts that have the words of a topic. Without a question and --mentions they stay, as for a name."""
    from rem.cli.remember import ask_and_confirm, print_change

    keeps_texts = yes and not mentions

    async def work(rem: Rem) -> tuple[ChangeRequest, ChangeReport | None]:
        changes = rem.for_user(user, tenant=tenant).changes
        request = await changes.request_forget(topic)
        is_dry = dry_run or keeps_texts
        return request, await ask_and_confirm(changes, request, dry_run=is_dry, yes=yes, as_json=as_json)

    print_change(*run_with_rem(work), as_json=as_json)
    if keeps_texts:
        print_to_stderr("Nothing was erased: add --mentions to erase these texts.")


def erase_user(
    user: Annotated[str, typer.Argument(metavar="USER", help="The user's e-mail address or id.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be erased.")] = False,
    yes: YesOption = False,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Erase all rows of a user for good.

    At the end, count the rows that are left in every table.
    """
    from rem.cli.output import format_count, print_json

    async def work(rem: Rem) -> EraseReport:
        preview = await rem.for_user(user, tenant=tenant).count_user_rows()
        if dry_run:
            return preview
        if not yes:
            _show_erasure(user, preview, err=True)
            confirm(f"Erase {user} in {tenant} for good, {format_count(preview.before, 'row')}?")
        return await rem.for_user(user, tenant=tenant).erase_user()

    with audited("erase-user", tenant):
        report = run_with_rem(work)
    if as_json:
        print_json({**asdict(report), "before": report.before, "after": report.after})
    else:
        _show_erasure(user, report)
    if report.is_applied and report.after:
        raise typer.Exit(INCOMPLETE_EXIT_CODE)


def sweep(as_json: JsonOption = False) -> None:
    """Erase expired rows of all users. A worker does this every hour."""
    from rem.cli.output import format_count, print_json

    async def work(rem: Rem) -> SweepReport:
        return await rem.sweep()

    report = run_with_rem(work)
    if as_json:
        print_json(asdict(report))
        return
    for table, count in sorted(report.erased.items()):
        echo(f"{table}: {count}")
    echo(f"Erased {format_count(report.total, 'expired row')}.")
    if report.overdue:
        echo(f"Ended {format_count(report.overdue, 'request')} for approval that nobody decided in time.")


def format_expiry(expires_at: datetime | None) -> str:
    """Return the rest of a sentence about a row, such as "expires at 2030-12-01 00:00:00 (UTC)"."""
    if expires_at is None:
        return "does not expire"
    return f"expires at {expires_at:%Y-%m-%d %H:%M:%S} ({expires_at.tzname()})"


def _show_plan(plan: ForgetPlan, *, err: bool) -> None:
    from rem.cli.output import format_count, print_wrapped

    print_wrapped(f"Known as: {', '.join(plan.names)}", indent="  ", err=err)
    _show_rows("To erase", plan.rows, err=err)
    _show_rows("To remove from other rows", plan.facts, err=err)
    if plan.statements:
        echo(f"To retract: {format_count(len(plan.statements), 'dreamt statement')}", err=err)
        for text in list(dict.fromkeys(statement.text for statement in plan.statements))[:MAX_EXAMPLES]:
            print_wrapped(f"  {text}", indent="    ", err=err)
    answers = [row for row in plan.mentions if row.is_own_answer]
    texts = [row for row in plan.mentions if not row.is_own_answer]
    if plan.with_mentions:
        _show_rows("Texts that name it, to erase", [row for row in texts if not row.is_kept], err=err)
        _show_rows("Rows that stay without the words about it", [row for row in texts if row.is_kept], err=err)
    else:
        _show_rows("Texts that name it, kept", texts, err=err)
    if answers:
        fate = "to erase" if plan.with_mentions else "kept"
        echo(f"REM's own answers that repeat them, {fate}: {len(answers)}", err=err)
    if plan.shared and plan.scope.user_id is not None:
        print_wrapped(f"Shared rows with this name stay: {', '.join(plan.shared)}.", err=True)
    if plan.is_empty:
        nothing = "Nothing else has this name." if plan.mentions else "There is nothing to forget."
        echo(nothing, err=err)
    else:
        changed, statements = len(plan.changed), format_count(len(plan.statements), "statement")
        rows = format_count(plan.erased_count, "row")
        print_wrapped(f"In all: {rows} to erase, {changed} to change, {statements} to retract.", err=err)
    if plan.mentions and not plan.with_mentions:
        print_to_stderr("Add --mentions to erase these texts as well.")
    _show_files(plan)


def _show_files(plan: ForgetPlan) -> None:
    """Name the files that stay on disk although their text is erased from the memory."""
    from rem.cli.output import format_count, print_wrapped

    paths = [path for path in map(_to_path, plan.files) if path is not None and path.exists()]
    if not paths:
        return
    more = f" and {len(paths) - MAX_EXAMPLES} more" if len(paths) > MAX_EXAMPLES else ""
    names = ", ".join(str(path) for path in paths[:MAX_EXAMPLES])
    print_wrapped(
        f"{format_count(len(paths), 'file')} on disk still {'has' if len(paths) == 1 else 'have'} this text, and REM "
        f"does not change files: {names}{more}. `rem ingest` leaves out what you have forgotten.",
        err=True,
    )


def _to_path(uri: str) -> Path | None:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _show_rows(title: str, rows: Sequence[AffectedRow], *, err: bool) -> None:
    from rem.cli.output import print_wrapped
    from rem.cli.terminal_text import escape_control_characters

    if not rows:
        return
    echo(f"{title}: {_format_counts(Counter(row.ref.table for row in rows))}", err=err)
    # A note or a file may have much more text than a message.
    for row in sorted(rows, key=lambda row: row.ref.table == "messages")[:MAX_SHOWN_ROWS]:
        dependents = f" with {_format_dependents(row)}" if row.dependent_rows else ""
        excerpt = f": {row.excerpt}" if row.excerpt else ""
        line = escape_control_characters(f"  {row.ref.table}/{row.key}{dependents}{excerpt}")
        print_wrapped(line, indent="    ", err=err)
    if len(rows) > MAX_SHOWN_ROWS:
        echo(f"  and {len(rows) - MAX_SHOWN_ROWS} more; --json lists them all", err=err)


def _format_dependents(row: AffectedRow) -> str:
    from rem.cli.output import format_count

    return format_count(row.dependent_rows, "message" if row.ref.table == "sessions" else "part")


def _format_counts(counts: Mapping[str, int]) -> str:
    from rem.cli.output import format_table_count

    return ", ".join(format_table_count(count, table) for table, count in sorted(counts.items()))


def _show_report(report: ForgetReport) -> None:
    from rem.cli.output import format_count, print_wrapped

    print_wrapped(
        f"Erased {format_count(report.erased.total(), 'row')}, changed {report.changed}, "
        f"retracted {format_count(report.statements, 'statement')}."
    )
    if report.left:
        print_wrapped(f"Still stored, written in the meantime: {', '.join(report.left)}. Run it again.", err=True)
    else:
        kept = f" except {format_count(report.kept_mentions, 'text')} that name it" if report.kept_mentions else ""
        echo(f"Searched again: nothing is left{kept}.")


def _show_erasure(user: str, report: EraseReport, *, err: bool = False) -> None:
    from rem.cli.output import format_count, print_table

    print_table(
        ("table", "identified by", "before", "after"),
        [(row.table, row.how, row.before, row.after if report.is_applied else "") for row in report.tables],
        err=err,
    )
    if report.mentions:
        print_to_stderr(f"Rows of other users that mention {user} stay: {_format_counts(report.mentions)}.")
    if not report.is_applied:
        echo(f"Would erase {format_count(report.before, 'row')} of {user}.", err=err)
    elif report.after:
        print_to_stderr(
            f"{format_count(report.after, 'row')} left, written in the meantime. Stop the processes that write for "
            f"{user}, and run it again."
        )
    else:
        echo(f"Erased {format_count(report.before, 'row')} of {user}; nothing is left.")
