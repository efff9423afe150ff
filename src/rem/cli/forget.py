"""`rem expire`, `rem forget`, `rem erase-user` and `rem sweep`: what is not to be remembered any longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rem.cli.runtime import (
    ExpireAtOption,
    ExpireInOption,
    ExpireNeverOption,
    JsonOption,
    TenantOption,
    UserOption,
    confirm,
    print_to_stderr,
    run_with_rem,
)

if TYPE_CHECKING:
    from datetime import datetime

    from rem.app import Rem
    from rem.forgetting.erase_user import EraseReport
    from rem.forgetting.forget import ForgetReport
    from rem.forgetting.forget_plan import AffectedRow, ForgetPlan
    from rem.forgetting.sweep import SweepReport
    from rem.models import Entity

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_EXAMPLES = 3
_LEFT_OVER = 5
"""The exit code of an erasure that left something."""


def expire(
    keys: Annotated[list[str], typer.Argument(help="The keys of what lapses, such as parking-spot.")],
    within: ExpireInOption = None,
    at: ExpireAtOption = None,
    never: ExpireNeverOption = False,
    table: Annotated[str | None, typer.Option(help="Only in this table.")] = None,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Let the user's own rows lapse: nothing finds them from then on, and a sweep erases them for good."""
    from rem.cli.delete import find_own_row
    from rem.cli.lookup import require_nonempty_keys
    from rem.cli.output import print_json
    from rem.forgetting.expiry import expire, parse_expiry

    require_nonempty_keys(keys)
    moment = parse_expiry(within, at, never)

    async def work(rem: Rem) -> list[Entity]:
        store = rem.store(user, tenant=tenant)
        rows = list({row.id: row for key in keys for row in [await find_own_row(store, key, table)]}.values())
        await expire(store, rows, moment)
        return rows

    rows = run_with_rem(work)
    names = [f"{row.entity_type.table}/{row.key or row.id}" for row in rows]
    if as_json:
        print_json([{"row": name, "id": row.id, "expires_at": moment} for name, row in zip(names, rows, strict=True)])
        return
    for name in names:
        typer.echo(f"{name} {moment_text(moment)}.")


