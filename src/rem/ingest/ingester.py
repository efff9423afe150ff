"""Ingester: the one way of a file into memory, from its source to its rows, for one owner.

`fetch` gets its bytes, `read` prepares it for storing, and `store_many` writes all its rows or none. `ingest` does this
for one file, `ingest_sources` for many at once, and the ingest queue (`queue.py`) for a file that was uploaded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from loguru import logger

from rem.errors import DatabaseError, EmbeddingError, FileEmptyError, FileMissingError, RemError, ToolFailedError
from rem.ingest.chunks import identify_chunker
from rem.ingest.file_rows import FileWrite
from rem.ingest.file_store import (
    AssignedName,
    FileStore,
    StoredChunks,
    StoredFile,
    current_form,
    digest_address,
    digest_text,
)
from rem.ingest.models import (
    FetchedFile,
    FileOutcome,
    FileSource,
    FileStatus,
    Form,
    IngestOptions,
    IngestReport,
    Listing,
    Source,
)
from rem.ingest.prepare import PreparedFile, prepare_file
from rem.ingest.sources.fetch import fetch_file, list_sources
from rem.ingest.sources.policy import FetchPolicy
from rem.knowledge.entries import build_entry_rows
from rem.models import Resource
from rem.models.field_types import utc_now
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.encryption.sealed_values import Sealer
    from rem.ingest.sources.ignore_rules import ListingOptions
    from rem.settings import Settings

SaveAgent: TypeAlias = Callable[[str], Awaitable[str]]
"""Stores the YAML definition of an agent and returns the agent's name."""
WithinTransaction: TypeAlias = Callable[["Store"], AbstractAsyncContextManager[None]]
"""Opens a context in the transaction that stores a file. What it does is committed or rolled back with the file."""
OnFile: TypeAlias = Callable[[FileOutcome, int], None]
"""Called after each file with its outcome and the total number of files."""
Index: TypeAlias = Callable[[], Awaitable[object]]
"""Indexes the stored rows that are not indexed yet."""
ReadResult: TypeAlias = PreparedFile | FileOutcome
"""A file that is ready to be stored, or the outcome of one that has nothing to store."""
READ_AHEAD_SMALL_FILES, READ_AHEAD_LARGE_FILES = 16, 2
"""Files that are read ahead. All of them are held in memory, so there are fewer if the files are large."""
MAX_BATCH_FILES = 32
MAX_BATCH_BYTES = 1_000_000
"""Small files are stored together, because a transaction costs more than storing one of them."""
INDEX_INTERVAL_SECONDS = 0.2


