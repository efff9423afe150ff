"""`rem ingest`: store files, folders and URLs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.context import Scope
    from rem.ingest.models import FileOutcome, FileStatus, IngestReport

MAX_PRINTED_FAILURES = 100
_STATUS_ORDER: tuple[FileStatus, ...] = ("added", "changed", "unchanged", "deleted", "skipped", "failed")


def ingest(
    places: Annotated[list[str], typer.Argument(metavar="PLACE...", help="Files, folders, https:// or s3:// URLs.")],
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
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Read files, store them in chunks and index them.

    Unchanged files are not written; a changed file replaces its older version. A file that cannot be read does not
    stop the others: it is listed at the end, and the exit code is 1. You can interrupt the command and run it again.
    """
    from rem.cli.output import print_json
    from rem.context import Scope

    async def run(rem: Rem) -> IngestReport:
        return await _ingest_with_progress(
            rem,
            places,
            Scope.for_user(user, tenant),
            category=category,
            tags=tag or None,
            form=form,
            recursive=recursive,
        )

    report = run_with_rem(run)
    if as_json:
        print_json({"counts": report.counts, "chunks": report.chunks, "files": report.files})
    else:
        _print_report(report, user, tenant)
    if report.failures:
        raise typer.Exit(1)


async def _ingest_with_progress(rem: Rem, places: Sequence[str], scope: Scope, **options: Any) -> IngestReport:
    from rem.agents.catalog import AgentCatalog
    from rem.cli.output import progress_bar

    catalog = AgentCatalog(rem.settings, rem)

    async def save_agent(text: str) -> str:
        return (await catalog.save(text, scope)).name

    done: Counter[str] = Counter()
    with progress_bar("Reading") as show_files, progress_bar("Embedding") as show_passages:

        def on_file(_outcome: FileOutcome, total: int) -> None:
            done["files"] += 1
            show_files(done["files"], total)

        def on_index(step: str, count: int) -> None:
            done[step] += count
            show_passages(done["embedded"], None)

        report = await rem.ingest(
            *places,
            user=scope,
            save_agent=save_agent,
            on_file=on_file,
            on_index=on_index,
            **options,
        )
    if report.index_error:
        print_to_stderr(f"Stored, and found by words but not by meaning yet: {report.index_error}")
    return report


def _print_report(report: IngestReport, user: str | None, tenant: str) -> None:
    from rem.cli.output import format_command, format_count

    counts = report.counts
    summary = ", ".join(f"{counts[status]} {status}" for status in _STATUS_ORDER if counts[status])
    typer.echo(
        f"{format_count(len(report.files), 'file')}: {summary or 'nothing to ingest'}; "
        f"{format_count(report.chunks, 'chunk')} stored."
    )
    for file in report.files:
        if file.status == "deleted" and file.key:
            restore = format_command("restore", "files", file.key, user=user, tenant=tenant)
            typer.echo(f"{file.name} was deleted earlier and stays deleted: `{restore}` restores it.")
        elif file.status == "skipped":
            typer.echo(f"Skipped: {file.error}")
    for file in report.failures[:MAX_PRINTED_FAILURES]:
        print_to_stderr(f"Failed: {file.name}: {file.error}")
    if len(report.failures) > MAX_PRINTED_FAILURES:
        print_to_stderr(f"{len(report.failures) - MAX_PRINTED_FAILURES} more failures: --json lists all of them.")