def forget(
    label: Annotated[str, typer.Argument(metavar="NAME", help="A name or a key, such as 'Sarah Chen'.")],
    mentions: Annotated[
        bool, typer.Option("--mentions", help="Erase the messages and texts that name it, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: Yes = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Forget everything about a person or thing in the user's memory. What will go is shown first."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> tuple[ForgetPlan, ForgetReport | None]:
        plan = await rem.plan_forget(label, user=user, tenant=tenant, mentions=mentions)
        is_asked = not (yes or dry_run or plan.is_empty)
        if is_asked or not as_json:
            _show_plan(plan, err=as_json)
        if dry_run or plan.is_empty:
            return plan, None
        if is_asked:
            confirm(f"Forget {label} for good?")
        return plan, await rem.forget(plan)

    plan, report = run_with_rem(work)
    if as_json:
        print_json({"plan": _plan_json(plan), "report": None if report is None else _report_json(report)})
    elif report is not None:
        _show_report(plan, report)
    if report is not None and not report.is_gone:
        raise typer.Exit(_LEFT_OVER)


def erase_user(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who: an e-mail address, or the owner's id.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be erased.")] = False,
    yes: Yes = False,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Erase everything of a user for good, and prove for every table that nothing is left."""
    from rem.cli.output import format_count, print_json

    async def work(rem: Rem) -> EraseReport:
        found = await rem.count_user(user, tenant=tenant)
        if dry_run:
            return found
        if not yes:
            _show_erasure(user, found, err=True)
            rows = format_count(found.before, "row")
            confirm(f"Erase {user} in {tenant} for good, {rows} of memory?")
        return await rem.erase_user(user, tenant=tenant)

    report = run_with_rem(work)
    if as_json:
        print_json({**asdict(report), "before": report.before, "after": report.after})
    else:
        _show_erasure(user, report)
    if report.is_applied and report.after:
        raise typer.Exit(_LEFT_OVER)


def sweep(as_json: JsonOption = False) -> None:
    """Erase what has lapsed, of everyone. A worker does it every hour."""
    from rem.cli.output import format_count, print_json

    async def work(rem: Rem) -> SweepReport:
        return await rem.sweep()

    report = run_with_rem(work)
    if as_json:
        print_json(asdict(report))
        return
    for table, number in sorted(report.erased.items()):
        typer.echo(f"{table}: {number}")
    typer.echo(f"Erased {format_count(report.total, 'row')} that had lapsed.")


def moment_text(moment: datetime | None) -> str:
    """What becomes of a row, for people."""
    return "does not lapse" if moment is None else f"lapses at {moment:%Y-%m-%d %H:%M:%S} ({moment.tzname()})"


def _show_plan(plan: ForgetPlan, *, err: bool) -> None:
    from rem.cli.output import format_count

    typer.echo(f"Known as: {', '.join(plan.names)}", err=err)
    _show_findings("To erase", plan.rows, err=err)
    _show_findings("To take out of other rows", plan.facts, err=err)
    if plan.statements:
        typer.echo(f"To take back: {format_count(len(plan.statements), 'dreamt statement')}", err=err)
        for said in plan.statements[:_EXAMPLES]:
            typer.echo(f"  {said.text}", err=err)
    kept = "Texts that name it, to erase" if plan.with_mentions else "Texts that name it, kept"
    _show_findings(kept, plan.mentions, err=err)
    if plan.shared and plan.scope.user_id is not None:
        print_to_stderr(f"Shared, and not this user's to forget: {', '.join(plan.shared)}.")
    if plan.is_empty:
        typer.echo("There is nothing to forget.", err=err)
    if plan.mentions and not plan.with_mentions:
        print_to_stderr("--mentions erases those texts, too.")


def _show_findings(title: str, findings: Sequence[AffectedRow], *, err: bool) -> None:
    if not findings:
        return
    counts = Counter[str]()
    for finding in findings:
        counts[finding.ref.table] += 1
    typer.echo(f"{title}: {', '.join(f'{number} {table}' for table, number in sorted(counts.items()))}", err=err)
    for finding in findings[:_EXAMPLES]:
        along = f" and {finding.along} rows of it" if finding.along else ""
        excerpt = f": {finding.excerpt}" if finding.excerpt else ""
        typer.echo(f"  {finding.ref.table}/{finding.key}{along}{excerpt}", err=err)
    if len(findings) > _EXAMPLES:
        typer.echo(f"  and {len(findings) - _EXAMPLES} more; --json lists them all", err=err)


def _show_report(plan: ForgetPlan, report: ForgetReport) -> None:
    from rem.cli.output import format_count

    typer.echo(
        f"Erased {format_count(report.erased.total(), 'row')}, changed {report.changed}, "
        f"took back {format_count(report.statements, 'statement')}."
    )
    if report.left:
        print_to_stderr(f"Still found, written meanwhile: {', '.join(report.left)}. Run it again.")
    else:
        typer.echo(f"Searched again: nothing of it is left{_kept(report)}.")


def _kept(report: ForgetReport) -> str:
    return f", besides {report.kept_mentions} texts that name it" if report.kept_mentions else ""


def _show_erasure(user: str, report: EraseReport, *, err: bool = False) -> None:
    from rem.cli.output import format_count, print_table

    print_table(
        ("table", "known by", "before", "after"),
        [(row.table, row.how, row.before, row.after if report.is_applied else "") for row in report.tables],
        err=err,
    )
    if report.mentions:
        numbers = ", ".join(f"{number} {table}" for table, number in sorted(report.mentions.items()))
        print_to_stderr(f"Rows of others that mention {user} stay: {numbers}.")
    if not report.is_applied:
        typer.echo(f"Would erase {format_count(report.before, 'row')} of {user}.", err=err)
    elif report.after:
        print_to_stderr(
            f"Left, because written meanwhile: {format_count(report.after, 'row')}. Stop what writes for {user}, "
            "and run it again."
        )
    else:
        typer.echo(f"Erased {format_count(report.before, 'row')} of {user}; nothing is left.")


def _plan_json(plan: ForgetPlan) -> dict[str, Any]:
    def rows(findings: Sequence[AffectedRow]) -> list[dict[str, Any]]:
        return [
            {
                "table": finding.ref.table,
                "id": finding.ref.id,
                "key": finding.key,
                "fields": finding.fields,
                "excerpt": finding.excerpt,
                "along": finding.along,
            }
            for finding in findings
        ]

    return {
        "names": plan.names,
        "with_mentions": plan.with_mentions,
        "rows": rows(plan.rows),
        "facts": rows(plan.facts),
        "statements": [{"id": said.id, "says": said.text, "state": said.state} for said in plan.statements],
        "mentions": rows(plan.mentions),
        "summaries": plan.summaries,
        "shared": plan.shared,
    }


def _report_json(report: ForgetReport) -> dict[str, Any]:
    return {
        "erased": dict(report.erased),
        "changed": report.changed,
        "statements": report.statements,
        "refused": report.refused,
        "kept_mentions": report.kept_mentions,
        "left": report.left,
        "is_gone": report.is_gone,
    }