class Ingester:
    """Ingests files for the owner of a store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        policy: FetchPolicy | None = None,
        save_agent: SaveAgent | None = None,
        run_id: UUID | None = None,
    ) -> None:
        """Create an ingester. With `run_id`, the files are recorded as one run, which can be undone.

        The default policy is the one of the settings, for callers of the API and for agents.
        """
        self.store = store
        self.policy = policy or FetchPolicy.from_settings(settings.ingest)
        self._settings = settings
        self._save_agent = save_agent
        self._run_id = run_id

    async def ingest(
        self,
        source: Source,
        *,
        category: str | None = None,
        tags: Sequence[str] | None = None,
        form: Form | None = None,
    ) -> FileOutcome:
        """Fetch, read and store a file, and return its outcome.

        Without `form` a known file keeps its form, and a new one becomes chunks. A file that cannot be read stores
        nothing: the outcome has the reason. Only a DatabaseError is raised: it would affect all other files, too.
        """
        result = await self._try_to_read(source, IngestOptions(category, None if tags is None else tuple(tags), form))
        return (await self._try_to_store([result]))[0]

    async def ingest_sources(
        self,
        sources: Sequence[FileSource],
        options: IngestOptions,
        *,
        index: Index | None = None,
        on_file: OnFile | None = None,
        is_dry_run: bool = False,
    ) -> IngestReport:
        """Ingest many files in order: fetch and read the next ones while others are stored and indexed.

        If this is cancelled, the files stored so far stay. A dry run reports what would be stored, and stores nothing.
        An error of the embedder does not stop anything: it is in the report.
        """
        run = self._ingest_in_order(sources, options, on_file, is_dry_run=is_dry_run)
        return await (run if is_dry_run or index is None else _run_and_index(run, index))

    async def list_files(self, places: Iterable[str], options: ListingOptions) -> Listing:
        """Return the files of all places, each URI once. The errors are whole sentences."""
        sources: dict[str, FileSource] = {}
        merged = Listing()
        for place in places:
            try:
                listing = await list_sources(place, self.policy, self._settings.ingest, options)
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

    async def fetch(self, source: Source) -> FetchedFile:
        """Return the bytes of a file, as far as the policy allows to fetch it."""
        if isinstance(source, FetchedFile):
            return source
        return await fetch_file(source.uri, self.policy, self._settings.ingest, name=source.name)

    async def read(self, source: Source, options: IngestOptions) -> ReadResult:
        """Fetch a file and prepare it, or return its outcome: it is stored unchanged, was deleted, or was forgotten."""
        file = await self.fetch(source)
        async with self.store.executor.connection() as connection:
            stored = (await FileStore(connection, self.store.scope).find_by_uri([file.uri])).get(file.uri)
        if stored is not None:
            options = replace(options, form=options.form or current_form(stored.metadata))
            outcome = self._check_existing(stored, file, options)
            if outcome is not None:
                return outcome
        prepared = await prepare_file(
            file, options, self._settings, self.store.executor.privacy, takes_agents=self._save_agent is not None
        )
        if not options.with_forgotten and (forgotten := await self._find_forgotten(prepared)):
            chunks = [chunk for chunk in prepared.chunks if digest_text(chunk.text, self._sealer) not in forgotten]
            if not chunks or (stored is None and digest_address(file.uri) in forgotten):
                return _make_forgotten_outcome(file)
            prepared = replace(prepared, chunks=chunks)
        is_known = stored is not None and stored.checksum is not None and not stored.is_removed
        return replace(prepared, is_known=is_known)

    async def store_many(
        self, results: Sequence[ReadResult], *, within: WithinTransaction | None = None
    ) -> list[FileOutcome]:
        """Store all prepared files and replace their older versions, or store none. Return all outcomes in order.

        `within` is entered in the same transaction.
        """
        outcomes = {position: result for position, result in enumerate(results) if isinstance(result, FileOutcome)}
        files = {position: result for position, result in enumerate(results) if isinstance(result, PreparedFile)}
        for prepared in files.values():
            if prepared.agent_yaml is not None:
                # Saving an agent twice changes nothing, so it may happen outside of the transaction.
                await self._save_as_agent(prepared.agent_yaml)
        if files or within:
            async with self.store.transaction() as store, within(store) if within else nullcontext():
                # In rounds: of two files with the same URI or name, the second must see the rows of the first.
                while files:
                    outcomes |= await self._store_round(store, files)
                    files = {position: prepared for position, prepared in files.items() if position not in outcomes}
        return [outcomes[position] for position in range(len(results))]

    async def remove(self, uris: Sequence[str]) -> list[FileOutcome]:
        """Delete files that are no longer in their folder. They are restored when they are ingested again."""
        async with self.store.transaction() as store, store.executor.connection() as connection:
            file_store = FileStore(connection, store.scope)
            await file_store.lock()
            return [FileOutcome("removed", uri, name, key) for uri, name, key in await file_store.remove(uris)]

    async def _ingest_in_order(
        self, sources: Sequence[FileSource], options: IngestOptions, on_file: OnFile | None, *, is_dry_run: bool
    ) -> IngestReport:
        report = IngestReport()
        async with _read_ahead(self._try_to_read(source, options) for source in sources) as batches:
            async for batch in batches:
                outcomes = map(_preview, batch) if is_dry_run else await self._try_to_store(batch)
                for outcome in outcomes:
                    report.files.append(outcome)
                    report.notes += [f"{outcome.name}: {outcome.note}"] if outcome.note else []
                    if on_file is not None:
                        on_file(outcome, len(sources))
        return report

    async def _try_to_read(self, source: Source, options: IngestOptions) -> ReadResult:
        """Read a file. Return its outcome if that fails."""
        try:
            return await self.read(source, options)
        except DatabaseError:
            raise
        except FileMissingError as error:
            # A file with a folder in its name was listed, so it has vanished since.
            return FileOutcome("skipped" if "/" in source.name else "failed", source.uri, source.name, error=str(error))
        except Exception as error:  # noqa: BLE001  # one bad file must not stop the others, whatever it raises
            return _make_failed_outcome(source, error)

    async def _try_to_store(self, batch: Sequence[ReadResult]) -> list[FileOutcome]:
        """Store the prepared files of a batch, and return the outcomes of all files in order."""
        try:
            return await self.store_many(batch)
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001
            match batch:
                case [PreparedFile() as prepared]:
                    return [_make_failed_outcome(prepared.file, error)]
        # One of them is bad and nothing was stored: store each on its own to find out which.
        return [outcome for result in batch for outcome in await self._try_to_store([result])]

    @property
    def _sealer(self) -> Sealer | None:
        return self.store.executor.sealer

    async def _find_forgotten(self, prepared: PreparedFile) -> set[bytes]:
        async with self.store.executor.connection() as connection:
            return await FileStore(connection, self.store.scope).find_forgotten(_list_digests(prepared, self._sealer))

    async def _store_round(self, store: Store, files: Mapping[int, PreparedFile]) -> dict[int, FileOutcome]:
        """Store the files that do not conflict with each other, at least one. Return their outcomes by position."""
        outcomes: dict[int, FileOutcome] = {}
        async with store.executor.connection() as connection:
            file_store = FileStore(connection, store.scope)
            await file_store.lock()
            stored_files = await file_store.find_by_uri([prepared.file.uri for prepared in files.values()], lock=True)
            await file_store.restore_removed(stored_files.values())
            stored_chunks = await file_store.load_chunks([stored.id for stored in stored_files.values()])
            writes: dict[int, FileWrite] = {}
            for position, prepared in _skip_repeated_uris(files):
                stored = stored_files.get(prepared.file.uri)
                outcome = self._check_existing(stored, prepared.file, prepared.options) if stored else None
                if outcome is None:
                    chunks = stored_chunks[stored.id] if stored else StoredChunks()
                    writes[position] = FileWrite(prepared, stored, chunks, self._sealer)
                else:
                    outcomes[position] = outcome
            names = await file_store.assign_names([write.name_request for write in writes.values()])
            named = {
                position: (write, assigned)
                for (position, write), assigned in zip(writes.items(), names, strict=True)
                if assigned
            }
            await self._write_rows(store, file_store, list(named.values()))
        return outcomes | {
            position: write.make_outcome(assigned, self._run_id) for position, (write, assigned) in named.items()
        }

    async def _write_rows(
        self, store: Store, file_store: FileStore, named: Sequence[tuple[FileWrite, AssignedName]]
    ) -> None:
        """Write the rows of some files and erase those that they no longer have.

        Here, in the transaction of the files, is the place for whatever else is stored of a parsed document
        (`write.prepared.document`, masked) under the id of its file (`assigned.id`).
        """
        chunk_rows: list[Resource] = []
        now = utc_now()
        for write, assigned in named:
            chunk_rows += write.build_chunk_rows(assigned, now)
            if write.has_entries:
                entries = write.prepared.entries
                rows = await build_entry_rows(file_store, assigned, write.prepared.file.uri, entries, write.tags)
                write.entry_keys = [row.key for row in (await store.upsert_many(rows)).rows]
        chunk_ids = iter([row.id for row in (await store.upsert_many(chunk_rows)).rows])
        await file_store.erase("chunks", [chunk_id for write, _ in named for chunk_id in write.obsolete_chunk_ids])
        # A file can have very many records, and requests must not wait for them.
        records = await asyncio.to_thread(
            lambda: [record for write, assigned in named for record in write.build_record_rows(assigned, chunk_ids)]
        )
        await file_store.erase_records([assigned.id for _, assigned in named], kept=[record.id for record in records])
        await store.upsert_many(records)
        await store.upsert_many([write.build_file_row(assigned) for write, assigned in named])
        await file_store.clear_forgotten(
            [digest for write, _ in named for digest in _list_digests(write.prepared, self._sealer)]
        )
        if self._run_id is not None:
            await file_store.record_run(self._run_id, {write.file_id: write.is_new for write, _ in named})

    def _check_existing(self, stored: StoredFile, file: FetchedFile, options: IngestOptions) -> FileOutcome | None:
        """Return the outcome of a file that was deleted or has not changed; None if it has to be stored."""
        if stored.is_removed:
            return None
        if stored.is_deleted:
            hint = f"It was deleted earlier and stays deleted: `rem restore files {stored.id}` restores it."
            return FileOutcome("deleted", file.uri, stored.name, stored.key, error=hint)
        chunker = identify_chunker(self._settings.ingest.chunk_tokens)
        if not stored.has(file, options, chunker):
            return None
        return FileOutcome("unchanged", file.uri, stored.name, stored.key, chunks=stored.ingest_info.get("chunks", 0))

    async def _save_as_agent(self, agent_yaml: str) -> None:
        if self._save_agent is None:
            raise ToolFailedError("Agents cannot be saved here: use `rem ingest` or `rem agents save`.")
        await self._save_agent(agent_yaml)


def _preview(result: ReadResult) -> FileOutcome:
    """Return the outcome that storing a prepared file would have."""
    if isinstance(result, FileOutcome):
        return result
    status: FileStatus = "changed" if result.is_known else "added"
    rows = len(result.chunks) + len(result.entries)
    return FileOutcome(status, result.file.uri, clean_text(result.file.name), chunks=rows)


def _make_failed_outcome(source: Source, error: Exception) -> FileOutcome:
    """Return the outcome for an error: `skipped` for an empty file, `failed` for anything else."""
    if not isinstance(error, RemError):
        logger.opt(exception=error).warning("{} could not be ingested", source.name)
        reason = f"REM failed to read it: {type(error).__name__}: {error}"
        return FileOutcome("failed", source.uri, source.name, error=reason)
    status: FileStatus = "skipped" if isinstance(error, FileEmptyError) else "failed"
    return FileOutcome(status, source.uri, source.name, error=str(error))


def _make_forgotten_outcome(file: FetchedFile) -> FileOutcome:
    hint = "It was forgotten earlier and stays forgotten: `rem ingest --with-forgotten` stores it again."
    return FileOutcome("deleted", file.uri, clean_text(file.name), error=hint)


def _skip_repeated_uris(files: Mapping[int, PreparedFile]) -> Iterator[tuple[int, PreparedFile]]:
    """Yield the first file of each URI. The others follow in the next round and replace it."""
    seen: set[str] = set()
    for position, prepared in files.items():
        if prepared.file.uri not in seen:
            seen.add(prepared.file.uri)
            yield position, prepared


def _list_digests(prepared: PreparedFile, sealer: Sealer | None) -> list[bytes]:
    return [digest_address(prepared.file.uri), *(digest_text(chunk.text, sealer) for chunk in prepared.chunks)]


async def _run_and_index(run: Coroutine[Any, Any, IngestReport], index: Index) -> IngestReport:
    """Ingest files while the stored ones are indexed. Storing waits for the database, embedding for the CPU."""
    ingestion = asyncio.create_task(run)
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


@asynccontextmanager
async def _read_ahead(
    reads: Iterator[Coroutine[Any, Any, ReadResult]],
) -> AsyncIterator[AsyncIterator[list[ReadResult]]]:
    """Yield the results of the coroutines in order, in batches of those that are done, while the next ones run."""
    tasks: deque[asyncio.Task[ReadResult]] = deque()
    max_tasks = READ_AHEAD_LARGE_FILES

    def start_tasks() -> None:
        while len(tasks) < max_tasks and (read := next(reads, None)) is not None:
            tasks.append(asyncio.create_task(read))

    async def batches() -> AsyncIterator[list[ReadResult]]:
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


def _count_bytes(result: ReadResult) -> int:
    return len(result.file.data) if isinstance(result, PreparedFile) else 0
