"""Ingester: takes files into one owner's memory, each as a whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

from loguru import logger

from rem.errors import DatabaseError, FileEmptyError, RemError, ToolFailedError
from rem.ingest.chunking.chunker import CHUNKER_VERSION, Chunk, chunk_document
from rem.ingest.chunking.rows import NumberedChunk, build_chunk_rows, number_chunks
from rem.ingest.dates import resolve_written_at
from rem.ingest.file_store import (
    ORIGIN,
    AssignedName,
    FileStore,
    Form,
    NameRequest,
    StoredChunks,
    StoredFile,
    current_form,
    propose_names,
)
from rem.ingest.json_values import replace_unstorable, to_json_value
from rem.ingest.knowledge.agents import extract_agent_yaml
from rem.ingest.knowledge.entries import KnowledgeEntry, build_entry_rows
from rem.ingest.knowledge.openapi import parse_openapi
from rem.ingest.knowledge.wiki import extract_tags, parse_wiki_page
from rem.ingest.models import FetchedFile, FileOutcome, FileStatus, ParsedDocument
from rem.models import File, Resource
from rem.models.field_types import utc_now
from rem.models.file import ProcessingStatus

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.settings import Settings

SaveAgent: TypeAlias = Callable[[str], Awaitable[str]]
"""Keeps the definition of an agent, and gives its name."""
WithinTransaction: TypeAlias = Callable[["Store"], AbstractAsyncContextManager[None]]
_MOST_HEADINGS = 200
_OWN_METADATA = frozenset({"title", "headings", "document", "ingest", "error", "wanted"})


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How files are to be remembered. What is None stays as it is."""

    category: str | None = None
    tags: tuple[str, ...] | None = None
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file with what was made of it, ready to be stored."""

    file: FetchedFile
    checksum: str
    wish: IngestOptions
    document: ParsedDocument | None = None
    chunks: Sequence[Chunk] = ()
    entries: Sequence[KnowledgeEntry] = ()
    schema: str | None = None
    """The definition of an agent, if the file is one."""


@dataclass(slots=True)
class _Work:
    """What is to be done for one file."""

    read: PreparedFile
    stored: StoredFile | None
    there: StoredChunks
    chunks: Sequence[NumberedChunk] = ()
    file_id: UUID = field(default_factory=uuid4)
    tags: list[str] = field(default_factory=list)
    entry_keys: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chunks = number_chunks(self.read.chunks, self.there)
        if self.stored is not None:
            self.file_id = self.stored.id

    @property
    def name_wish(self) -> NameRequest:
        """A name that the file has stays, unless it is in the way of another."""
        names = [*([self.stored.name] if self.stored else []), *propose_names(self.read.file)]
        return NameRequest(self.file_id, names, self.chunks[-1].number if self.chunks else 0)

    @property
    def category(self) -> str | None:
        return self.read.wish.category or (self.stored.ingest_info.get("category") if self.stored else None)

    @property
    def was_ontology(self) -> bool:
        return self.stored is not None and self.stored.ingest_info.get("form") == "ontology"

    @property
    def surplus(self) -> list[UUID]:
        """The chunks that the file no longer has."""
        kept = {chunk.number for chunk in self.chunks}
        return [chunk_id for number, (chunk_id, _) in self.there.live.items() if number not in kept]

    @property
    def pieces(self) -> int:
        return len(self.chunks) + len(self.entry_keys)

    def outcome(self, place: AssignedName) -> FileOutcome:
        is_new = self.stored is None or self.stored.checksum is None
        keys = (*(place.chunk_keys[chunk.number - 1] for chunk in self.chunks), *self.entry_keys)
        status: FileStatus = "added" if is_new else "changed"
        return FileOutcome(status, self.read.file.uri, place.name, place.key, chunks=self.pieces, keys=keys)


class Ingester:
    """Takes files in for the owner of a store."""

    def __init__(self, store: Store, settings: Settings, *, save_schema: SaveAgent | None = None) -> None:
        self._store = store
        self._settings = settings
        self._save_schema = save_schema

    @property
    def target_store(self) -> Store:
        """Where the files go."""
        return self._store

    async def ingest(
        self,
        file: FetchedFile,
        document: ParsedDocument | None = None,
        *,
        category: str | None = None,
        tags: Sequence[str] | None = None,
        form: Form | None = None,
    ) -> FileOutcome:
        """Take a file in; of one that cannot be, nothing is left and the outcome says why.

        A file that is known keeps the form that it has, unless another is given; a new one becomes pieces of text.

        Only a database that fails is an error: it would fail for every other file, too.
        """
        wish = IngestOptions(category, None if tags is None else tuple(tags), form)
        try:
            known = await self.check_existing(file, wish)
            if isinstance(known, FileOutcome):
                return known
            return await self.store(await self.prepare(file, known, document))
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001  # one bad file must not stop the others, whatever is bad about it
            return make_failed_outcome(file.uri, file.name, error)

    async def check_existing(self, file: FetchedFile, wish: IngestOptions) -> FileOutcome | IngestOptions:
        """What became of the file before, if there is nothing to do: it is stored as it is, or was deleted. Else how it
        is to be read, in the form that it has if none is wished for."""
        async with self._store.executor.connection() as connection:
            stored = (await FileStore(connection, self._store.scope).find_by_uri([file.uri])).get(file.uri)
        if stored is None:
            return wish
        wish = replace(wish, form=wish.form or current_form(stored.metadata))
        return self._settled(stored, file, compute_checksum(file), wish) or wish

    async def prepare(
        self, file: FetchedFile, wish: IngestOptions, document: ParsedDocument | None = None
    ) -> PreparedFile:
        """Read a file and cut it into pieces, unless another form is wished for. Touches no database."""
        wish = replace(wish, form=wish.form or "resource")
        ready = PreparedFile(file, compute_checksum(file), wish)
        schema = await asyncio.to_thread(extract_agent_yaml, file) if self._save_schema else None
        if schema is not None:
            return replace(ready, wish=replace(wish, form="schema"), schema=schema)
        if document is None:
            from rem.ingest.readers.dispatch import read_file

            document = await read_file(file, self._settings)
        document = replace(document, text=replace_unstorable(document.text))
        if wish.form == "ontology":
            return await asyncio.to_thread(_with_entries, ready, document)
        return await asyncio.to_thread(_with_chunks, ready, document, self._settings.ingest.chunk_tokens)

    async def store(self, ready: PreparedFile, *, within: WithinTransaction | None = None) -> FileOutcome:
        """Store what was read, in place of what was there of the file; `within` is entered in the same transaction."""
        return (await self.store_many([ready], within=within))[0]

    async def store_many(
        self, reads: Sequence[PreparedFile], *, within: WithinTransaction | None = None
    ) -> list[FileOutcome]:
        """Store some files, all or none of them, in less time than one after the other."""
        for read in reads:
            if read.schema is not None:
                # Saving it again changes nothing, so that it does not matter if the rest is interrupted.
                await self._save(read.schema)
        outcomes: dict[int, FileOutcome] = {}
        async with self._store.transaction() as store, within(store) if within else nullcontext():
            # In turns until all have a place: of two that want the same name, the second sees that it is taken.
            while len(outcomes) < len(reads):
                left = [number for number in range(len(reads)) if number not in outcomes]
                outcomes |= await self._store_round(store, {number: reads[number] for number in left})
        return [outcomes[number] for number in range(len(reads))]

    async def _store_round(self, store: Store, reads: Mapping[int, PreparedFile]) -> dict[int, FileOutcome]:
        """Store those of some files that are not in each other's way; one at least."""
        outcomes: dict[int, FileOutcome] = {}
        async with store.executor.connection() as connection:
            shelf = FileStore(connection, store.scope)
            await shelf.lock()
            stored = await shelf.find_by_uri([read.file.uri for read in reads.values()], lock=True)
            there = await shelf.load_chunks([file.id for file in stored.values()])
            works: dict[int, _Work] = {}
            for number, read in _first_of_each_place(reads):
                before = stored.get(read.file.uri)
                outcome = None if before is None else self._settled(before, read.file, read.checksum, read.wish)
                if outcome is None:
                    works[number] = _Work(read, before, there[before.id] if before else StoredChunks())
                else:
                    outcomes[number] = outcome
            places = await shelf.assign_names([work.name_wish for work in works.values()])
            placed = [
                (number, work, place) for (number, work), place in zip(works.items(), places, strict=True) if place
            ]
            await self._write(store, shelf, [(work, place) for _, work, place in placed])
        return outcomes | {number: work.outcome(place) for number, work, place in placed}

    def _settled(self, stored: StoredFile, file: FetchedFile, checksum: str, wish: IngestOptions) -> FileOutcome | None:
        if stored.is_deleted:
            hint = f"It was deleted, and stays so: `rem restore files {stored.id}` brings it back."
            return FileOutcome("deleted", file.uri, stored.name, stored.key, error=hint)
        if (
            stored.checksum != checksum
            or stored.processing_status != ProcessingStatus.COMPLETED
            or not self._is_made(stored, wish)
        ):
            return None
        return FileOutcome("unchanged", file.uri, stored.name, stored.key, chunks=stored.ingest_info.get("chunks", 0))

    def _is_made(self, stored: StoredFile, wish: IngestOptions) -> bool:
        """Whether what is stored was made as it would be now."""
        made = stored.ingest_info
        return (
            made.get("form") in (wish.form, "schema")
            and (made.get("form") != "resource" or made.get("chunker") == self._chunker)
            and (wish.category is None or made.get("category") == wish.category)
            and (wish.tags is None or set(wish.tags) <= set(stored.tags))
        )

    @property
    def _chunker(self) -> str:
        return f"{CHUNKER_VERSION}:{self._settings.ingest.chunk_tokens}"

    async def _save(self, schema: str) -> str:
        if self._save_schema is None:
            raise ToolFailedError("Agents cannot be saved from here: use `rem ingest`, or `rem agents save`.")
        return await self._save_schema(schema)

    async def _write(self, store: Store, shelf: FileStore, placed: Sequence[tuple[_Work, AssignedName]]) -> None:
        """Put files into the place of their older versions, or where none was."""
        surplus: list[UUID] = []
        chunk_rows: list[Resource] = []
        when = utc_now()
        for work, place in placed:
            read = work.read
            work.tags = self._tags(read, work.stored)
            common: dict[str, Any] = {"tags": work.tags}
            if work.category is not None:
                common["category"] = work.category
            written = resolve_written_at(read.file, read.document, when)
            chunk_rows += build_chunk_rows(place, read.file.uri, work.chunks, work.there, written, **common)
            surplus += work.surplus
            if read.entries or work.was_ontology:
                rows = await build_entry_rows(shelf, place, read.file.uri, read.entries, work.tags)
                work.entry_keys = [row.key for row in (await store.upsert_many(rows)).rows]
        await store.upsert_many(chunk_rows)
        await shelf.erase("chunks", surplus)
        await store.upsert_many([self._file_row(work, place) for work, place in placed])

    def _file_row(self, work: _Work, place: AssignedName) -> File:
        read = work.read
        making = {
            "form": read.wish.form,
            "chunker": self._chunker,
            "chunks": work.pieces,
            "category": work.category,
        }
        return File(
            id=place.id,
            name=place.name,
            uri=read.file.uri,
            mime_type=read.document.mime_type if read.document else "application/yaml",
            size_bytes=len(read.file.data),
            checksum=read.checksum,
            processing_status=ProcessingStatus.COMPLETED,
            metadata=_metadata(read, work.stored, making),
            tags=work.tags,
            origin=ORIGIN,
        )

    def _tags(self, ready: PreparedFile, stored: StoredFile | None) -> list[str]:
        given = ready.wish.tags if ready.wish.tags is not None else (stored.tags if stored else ())
        own = extract_tags(ready.document.metadata) if ready.document else []
        return sorted({replace_unstorable(tag) for tag in (*given, *own)})


