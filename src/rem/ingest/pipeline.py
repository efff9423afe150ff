"""Many files: the next ones are fetched and read while one is stored, and one bad file does not stop the rest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.errors import DatabaseError
from rem.ingest.ingester import IngestOptions, PreparedFile, make_failed_outcome
from rem.ingest.models import FileOutcome, IngestReport
from rem.ingest.sources.fetch import fetch_file

if TYPE_CHECKING:
    from rem.ingest.ingester import Ingester
    from rem.ingest.models import FileSource
    from rem.ingest.sources.policy import FetchPolicy
    from rem.settings import IngestSettings

OnFile: TypeAlias = Callable[[FileOutcome], None]
_SMALL_AHEAD, _LARGE_AHEAD = 16, 2
"""How many files are read ahead, where they are small and where they are large: all of them are held in memory."""
_MOST_TOGETHER = 32
_LARGEST_BATCH = 1_000_000
"""In bytes: small files are stored together, because each transaction costs more than such a file."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Takes the files of some places in, in their order."""

    ingester: Ingester
    reach: FetchPolicy
    settings: IngestSettings
    wish: IngestOptions

    async def run(self, sources: Iterable[FileSource], on_file: OnFile | None = None) -> IngestReport:
        """Take all of them in. What was stored stays stored if it is cancelled: another run goes on from there."""
        report = IngestReport()
        async with _reading_ahead(self._read(source) for source in sources) as reads:
            async for batch in reads:
                for outcome in await self._finish(batch):
                    report.files.append(outcome)
                    if on_file is not None:
                        on_file(outcome)
        return report

    async def _finish(self, batch: Sequence[_Read]) -> list[FileOutcome]:
        """Store those of a batch that were read; the outcomes of all, in their order."""
        stored = iter(await self._store([read for read in batch if isinstance(read, PreparedFile)]))
        return [read if isinstance(read, FileOutcome) else next(stored) for read in batch]

    async def _read(self, source: FileSource) -> PreparedFile | FileOutcome:
        """The file, read; or what became of it, if there is nothing to store."""
        try:
            file = await fetch_file(source.uri, self.reach, self.settings, name=source.name)
            known = await self.ingester.check_existing(file, self.wish)
            return known if isinstance(known, FileOutcome) else await self.ingester.prepare(file, known)
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001  # one bad file must not stop the others, whatever is bad about it
            return make_failed_outcome(source.uri, source.name, error)

    async def _store(self, reads: Sequence[PreparedFile]) -> list[FileOutcome]:
        if not reads:
            return []
        try:
            return await self.ingester.store_many(reads)
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001
            if len(reads) == 1:
                return [make_failed_outcome(reads[0].file.uri, reads[0].file.name, error)]
        # One of them is bad, and nothing was stored: one after the other it shows which.
        return [outcome for read in reads for outcome in await self._store([read])]


_Read: TypeAlias = "PreparedFile | FileOutcome"


@asynccontextmanager
async def _reading_ahead(reads: Iterator[Coroutine[Any, Any, _Read]]) -> AsyncIterator[AsyncIterator[list[_Read]]]:
    """The results of coroutines in their order, as many at once as are there; a few more are under way meanwhile."""
    under_way: deque[asyncio.Task[_Read]] = deque()
    ahead = _LARGE_AHEAD

    def fill_up() -> None:
        while len(under_way) < ahead and (read := next(reads, None)) is not None:
            under_way.append(asyncio.create_task(read))

    async def results() -> AsyncIterator[list[_Read]]:
        nonlocal ahead
        fill_up()
        while under_way:
            batch = [await under_way[0]]
            size = _size(batch[0])
            ahead = _SMALL_AHEAD if size < _LARGEST_BATCH else _LARGE_AHEAD
            under_way.popleft()
            fill_up()
            while under_way and under_way[0].done() and size < _LARGEST_BATCH and len(batch) < _MOST_TOGETHER:
                batch.append(under_way.popleft().result())
                size += _size(batch[-1])
                fill_up()
            yield batch

    try:
        yield results()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


def _size(read: _Read) -> int:
    return len(read.file.data) if isinstance(read, PreparedFile) else 0
