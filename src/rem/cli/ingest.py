"""`rem ingest`: files, folders and addresses become memories."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rem.cli.runtime import JsonOption, TenantOption, UserOption, print_to_stderr, run_with_rem

if TYPE_CHECKING:
    from rem.app import Rem
    from rem.ingest.ingester import IngestOptions
    from rem.ingest.models import FileOutcome, FileSource, FileStatus, IngestReport
    from rem.retrieval.indexer import IndexProgress
    from rem.settings import Settings

_MOST_FAILURES = 100
_LOOK_AGAIN_SECONDS = 0.2


def ingest(
    places: Annotated[
        list[str], typer.Argument(metavar="PLACE...", help="Paths, folders, https:// or s3:// addresses.")
    ],
    category: Annotated[str | None, typer.Option(help="What kind of texts these are, such as manual.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A topic; can be given several times.")] = None,
    form: Annotated[
        Literal["resource", "ontology"] | None,
        typer.Option(
            "--as",
            help="As texts to search, or as entries of the knowledge base (wikis, API docs). Without it a file that is "
            "known keeps the form that it has, and a new one becomes texts.",
        ),
    ] = None,
    recursive: Annotated[bool, typer.Option(help="Also what is in folders below.")] = True,
    user: UserOption = None,
    tenant: TenantOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Take files in: read them, keep them in pieces, make them searchable.

    The same file again changes nothing, and a changed one takes the place of the old. One bad file does not stop the
    rest: exit code 1 and a list at the end say which. Can be interrupted and called again.
    """
    from rem.cli.output import print_json
    from rem.ingest.ingester import IngestOptions

    wish = IngestOptions(category, tuple(tag) if tag else None, form)

    async def work(rem: Rem) -> IngestReport:
        return await _ingest(rem, places, wish, recursive=recursive, user=user, tenant=tenant)

    report = run_with_rem(work)
    if as_json:
        print_json({"counts": report.counts, "chunks": report.chunks, "files": report.files})
    else:
        _print(report, user, tenant)
    if report.failures:
        raise typer.Exit(1)


async def _ingest(
    rem: Rem, places: Sequence[str], wish: IngestOptions, *, recursive: bool, user: str | None, tenant: str
) -> IngestReport:
    from rem.cli.indexing import index_new_rows
    from rem.cli.output import progress_bar

    sources, problems = await _sources(places, rem.settings, recursive)
    done: Counter[str] = Counter()
    with progress_bar("Reading") as on_files, progress_bar("Embedding") as on_passages:

        def on_file(_outcome: FileOutcome) -> None:
            done["read"] += 1
            on_files(done["read"], len(sources))

        def on_progress(what: str, more: int) -> None:
            done[what] += more
            on_passages(done["embedded"], None)

        report = await ingest_sources(rem, sources, wish, on_file, on_progress, user=user, tenant=tenant)
    report.files += problems
    await index_new_rows(rem, user=user, tenant=tenant)
    return report


async def ingest_sources(
    rem: Rem,
    sources: Sequence[FileSource],
    wish: IngestOptions,
    on_file: Callable[[FileOutcome], None] | None = None,
    on_progress: IndexProgress | None = None,
    *,
    user: str | None = None,
    tenant: str = "default",
) -> IngestReport:
    """Take files in, and index what is stored while the next ones are read. A rest may wait to be indexed."""
    from rem.agents.catalog import AgentCatalog
    from rem.context import Scope
    from rem.errors import EmbeddingError
    from rem.ingest.pipeline import Pipeline
    from rem.ingest.sources.policy import UNRESTRICTED

    scope = Scope.for_user(user, tenant)
    catalog = AgentCatalog(rem.settings, rem)

    async def save_schema(text: str) -> str:
        return (await catalog.save(text, scope)).name

    pipeline = Pipeline(rem.ingester(scope, save_schema=save_schema), UNRESTRICTED, rem.settings.ingest, wish)
    reading = asyncio.create_task(pipeline.run(sources, on_file))
    try:
        while not reading.done():
            await asyncio.wait([reading], timeout=_LOOK_AGAIN_SECONDS)
            # Storing waits for the database, embedding for the processor: both at once take less time.
            await rem.index(user=user, tenant=tenant, on_progress=on_progress)
    except EmbeddingError:
        # It is told at the end, when all is stored.
        return await reading
    except BaseException:
        reading.cancel()
        await asyncio.wait([reading])
        raise
    return await reading


async def _sources(
    places: Sequence[str], settings: Settings, recursive: bool
) -> tuple[list[FileSource], list[FileOutcome]]:
    """All files of the places, each once, and what is wrong with a place."""
    from rem.errors import RemError
    from rem.ingest.ingester import make_failed_outcome
    from rem.ingest.models import FileOutcome
    from rem.ingest.sources.fetch import list_sources
    from rem.ingest.sources.policy import UNRESTRICTED

    sources: dict[str, FileSource] = {}
    problems: list[FileOutcome] = []
    for place in places:
        try:
            listing = await list_sources(place, UNRESTRICTED, settings.ingest)
        except RemError as error:
            problems.append(make_failed_outcome(place, place, error))
            continue
        problems += [FileOutcome("failed", name, name, error=f"{name} {what}.") for name, what in listing.problems]
        for source in listing.sources:
            if recursive or len(listing.sources) == 1 or source.name.count("/") <= 1:
                sources.setdefault(source.uri, source)
    return list(sources.values()), problems


def _print(report: IngestReport, user: str | None, tenant: str) -> None:
    from rem.cli.output import format_command, format_count

    counts = report.counts
    order: tuple[FileStatus, ...] = ("added", "changed", "unchanged", "deleted", "skipped", "failed")
    parts = [f"{counts[status]} {status}" for status in order]
    shown = ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing to take in"
    typer.echo(f"{format_count(len(report.files), 'file')}: {shown}; {format_count(report.chunks, 'chunk')} stored.")
    for file in report.files:
        if file.status == "deleted" and file.key:
            back = format_command("restore", "files", file.key, user=user, tenant=tenant)
            typer.echo(f"{file.name} was deleted before, and left deleted: `{back}` brings it back.")
        elif file.status == "skipped":
            typer.echo(f"Skipped: {file.error}")
    for file in report.failures[:_MOST_FAILURES]:
        print_to_stderr(f"Failed: {file.name}: {file.error}")
    if len(report.failures) > _MOST_FAILURES:
        print_to_stderr(f"And {len(report.failures) - _MOST_FAILURES} more: see them with --json.")
