"""`rem dreaming`: run dreams, list and undo their runs, list their statements, audit them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from rem.cli.output import print_wrapped
from rem.cli.runtime import (
    JsonOption,
    TenantOption,
    UserOption,
    get_default_user,
    load_settings,
    print_to_stderr,
    run_with_rem,
)
from rem.cli.terminal_text import echo
from rem.dreams.registry import DREAMS

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.context import Scope
    from rem.dreams.audit import AuditReport
    from rem.dreams.dreamer import Dreamer, DreamReport
    from rem.dreams.history import RunRecord, StatementPage, StatementRecord

app = typer.Typer(
    help="Derive moments, entities, relations and profiles.",
    no_args_is_help=True,
)

AllOption = Annotated[bool, typer.Option("--all", help="For every user of the tenant, one after the other.")]
RescanOption = Annotated[
    bool,
    typer.Option(
        "--rescan",
        help="Read everything again, not only new and changed rows; also derive undone statements again. Rows that you "
        "deleted or corrected stay as they are.",
    ),
]

MAX_SOURCES_SHOWN = 5
MAX_ISSUES_SHOWN = 5


def _add_command(name: str, description: str, dreams: list[str] | None) -> None:
    def command(
        user: UserOption = None,
        tenant: TenantOption = "default",
        all_users: AllOption = False,
        rescan: RescanOption = False,
        as_json: JsonOption = False,
    ) -> None:
        _run_dreams(dreams, user, tenant, all_users, rescan, as_json)

    app.command(name, help=description)(command)


for _entry in DREAMS.values():
    _add_command(_entry.name, _entry.description, [_entry.name])
_add_command("full", "Run all dreams, in the order of their dependencies.", None)


def _run_dreams(
    names: list[str] | None, user: str | None, tenant: str, all_users: bool, rescan: bool, as_json: bool
) -> None:
    from rem.cli.output import print_json
    from rem.errors import InvalidInputError

    if all_users and user is not None and user != get_default_user():
        raise InvalidInputError("--all means all users: leave --user out, or --all.")
    user = None if all_users else user

    async def work(rem: Rem) -> list[tuple[Scope, DreamReport]]:
        dreamer = rem.dreamer()
        scopes = await _list_scopes(dreamer, user, tenant, all_users)
        return [(scope, await _dream_with_progress(dreamer, scope, names, rescan, user)) for scope in scopes]

    reports = run_with_rem(work)
    if as_json:
        print_json([_to_json(scope, report) for scope, report in reports])
        return
    for scope, report in reports:
        _print_report(_describe_owner(scope, user), report)


async def _list_scopes(dreamer: Dreamer, user: str | None, tenant: str, all_users: bool) -> list[Scope]:
    from rem.context import Scope

    if all_users:
        return [Scope(*owner) for owner in await dreamer.list_owners(tenant)]
    return [Scope.for_user(user, tenant)]


async def _dream_with_progress(
    dreamer: Dreamer, scope: Scope, names: list[str] | None, rescan: bool, user: str | None
) -> DreamReport:
    from rem.cli.output import progress_bar

    with progress_bar("Dreaming") as bar:

        def on_progress(_dream: str, done: int, of: int) -> None:
            bar(done, of)

        return await dreamer.dream(scope, names, rescan=rescan, email=user, on_progress=on_progress)


def _to_json(scope: Scope, report: DreamReport) -> dict[str, Any]:
    return {
        "tenant_id": scope.tenant_id,
        "user_id": scope.user_id,
        "run_id": report.run_id,
        "model": report.model,
        "changes": report.changes,
        "learnt": report.learnt,
        "dropped": report.dropped,
        "notes": report.notes,
    }


def _describe_owner(scope: Scope, user: str | None) -> str:
    return user or scope.user_id or "shared by the tenant"


def _print_report(owner: str, report: DreamReport) -> None:
    for note in report.notes:
        print_to_stderr(note)
    if report.run_id is None:
        echo(f"{owner}: nothing new.")
    else:
        echo(f"{owner}: run {report.run_id}{f', by {report.model}' if report.model else ''}")
    _print_lines("Learnt", report.learnt)
    _print_lines("Dropped", report.dropped)
    if report.run_id is not None:
        counts = [f"{dream} {changes.said} new, {changes.ended} ended" for dream, changes in report.changes.items()]
        print_wrapped(f"Statements: {'; '.join(counts)}.", indent="  ")


def _print_lines(title: str, lines: list[str]) -> None:
    if lines:
        echo(f"{title}:")
        for line in lines:
            print_wrapped(f"  - {line}", indent="    ")


@app.command()
def runs(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, latest first.")] = 20,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the dream runs, latest first."""
    from rem.cli.output import print_json

    async def work(rem: Rem) -> list[RunRecord]:
        from rem.dreams.history import list_runs

        return await list_runs(rem.for_user(user, tenant=tenant).store, limit)

    records = run_with_rem(work)
    if as_json:
        print_json(records)
        return
    if not records:
        print_to_stderr("There are no dream runs yet: `rem dreaming full` starts one.")
    for run in records:
        line = f"{run.id}  {run.started_at:%Y-%m-%d %H:%M}  {run.state:<7}  {', '.join(run.dreams)}"
        print_wrapped(line, indent="    ")


