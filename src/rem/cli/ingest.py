"""`rem ingest`: store files, folders and URLs, keep folders in step, list runs and undo them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem
from rem.cli.terminal_text import echo

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.context import Scope
    from rem.ingest.models import FileOutcome, FileStatus, IngestReport
    from rem.ingest.runs import IngestRun, UndoReport
    from rem.ingest.sources.ignore_rules import IgnoreReason

MAX_PRINTED_FAILURES = 100
PROGRESS_LINE_SECONDS = 5.0
"""Interval at which progress is printed if there is no terminal."""
_STATUS_ORDER: tuple[FileStatus, ...] = ("added", "changed", "unchanged", "removed", "deleted", "skipped", "failed")
_REASONS: dict[IgnoreReason, tuple[str, str]] = {
    "hidden": ("hidden", "hidden"),
    "gitignore": ("by .gitignore", "by .gitignore"),
    "environment": ("virtual environment", "virtual environments"),
    "cache": ("cache folder", "cache folders"),
    "excluded": ("by --exclude", "by --exclude"),
    "link": ("symbolic link", "symbolic links"),
    "special": ("special file", "special files"),
}


class _IngestGroup(TyperGroup):
    """Runs the default command if the first word is no command, so that `rem ingest notes` works."""

    default_command = "add"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_IngestGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Store files, folders and URLs. `rem ingest PLACE...` is short for `rem ingest add PLACE...`.

    `rem ingest add --help` lists its options. A file with the name of a command is reached as ./undo.""",
)