def _first_of_each_place(reads: Mapping[int, PreparedFile]) -> Iterator[tuple[int, PreparedFile]]:
    """The same place twice in a batch: the second time there is something there."""
    seen: set[str] = set()
    for number, read in reads.items():
        if read.file.uri not in seen:
            seen.add(read.file.uri)
            yield number, read


def compute_checksum(file: FetchedFile) -> str:
    """What tells whether a file is the same as before."""
    return hashlib.sha256(file.data).hexdigest()


def make_failed_outcome(uri: str, name: str, error: Exception) -> FileOutcome:
    """The outcome of a file that could not be taken in; one that is empty needs no mending."""
    if not isinstance(error, RemError):
        logger.opt(exception=error).warning("{} could not be taken in", name)
        return FileOutcome("failed", uri, name, error=f"REM failed to read it: {type(error).__name__}: {error}")
    return FileOutcome("skipped" if isinstance(error, FileEmptyError) else "failed", uri, name, error=str(error))


def _with_chunks(ready: PreparedFile, document: ParsedDocument, max_tokens: int) -> PreparedFile:
    return replace(ready, document=document, chunks=chunk_document(document, max_tokens))


def _with_entries(ready: PreparedFile, document: ParsedDocument) -> PreparedFile:
    return replace(
        ready, document=document, entries=parse_openapi(ready.file, document) or [parse_wiki_page(ready.file, document)]
    )


def _metadata(ready: PreparedFile, stored: StoredFile | None, making: dict[str, Any]) -> dict[str, Any]:
    """What is known of a file. What others wrote there stays."""
    others = {key: value for key, value in (stored.metadata if stored else {}).items() if key not in _OWN_METADATA}
    own: dict[str, Any] = {"ingest": {key: value for key, value in making.items() if value is not None}}
    if ready.document is not None:
        headings = dict.fromkeys(chunk.heading_path[-1] for chunk in ready.chunks if chunk.heading_path)
        own["title"] = ready.document.title
        own["headings"] = list(headings)[:_MOST_HEADINGS] if ready.document.format == "markdown" else None
        own["document"] = ready.document.metadata
    return {**others, **{key: to_json_value(value) for key, value in own.items() if value}}