@app.command()
def undo(
    run: Annotated[UUID, typer.Argument(metavar="RUN", help="Id of a run, from `rem dreaming runs`.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Undo a run: delete its statements and restore replaced ones."""
    from rem.cli.output import format_count, print_json

    async def work(rem: Rem) -> int:
        return await rem.dreamer().undo(rem.for_user(user, tenant=tenant).store.scope, run)

    deleted = run_with_rem(work)
    if as_json:
        print_json({"run_id": run, "statements": deleted})
    else:
        echo(f"Deleted {format_count(deleted, 'statement')}. --rescan would derive them again.")


@app.command()
def statements(
    key: Annotated[str | None, typer.Argument(help="Key of the row; all rows if not given.")] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Statements that were valid at that time: 2026-05-15, 2026-05-15T18:00 (in the zone REM_TIME_ZONE).",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 100,
    links: Annotated[
        bool, typer.Option("--links", help="Also the links between related texts, which are many.")
    ] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List statements with their sources, current and newest first."""
    from rem.cli.output import print_json
    from rem.forget.expiry import parse_time

    valid_at = None if at is None else parse_time(at, load_settings().time_zone)

    async def work(rem: Rem) -> StatementPage:
        from rem.dreams.history import list_statement_page

        return await list_statement_page(
            rem.for_user(user, tenant=tenant).store, key, at=valid_at, limit=limit, with_links=links
        )

    page = run_with_rem(work)
    if as_json:
        print_json(page.statements)
    elif not page.statements:
        print_to_stderr("There are no statements about it.")
    else:
        _print_statements(page.statements)
    _print_rest(page, limit)


def _print_rest(page: StatementPage, limit: int) -> None:
    """Say what was left out."""
    from rem.cli.output import format_count

    more = page.total - len(page.statements)
    if more > 0:
        print_to_stderr(f"{format_count(more, 'more statement')}: use --limit {min(10_000, limit + more)}.")
    if page.hidden_links:
        print_to_stderr(f"{format_count(page.hidden_links, 'link')} between related texts: use --links.")


def _print_statements(records: list[StatementRecord]) -> None:
    """Print each statement with its sources. Print statements with the same text once, with all their sources."""
    groups: dict[tuple[str, str, datetime | None], list[StatementRecord]] = {}
    for statement in records:
        state = "evidence" if statement.is_evidence else statement.state
        line = f"[{state}] {statement.entity_type}/{statement.key}{_format_value(statement)}"
        groups.setdefault((line, statement.dream, statement.valid_to or statement.ended_at), []).append(statement)
    for (line, dream, until), group in groups.items():
        since = min(statement.valid_from or statement.stated_at for statement in group)
        period = f"{since:%Y-%m-%d}{f' to {until:%Y-%m-%d}' if until else ''}"
        sources = list(dict.fromkeys(source for statement in group for source in statement.sources))
        hidden = len(sources) - MAX_SOURCES_SHOWN
        shown = ", ".join(sources[:MAX_SOURCES_SHOWN]) + (f" and {hidden} more (--json)" if hidden > 0 else "")
        print_wrapped(line, indent="  ")
        print_wrapped(f"    {dream}, {period}, from {shown}", indent="    ")


def _format_value(statement: StatementRecord) -> str:
    if statement.kind == "edge":
        return f" {statement.name}"
    value = statement.value
    if statement.kind == "field":
        return f" {statement.name}: {value}"
    text = next((text for name in ("summary", "content", "name") if (text := value.get(name))), "")
    return f": {' '.join(text.split())}" if text else ""


@app.command()
def audit(
    fix: Annotated[bool, typer.Option("--fix", help="Remove what is wrong.")] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    all_users: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check the statements; exit with code 1 if problems remain.

    The audit looks for duplicates, statements without source, edges to missing rows, and stale profiles.
    """
    from rem.cli.output import print_json

    async def work(rem: Rem) -> list[tuple[Scope, AuditReport]]:
        dreamer = rem.dreamer()
        scopes = await _list_scopes(dreamer, user, tenant, all_users)
        return [(scope, await dreamer.audit(scope, fix=fix)) for scope in scopes]

    reports = run_with_rem(work)
    if as_json:
        print_json(
            [
                {"user_id": scope.user_id, "counts": report.counts, "fixed": report.fixed, **report.issues}
                for scope, report in reports
            ]
        )
    else:
        for scope, report in reports:
            _print_audit(_describe_owner(scope, user), report)
    if any(not report.is_clean and not report.fixed for _, report in reports):
        raise typer.Exit(1)


def _print_audit(owner: str, report: AuditReport) -> None:
    echo(f"{owner}:")
    for check, issues in report.issues.items():
        echo(f"  {check.replace('_', ' ')}: {len(issues)}")
        for issue in issues[:MAX_ISSUES_SHOWN]:
            echo(f"    {issue.key}{f' ~ {issue.other}' if issue.other else ''}")
    if report.fixed:
        echo(f"  fixed: {report.fixed}")
