"""`rem privacy`: find what the privacy policy does not allow in stored texts, and mask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rem.cli.runtime import JsonOption, TenantOption, YesOption, audited, confirm, print_to_stderr, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.forgetting.masking import MaskReport

OwnerOption = Annotated[
    str | None,
    typer.Option("--user", "-u", help="Only the rows of this user: an e-mail address or an id. Default: all rows."),
]
BUSY_EXIT_CODE = 5
"""The exit code if rows are left that others were writing."""
MAX_SHOWN_NAMES = 20

app = typer.Typer(
    help="Apply the privacy policy to rows that are stored already.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("scan")
def scan(user: OwnerOption = None, tenant: TenantOption = "default", as_json: JsonOption = False) -> None:
    """Count what the policy would not let in today.

    These are secrets and personal data in stored rows. Nothing is changed.
    """
    from rem.cli.output import print_json, progress_bar

    async def work(rem: Rem) -> MaskReport:
        with progress_bar("rows") as on_progress:
            return await rem.stored_texts(user, tenant=tenant).scan(on_progress)

    report = run_with_rem(work)
    if as_json:
        print_json(_to_json(report, is_applied=False))
    else:
        _print_report(report)


@app.command("mask")
def mask(
    yes: YesOption = False, user: OwnerOption = None, tenant: TenantOption = "default", as_json: JsonOption = False
) -> None:
    """Show what would be masked, then mask it.

    It is masked in the rows and in everything derived from them.

    The original text is gone for good. If the command is interrupted, start it again.
    """
    from rem.cli.output import format_count, print_json, progress_bar

    async def work(rem: Rem) -> tuple[MaskReport, bool]:
        texts = rem.stored_texts(user, tenant=tenant)
        with progress_bar("read") as on_progress:
            found = await texts.scan(on_progress)
        if not found.total:
            return found, False
        if not yes:
            _print_report(found, err=True)
            confirm(f"Mask {format_count(found.total, 'row')} for good?")
        with progress_bar("masked") as on_progress:
            done = await texts.mask(on_progress)
        await rem.audit_log.record(entry)
        return done, True

    with audited("privacy mask", tenant, "admin") as entry:
        report, is_applied = run_with_rem(work)
    if as_json:
        print_json(_to_json(report, is_applied=is_applied))
    elif is_applied:
        echo(f"Masked {format_count(report.total, 'row')}: {_format_counts(report.findings)}.")
        _print_names(report)
    else:
        _print_report(report)
    if report.busy:
        print_to_stderr(f"{format_count(report.busy, 'row')} changed all the time: start the command again.")
        raise typer.Exit(BUSY_EXIT_CODE)


def _print_report(report: MaskReport, *, err: bool = False) -> None:
    from rem.cli.output import format_count

    if report.total:
        rows = _format_counts(report.rows)
        echo(f"Found in {format_count(report.total, 'row')} ({rows}): {_format_counts(report.findings)}.", err=err)
    else:
        echo(f"Nothing to mask in {format_count(report.read, 'row')}.", err=err)
    _print_names(report, err=err)


def _print_names(report: MaskReport, *, err: bool = False) -> None:
    if not report.names:
        return
    more = len(report.names) - MAX_SHOWN_NAMES
    shown = [*report.names[:MAX_SHOWN_NAMES], *([f"and {more} more"] if more > 0 else [])]
    echo(f"Secrets in names, which cannot be masked; rename or delete these rows: {', '.join(shown)}", err=err)


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _to_json(report: MaskReport, *, is_applied: bool) -> dict[str, Any]:
    return {
        "applied": is_applied,
        "rows": dict(sorted(report.rows.items())),
        "findings": dict(sorted(report.findings.items())),
        "names": report.names,
        "read": report.read,
        "busy": report.busy,
    }