@app.command()
def add(
    places: Annotated[list[str], typer.Argument(metavar="PLACE", help="Files, folders, https:// or s3:// URLs.")],
    category: Annotated[str | None, typer.Option(help="Category of the texts, such as manual.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag; can be given several times.")] = None,
    form: Annotated[
        Literal["resource", "ontology"] | None,
        typer.Option(
            "--as",
            help="Store chunks of text (resource), or entries of the knowledge base (ontology: wikis, API "
            "descriptions). Default: a known file keeps its form, a new one becomes chunks.",
        ),
    ] = None,
    recursive: Annotated[bool, typer.Option(help="Include the files in subfolders.")] = True,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Leave out files and folders, as in .gitignore; can be repeated."),
    ] = None,
    no_ignore: Annotated[
        bool,
        typer.Option("--no-ignore", help="Include what .gitignore ignores, virtual environments and cache folders."),
    ] = False,
    with_forgotten: Annotated[
        bool, typer.Option("--with-forgotten", help="Also store again what you have forgotten with `rem forget`.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be stored, and store nothing.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until Ctrl-C: follow new, changed and removed files.")
    ] = False,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Read files, store them in chunks and index them.

    Unchanged files are not written; a changed file replaces its older version. A file that cannot be read does not
    stop the others: it is listed at the end, and the exit code is 1. You can interrupt the command and run it again.
    """
    from rem.context import Scope
    from rem.errors import InvalidInputError

    if watch and (dry_run or as_json):
        raise InvalidInputError("--watch cannot be combined with --dry-run or --json.")
    options: dict[str, Any] = {
        "category": category,
        "tags": tag or None,
        "form": form,
        "recursive": recursive,
        "exclude": exclude or [],
        "ignore": not no_ignore,
        "with_forgotten": with_forgotten,
    }
    command = _Command(places, Scope.for_user(user, tenant), user, tenant, options)
    if watch:
        command.watch()
    else:
        command.ingest(dry_run=dry_run, as_json=as_json)


class _Command:
    """One call of `rem ingest add`."""

    def __init__(self, places: list[str], scope: Scope, user: str | None, tenant: str, options: dict[str, Any]) -> None:
        self._places = places
        self._scope = scope
        self._user = user
        self._tenant = tenant
        self._options = options
        self._outcomes: list[FileOutcome] = []
        """The files stored so far, for the case that the command is interrupted."""

    def ingest(self, *, dry_run: bool, as_json: bool) -> None:
        """Ingest the places once. Raise typer.Exit(1) if a file failed."""
        from rem.cli.output import print_json

        try:
            report = run_with_rem(lambda rem: self._ingest_with_progress(rem, dry_run))
        except KeyboardInterrupt:
            self._print_interrupted()
            raise
        if as_json:
            print_json(
                {
                    "run": report.run,
                    "counts": report.counts,
                    "chunks": report.chunks,
                    "ignored": report.ignored,
                    "notes": report.notes,
                    "files": report.files,
                }
            )
        elif dry_run:
            self._print_preview(report)
        else:
            self._print_report(report)
        if report.failures:
            raise typer.Exit(1)

    def watch(self) -> None:
        """Ingest the places, and follow their changes until Ctrl-C."""
        try:
            run_with_rem(self._watch)
        except KeyboardInterrupt:
            self._print_interrupted()

    async def _ingest_with_progress(self, rem: Rem, dry_run: bool) -> IngestReport:
        from rem.cli.output import progress_bars

        done: Counter[str] = Counter()
        with progress_bars("Reading", "Embedding", line_seconds=PROGRESS_LINE_SECONDS) as (show_files, show_passages):

            def on_file(outcome: FileOutcome, total: int) -> None:
                self._outcomes.append(outcome)
                show_files(len(self._outcomes), total)

            def on_index(step: str, count: int) -> None:
                done[step] += count
                show_passages(done["embedded"], None)

            report = await rem.for_user(self._scope).ingest(
                *self._places,
                save_agent=_agent_saver(rem, self._scope),
                dry_run=dry_run,
                on_file=on_file,
                on_index=on_index,
                **self._options,
            )
        _print_index_error(report)
        return report

    async def _watch(self, rem: Rem) -> None:
        def on_file(outcome: FileOutcome, _total: int) -> None:
            self._outcomes.append(outcome)

        reports = rem.for_user(self._scope).watch(
            *self._places, save_agent=_agent_saver(rem, self._scope), on_file=on_file, **self._options
        )
        is_first = True
        async for report in reports:
            _print_index_error(report)
            if is_first:
                self._print_report(report)
                echo("Watching. Stop with Ctrl-C.")
            else:
                _print_changes(report)
            is_first = False

    def _print_report(self, report: IngestReport) -> None:
        from rem.cli.output import format_command, format_count

        echo(
            f"{format_count(len(report.files), 'file')}: {_format_counts(report) or 'nothing to ingest'}; "
            f"{format_count(report.chunks, 'chunk')} stored."
        )
        _print_ignored(report)
        for file in report.files:
            if file.status == "deleted" and file.key:
                restore = format_command("restore", "files", file.key, user=self._user, tenant=self._tenant)
                echo(f"{file.name} was deleted earlier and stays deleted: `{restore}` restores it.")
            elif file.status == "deleted":
                echo(f"{file.name}: {file.error}")
            elif file.status == "skipped":
                echo(f"Skipped: {file.error}")
        # The older text of a changed file is not kept, so there is nothing to go back to.
        self._print_undo(report.run if report.counts["added"] else None)
        _print_failures(report)

    def _print_preview(self, report: IngestReport) -> None:
        from rem.cli.output import format_count

        for file in report.files:
            if file.status not in ("failed", "unchanged"):
                chunks = f" ({format_count(file.chunks, 'chunk')})" if file.chunks else ""
                echo(f"{file.status:<9}  {file.name}{chunks}")
        echo(
            f"{format_count(len(report.files), 'file')}: {_format_counts(report) or 'nothing to ingest'}. "
            "Nothing was stored (--dry-run)."
        )
        _print_ignored(report)
        _print_failures(report)

    def _print_interrupted(self) -> None:
        from rem.ingest.models import IngestReport

        report = IngestReport(self._outcomes)
        stored = ", ".join(f"{report.counts[status]} {status}" for status in ("added", "changed"))
        print_to_stderr(f"Stopped. Stored so far: {stored if report.run else 'nothing new'}.")
        self._print_undo(report.run if report.counts["added"] else None, err=True)

    def _print_undo(self, run: str | None, *, err: bool = False) -> None:
        from rem.cli.output import format_command

        if run is not None:
            command = format_command("ingest", "undo", run, user=self._user, tenant=self._tenant)
            echo(f"Run {run}: `{command}` removes what it added.", err=err)


@app.command()
def runs(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, latest first.")] = 20,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """List the runs that stored files, latest first."""
    from rem.cli.output import print_json, print_wrapped

    async def work(rem: Rem) -> list[IngestRun]:
        return await rem.for_user(user, tenant=tenant).list_ingest_runs(limit=limit)

    records = run_with_rem(work)
    if as_json:
        print_json(records)
        return
    if not records:
        print_to_stderr("There are no ingest runs yet: `rem ingest PLACE` starts one.")
    for run in records:
        counts = "undone" if run.is_undone else f"{run.added} added, {run.changed} changed"
        more = ", …" if run.added + run.changed > len(run.names) else ""
        line = f"{run.id}  {run.started_at:%Y-%m-%d %H:%M}  {counts}  {', '.join(run.names)}{more}".rstrip()
        print_wrapped(line, indent="    ")


@app.command()
def undo(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, from `rem ingest runs`.")],
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Erase the files that a run added, with their chunks.

    Files that existed before the run stay, and so do files that were changed since.
    """
    from rem.cli.output import print_json

    async def work(rem: Rem) -> UndoReport:
        return await rem.for_user(user, tenant=tenant).undo_ingest(run)

    report = run_with_rem(work)
    if as_json:
        print_json(report)
    else:
        _print_undo_report(report)


