"""Pipeline: ingests many files. It fetches and reads the next files while others are stored and indexed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.errors import DatabaseError, EmbeddingError, FileMissingError, RemError
from rem.ingest.ingester import PreparedFile, make_failed_outcome, make_preview
from rem.ingest.models import FileOutcome, FileSource, IngestOptions, IngestReport, Listing
from rem.ingest.sources.fetch import fetch_file, list_sources
from rem.ingest.sources.ignore_rules import ListingOptions
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.ingest.ingester import Ingester
    from rem.ingest.sources.policy import FetchPolicy
    from rem.settings import IngestSettings

OnFile: TypeAlias = Callable[[FileOutcome, int], None]
"""Called after each file with its outcome and the total number of files."""
Index: TypeAlias = Callable[[], Awaitable[object]]
"""Indexes the stored rows that are not indexed yet."""
READ_AHEAD_SMALL_FILES, READ_AHEAD_LARGE_FILES = 16, 2
"""Files that are read ahead. All of them are held in memory, so there are fewer if the files are large."""
MAX_BATCH_FILES = 32
MAX_BATCH_BYTES = 1_000_000
"""Small files are stored together, because a transaction costs more than storing one of them."""
INDEX_INTERVAL_SECONDS = 0.2

_ReadResult: TypeAlias = "PreparedFile | FileOutcome"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Ingests the files of some places for one owner."""

    ingester: Ingester
    policy: FetchPolicy
    settings: IngestSettings
    options: IngestOptions
    listing_options: ListingOptions = field(default_factory=ListingOptions)
    is_dry_run: bool = False
    """Read the files and report what would be stored, but store nothing."""

    async def ingest(self, places: Sequence[str], *, index: Index, on_file: OnFile | None = None) -> IngestReport:
        """Ingest files, folders and URLs, and index the stored rows. Each file is read once.

        The report lists the files first, and then the places that could not be read. An error of the embedder does not
        stop anything: it is in the report.
        """
        listing = await self.list_files(places)
        report = await self.ingest_sources(listing.sources, index=index, on_file=on_file)
        report.files += [FileOutcome("failed", name, name, error=reason) for name, reason in listing.errors]
        report.ignored, report.notes = listing.ignored, listing.notes
        return report

    async def ingest_sources(
        self, sources: Sequence[FileSource], *, index: Index, on_file: OnFile | None = None
    ) -> IngestReport:
        """Ingest files, and index the stored rows."""
        return await (self.run(sources, on_file) if self.is_dry_run else self._run_and_index(sources, index, on_file))

    async def run(self, sources: Sequence[FileSource], on_file: OnFile | None = None) -> IngestReport:
        """Ingest files in order, without indexing. If this is cancelled, the files stored so far stay."""
        report = IngestReport()
        async with _read_ahead(self._read(source) for source in sources) as batches:
            async for batch in batches:
                for outcome in await self._store_batch(batch):
                    report.files.append(outcome)
                    if on_file is not None:
                        on_file(outcome, len(sources))
        return report

    async def list_files(self, places: Iterable[str]) -> Listing:
        """Return the files of all places, each URI once. The errors are whole sentences."""
        sources: dict[str, FileSource] = {}
        merged = Listing()
        for place in places:
            try:
                listing = await list_sources(place, self.policy, self.settings, self.listing_options)
            except RemError as error:
                merged.errors.append((place, str(error)))
                continue
            except UnicodeEncodeError:
                name = clean_text(place)
                merged.errors.append((name, f"{name} is not a valid path."))
                continue
            merged.errors += [(name, f"{name} {reason}.") for name, reason in listing.errors]
            merged.ignored += listing.ignored
            merged.notes += listing.notes
            for source in listing.sources:
                sources.setdefault(source.uri, source)
        merged.sources = list(sources.values())
        return merged

    async def _run_and_index(self, sources: Sequence[FileSource], index: Index, on_file: OnFile | None) -> IngestReport:
        """Ingest files while the stored ones are indexed. Storing waits for the database, embedding for the CPU."""
        ingestion = asyncio.create_task(self.run(sources, on_file))
        try:
            while not ingestion.done():
                await asyncio.wait([ingestion], timeout=INDEX_INTERVAL_SECONDS)
                await index()
        except EmbeddingError:
            pass  # The attempt at the end reports it, when all files are stored.
        except BaseException:
            ingestion.cancel()
            await asyncio.wait([ingestion])
            raise
        report = await ingestion
        try:
            await index()
        except EmbeddingError as error:
            report.index_error = str(error)
        return report

    async def _read(self, source: FileSource) -> _ReadResult:
        """Fetch and read a file. Return its outcome if there is nothing to store."""
        try:
            file = await fetch_file(source.uri, self.policy, self.settings, name=source.name)
            return await self.ingester.prepare_if_changed(file, self.options)
        except DatabaseError:
            raise
        except FileMissingError as error:
            # A file with a folder in its name was listed, so it has vanished since.
            return FileOutcome("skipped" if "/" in source.name else "failed", source.uri, source.name, error=str(error))
        except Exception as error:  # noqa: BLE001  # one bad file must not stop the others, whatever it raises
            return make_failed_outcome(source.uri, source.name, error)

    async def _store_batch(self, batch: Sequence[_ReadResult]) -> list[FileOutcome]:
        """Store the prepared files of a batch, and return the outcomes of all files in order."""
        if self.is_dry_run:
            return [result if isinstance(result, FileOutcome) else make_preview(result) for result in batch]
        stored = iter(await self._store([result for result in batch if isinstance(result, PreparedFile)]))
        return [result if isinstance(result, FileOutcome) else next(stored) for result in batch]

    async def _store(self, files: Sequence[PreparedFile]) -> list[FileOutcome]:
        if not files:
            return []
        try:
            return await self.ingester.store_many(files)
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001
            if len(files) == 1:
                return [make_failed_outcome(files[0].file.uri, files[0].file.name, error)]
        # One of them is bad and nothing was stored: store each on its own to find out which.
        return [outcome for prepared in files for outcome in await self._store([prepared])]


@asynccontextmanager
async def _read_ahead(
    reads: Iterator[Coroutine[Any, Any, _ReadResult]],
) -> AsyncIterator[AsyncIterator[list[_ReadResult]]]:
    """Yield the results of the coroutines in order, in batches of those that are done, while the next ones run."""
    tasks: deque[asyncio.Task[_ReadResult]] = deque()
    max_tasks = READ_AHEAD_LARGE_FILES

    def start_tasks() -> None:
        while len(tasks) < max_tasks and (read := next(reads, None)) is not None:
            tasks.append(asyncio.create_task(read))

    async def batches() -> AsyncIterator[list[_ReadResult]]:
        nonlocal max_tasks
        start_tasks()
        while tasks:
            batch = [await tasks[0]]
            batch_bytes = _count_bytes(batch[0])
            max_tasks = READ_AHEAD_SMALL_FILES if batch_bytes < MAX_BATCH_BYTES else READ_AHEAD_LARGE_FILES
            tasks.popleft()
            start_tasks()
            while tasks and tasks[0].done() and batch_bytes < MAX_BATCH_BYTES and len(batch) < MAX_BATCH_FILES:
                batch.append(tasks.popleft().result())
                batch_bytes += _count_bytes(batch[-1])
                start_tasks()
            yield batch

    try:
        yield batches()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _count_bytes(result: _ReadResult) -> int:
    return len(result.file.data) if isinstance(result, PreparedFile) else 0