def _print_undo_report(report: UndoReport) -> None:
    from rem.cli.output import format_count

    erased = len(report.erased) + len(report.kept_agents)
    if erased:
        echo(f"Run {report.run}: erased {format_count(erased, 'file')} with all chunks.")
    elif report.kept_updated and not (report.kept_changed or report.kept_deleted):
        echo(f"Run {report.run} added no files, it only updated some: there is nothing to erase.")
    else:
        echo(f"Run {report.run}: there is nothing left to erase.")
    for names, reason in (
        (report.kept_changed, "changed since, so it stays"),
        (report.kept_updated, "existed before, so it stays with the text of this run (the older text is not kept)"),
        (report.kept_deleted, "deleted since, and stays deleted"),
        (report.kept_agents, "defined an agent, which stays: `rem agents list` shows it"),
    ):
        for name in names[:MAX_PRINTED_FAILURES]:
            echo(f"{name}: {reason}.")
        if len(names) > MAX_PRINTED_FAILURES:
            echo(f"{len(names) - MAX_PRINTED_FAILURES} more: {reason}.")


def _agent_saver(rem: Rem, scope: Scope) -> Callable[[str], Awaitable[str]]:
    from rem.agents.catalog import AgentCatalog

    catalog = AgentCatalog(rem.settings, rem)

    async def save_agent(text: str) -> str:
        return (await catalog.save(text, scope)).name

    return save_agent


def _print_changes(report: IngestReport) -> None:
    """Print one line for each file that was stored or removed, or that failed."""
    from rem.cli.output import format_count

    for file in report.files:
        if file.status in ("added", "changed"):
            echo(f"{file.status}: {file.name} ({format_count(file.chunks, 'chunk')})")
        elif file.status == "removed":
            echo(f"removed: {file.name}")
        elif file.status in ("deleted", "skipped"):
            echo(f"{file.status}: {file.error}")
    _print_notes(report)
    _print_failures(report)


def _format_counts(report: IngestReport) -> str:
    return ", ".join(f"{report.counts[status]} {status}" for status in _STATUS_ORDER if report.counts[status])


def _print_ignored(report: IngestReport) -> None:
    parts = [f"{count} {_REASONS[reason][count != 1]}" for reason, count in report.ignored.items() if count]
    if parts:
        echo(f"Ignored: {', '.join(parts)}.")
    _print_notes(report)


def _print_notes(report: IngestReport) -> None:
    for note in report.notes[:MAX_PRINTED_FAILURES]:
        print_to_stderr(note)
    if masked := [label for file in report.files for label in file.masked]:
        from rem.privacy.policy import describe_masked

        print_to_stderr(describe_masked(masked))


def _print_index_error(report: IngestReport) -> None:
    if report.index_error:
        print_to_stderr(f"Stored, and found by words but not by meaning yet: {report.index_error}")


def _print_failures(report: IngestReport) -> None:
    for file in report.failures[:MAX_PRINTED_FAILURES]:
        error = file.error or ""
        print_to_stderr(f"Failed: {error if error.startswith(file.name) else f'{file.name}: {error}'}")
    if len(report.failures) > MAX_PRINTED_FAILURES:
        print_to_stderr(f"{len(report.failures) - MAX_PRINTED_FAILURES} more failures: --json lists all of them.")
