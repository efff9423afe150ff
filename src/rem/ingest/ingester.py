"""Ingester: reads files and stores each of them completely, or not at all, in one owner's memory."""

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
from rem.ingest.dates import find_written_at, resolve_written_at
from rem.ingest.file_store import (
    ORIGIN,
    AssignedName,
    FileStore,
    NameRequest,
    StoredChunks,
    StoredFile,
    current_form,
    digest_address,
    digest_text,
    propose_names,
)
from rem.ingest.json_values import to_json_value
from rem.ingest.knowledge.agents import extract_agent_yaml
from rem.ingest.knowledge.entries import KnowledgeEntry, build_entry_rows
from rem.ingest.knowledge.openapi import parse_openapi
from rem.ingest.knowledge.wiki import extract_tags, parse_wiki_page
from rem.ingest.models import (
    FetchedFile,
    FileOutcome,
    FileStatus,
    Form,
    IngestOptions,
    ParsedDocument,
    shorten_run_id,
)
from rem.ingest.note_keys import add_note_names, build_link_edges, find_title, list_aliases
from rem.models import Edge, File, Resource
from rem.models.field_types import utc_now
from rem.models.file import ProcessingStatus
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.encryption.sealed_values import Sealer
    from rem.settings import Settings

SaveAgent: TypeAlias = Callable[[str], Awaitable[str]]
"""Stores the YAML definition of an agent and returns the agent's name."""
WithinTransaction: TypeAlias = Callable[["Store"], AbstractAsyncContextManager[None]]
"""Opens a context in the transaction that stores a file. What it does is committed or rolled back with the file."""
MAX_HEADINGS = 200
"""Headings listed in the metadata of a file."""
OWN_METADATA_KEYS = frozenset({"title", "aliases", "headings", "written_at", "document", "ingest", "error", "wanted"})


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file that was read and cut, ready to be stored."""

    file: FetchedFile
    checksum: str
    options: IngestOptions
    document: ParsedDocument | None = None
    """None for the definition of an agent."""
    chunks: Sequence[Chunk] = ()
    entries: Sequence[KnowledgeEntry] = ()
    aliases: Sequence[str] = ()
    """Names of the file besides its path."""
    links: Sequence[Edge] = ()
    """Edges to the files and notes that the text links to."""
    agent_yaml: str | None = None
    """The definition of an agent, if the file is one."""
    is_known: bool = False
    """An older version of the file is stored."""
    masked: tuple[str, ...] = ()
    """Kinds of secrets that were masked in its text."""


@dataclass(slots=True)
class _FileWrite:
    """A prepared file together with its stored version, if there is one."""

    prepared: PreparedFile
    stored: StoredFile | None
    stored_chunks: StoredChunks
    sealer: Sealer | None
    chunks: Sequence[NumberedChunk] = ()
    file_id: UUID = field(default_factory=uuid4)
    tags: list[str] = field(default_factory=list)
    entry_keys: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chunks = number_chunks(self.prepared.chunks, self.stored_chunks, self.sealer)
        if self.stored is not None:
            self.file_id = self.stored.id

    @property
    def name_request(self) -> NameRequest:
        """The request for a name. A stored file keeps its name unless the name is no longer free."""
        names = [*([self.stored.name] if self.stored else []), *propose_names(self.prepared.file)]
        return NameRequest(self.file_id, names, self.chunks[-1].number if self.chunks else 0)

    @property
    def category(self) -> str | None:
        return self.prepared.options.category or (self.stored.ingest_info.get("category") if self.stored else None)

    @property
    def was_ontology(self) -> bool:
        return self.stored is not None and self.stored.ingest_info.get("form") == "ontology"

    @property
    def obsolete_chunk_ids(self) -> list[UUID]:
        """The stored chunks that the file no longer has."""
        kept = {chunk.number for chunk in self.chunks}
        return [chunk_id for number, (chunk_id, _) in self.stored_chunks.live.items() if number not in kept]

    @property
    def row_count(self) -> int:
        return len(self.chunks) + len(self.entry_keys)

    @property
    def is_new(self) -> bool:
        return self.stored is None or self.stored.checksum is None

    def make_outcome(self, assigned: AssignedName, run_id: UUID | None) -> FileOutcome:
        keys = (*(assigned.chunk_keys[chunk.number - 1] for chunk in self.chunks), *self.entry_keys)
        status: FileStatus = "added" if self.is_new or (self.stored and self.stored.is_removed) else "changed"
        return FileOutcome(
            status,
            self.prepared.file.uri,
            assigned.name,
            assigned.key,
            chunks=self.row_count,
            keys=keys,
            run=shorten_run_id(run_id) if run_id else None,
            masked=self.prepared.masked,
        )


class Ingester:
    """Ingests files for the owner of a store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        save_agent: SaveAgent | None = None,
        run_id: UUID | None = None,
    ) -> None:
        """Create an ingester. With `run_id`, the files are recorded as one run, which can be undone."""
        self._store = store
        self._settings = settings
        self._save_agent = save_agent
        self._run_id = run_id

    @property
    def target_store(self) -> Store:
        """The store that the files are written to."""
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
        """Read and store a file, and return its outcome.

        `document` is the text of the file, if it is known already. Without `form` a known file keeps its form, and a
        new one becomes chunks. A file that cannot be read stores nothing: the outcome has the reason. Only a
        DatabaseError is raised, because it would affect all other files, too.
        """
        options = IngestOptions(category, None if tags is None else tuple(tags), form)
        try:
            prepared = await self.prepare_if_changed(file, options, document)
            return prepared if isinstance(prepared, FileOutcome) else await self.store(prepared)
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001  # one bad file must not stop the others, whatever it raises
            return make_failed_outcome(file.uri, file.name, error)

    async def prepare_if_changed(
        self, file: FetchedFile, options: IngestOptions, document: ParsedDocument | None = None
    ) -> PreparedFile | FileOutcome:
        """Prepare a file for storing, or return its outcome if it is stored unchanged or was deleted by its owner."""
        async with self._store.executor.connection() as connection:
            stored = (await FileStore(connection, self._store.scope).find_by_uri([file.uri])).get(file.uri)
        if stored is not None:
            options = replace(options, form=options.form or current_form(stored.metadata))
            outcome = self._check_existing(stored, file, compute_checksum(file), options)
            if outcome is not None:
                return outcome
        prepared = await self.prepare(file, options, document)
        if not options.with_forgotten and (forgotten := await self._find_forgotten(prepared)):
            chunks = [chunk for chunk in prepared.chunks if digest_text(chunk.text, self._sealer) not in forgotten]
            if not chunks or (stored is None and digest_address(file.uri) in forgotten):
                return _make_forgotten_outcome(file)
            prepared = replace(prepared, chunks=chunks)
        is_known = stored is not None and stored.checksum is not None and not stored.is_removed
        return replace(prepared, is_known=is_known)

    @property
    def _sealer(self) -> Sealer | None:
        return self._store.executor.sealer

    async def _find_forgotten(self, prepared: PreparedFile) -> set[bytes]:
        async with self._store.executor.connection() as connection:
            return await FileStore(connection, self._store.scope).find_forgotten(_list_digests(prepared, self._sealer))

    async def prepare(
        self, file: FetchedFile, options: IngestOptions, document: ParsedDocument | None = None
    ) -> PreparedFile:
        """Read a file and cut it into chunks or entries, without access to the database. The default is chunks."""
        options = replace(options, form=options.form or "resource")
        prepared = PreparedFile(file, compute_checksum(file), options)
        agent_yaml = await asyncio.to_thread(extract_agent_yaml, file) if self._save_agent else None
        if agent_yaml is not None:
            return replace(prepared, options=replace(options, form="schema"), agent_yaml=agent_yaml)
        if document is None:
            from rem.ingest.readers.dispatch import read_file

            document = await read_file(file, self._settings)
        document = replace(document, text=clean_text(document.text))
        prepared, masked = await asyncio.to_thread(self._apply_privacy, prepared, document)
        if options.form == "ontology":
            return await asyncio.to_thread(_add_entries, prepared, masked)
        return await asyncio.to_thread(_add_chunks, prepared, masked, self._settings.ingest.chunk_tokens)

    def _apply_privacy(self, prepared: PreparedFile, document: ParsedDocument) -> tuple[PreparedFile, ParsedDocument]:
        """Mask the whole text: in a chunk, a part of a private key could not be recognised."""
        privacy = self._store.executor.privacy
        masked = replace(
            document,
            text=privacy.mask(document.text, "file"),
            title=None if document.title is None else privacy.mask(document.title, "title"),
            metadata=privacy.mask_value(document.metadata, "file"),
        )
        return replace(prepared, masked=tuple(privacy.list_masked([document.text]))), masked

    async def store(self, prepared: PreparedFile, *, within: WithinTransaction | None = None) -> FileOutcome:
        """Store a prepared file and replace its older version. `within` is entered in the same transaction."""
        return (await self.store_many([prepared], within=within))[0]

    async def store_many(
        self, files: Sequence[PreparedFile], *, within: WithinTransaction | None = None
    ) -> list[FileOutcome]:
        """Store all files or none of them, and return their outcomes in order. Faster than one call per file."""
        for prepared in files:
            if prepared.agent_yaml is not None:
                # Saving an agent twice changes nothing, so it may happen outside of the transaction.
                await self._save_as_agent(prepared.agent_yaml)
        outcomes: dict[int, FileOutcome] = {}
        async with self._store.transaction() as store, within(store) if within else nullcontext():
            # In rounds: of two files with the same URI or name, the second must see the rows of the first.
            while len(outcomes) < len(files):
                remaining = [position for position in range(len(files)) if position not in outcomes]
                outcomes |= await self._store_round(store, {position: files[position] for position in remaining})
        return [outcomes[position] for position in range(len(files))]

    async def remove(self, uris: Sequence[str]) -> list[FileOutcome]:
        """Delete files that are no longer in their folder. They are restored when they are ingested again."""
        async with self._store.transaction() as store, store.executor.connection() as connection:
            file_store = FileStore(connection, store.scope)
            await file_store.lock()
            return [FileOutcome("removed", uri, name, key) for uri, name, key in await file_store.remove(uris)]

    async def _store_round(self, store: Store, files: Mapping[int, PreparedFile]) -> dict[int, FileOutcome]:
        """Store the files that do not conflict with each other, at least one. Return their outcomes by position."""
        outcomes: dict[int, FileOutcome] = {}
        async with store.executor.connection() as connection:
            file_store = FileStore(connection, store.scope)
            await file_store.lock()
            stored_files = await file_store.find_by_uri([prepared.file.uri for prepared in files.values()], lock=True)
            await file_store.restore_removed(stored_files.values())
            stored_chunks = await file_store.load_chunks([stored.id for stored in stored_files.values()])
            writes: dict[int, _FileWrite] = {}
            for position, prepared in _skip_repeated_uris(files):
                stored = stored_files.get(prepared.file.uri)
                outcome = None
                if stored is not None:
                    outcome = self._check_existing(stored, prepared.file, prepared.checksum, prepared.options)
                if outcome is None:
                    writes[position] = _FileWrite(
                        prepared, stored, stored_chunks[stored.id] if stored else StoredChunks(), self._sealer
                    )
                else:
                    outcomes[position] = outcome
            names = await file_store.assign_names([write.name_request for write in writes.values()])
            named = [
                (position, write, assigned)
                for (position, write), assigned in zip(writes.items(), names, strict=True)
                if assigned
            ]
            await self._write_rows(store, file_store, [(write, assigned) for _, write, assigned in named])
            await file_store.clear_forgotten(
                [digest for _, write, _ in named for digest in _list_digests(write.prepared, self._sealer)]
            )
            if self._run_id is not None:
                await file_store.record_run(self._run_id, {write.file_id: write.is_new for _, write, _ in named})
        return outcomes | {position: write.make_outcome(assigned, self._run_id) for position, write, assigned in named}

    def _check_existing(
        self, stored: StoredFile, file: FetchedFile, checksum: str, options: IngestOptions
    ) -> FileOutcome | None:
        """Return the outcome of a file that was deleted or has not changed; None if it has to be stored."""
        if stored.is_removed:
            return None
        if stored.is_deleted:
            hint = f"It was deleted earlier and stays deleted: `rem restore files {stored.id}` restores it."
            return FileOutcome("deleted", file.uri, stored.name, stored.key, error=hint)
        if (
            stored.checksum != checksum
            or stored.processing_status != ProcessingStatus.COMPLETED
            or not self._is_up_to_date(stored, options)
        ):
            return None
        return FileOutcome("unchanged", file.uri, stored.name, stored.key, chunks=stored.ingest_info.get("chunks", 0))

    def _is_up_to_date(self, stored: StoredFile, options: IngestOptions) -> bool:
        """Return whether the stored rows were made with the same options and the same chunker."""
        info = stored.ingest_info
        return (
            info.get("form") in (options.form, "schema")
            and (info.get("form") != "resource" or info.get("chunker") == self._chunker_id)
            and (options.category is None or info.get("category") == options.category)
            and (options.tags is None or set(options.tags) <= set(stored.tags))
        )

    @property
    def _chunker_id(self) -> str:
        return f"{CHUNKER_VERSION}:{self._settings.ingest.chunk_tokens}"

    async def _save_as_agent(self, agent_yaml: str) -> None:
        if self._save_agent is None:
            raise ToolFailedError("Agents cannot be saved here: use `rem ingest` or `rem agents save`.")
        await self._save_agent(agent_yaml)

    async def _write_rows(
        self, store: Store, file_store: FileStore, named: Sequence[tuple[_FileWrite, AssignedName]]
    ) -> None:
        """Write the rows of some files and erase the chunks that they no longer have."""
        obsolete_chunk_ids: list[UUID] = []
        chunk_rows: list[Resource] = []
        now = utc_now()
        for write, assigned in named:
            prepared = write.prepared
            write.tags = _merge_tags(prepared, write.stored)
            common: dict[str, Any] = {"tags": write.tags}
            if write.category is not None:
                common["category"] = write.category
            written_at = resolve_written_at(prepared.file, prepared.document, now)
            chunk_rows += build_chunk_rows(
                assigned, prepared.file.uri, write.chunks, write.stored_chunks, written_at, **common
            )
            obsolete_chunk_ids += write.obsolete_chunk_ids
            if prepared.entries or write.was_ontology:
                rows = await build_entry_rows(file_store, assigned, prepared.file.uri, prepared.entries, write.tags)
                write.entry_keys = [row.key for row in (await store.upsert_many(rows)).rows]
        await store.upsert_many(chunk_rows)
        await file_store.erase("chunks", obsolete_chunk_ids)
        await store.upsert_many([self._build_file_row(write, assigned) for write, assigned in named])

    def _build_file_row(self, write: _FileWrite, assigned: AssignedName) -> File:
        prepared = write.prepared
        ingest_info = {
            "form": prepared.options.form,
            "chunker": self._chunker_id,
            "chunks": write.row_count,
            "category": write.category,
        }
        return File(
            id=assigned.id,
            name=assigned.name,
            uri=prepared.file.uri,
            mime_type=prepared.document.mime_type if prepared.document else "application/yaml",
            size_bytes=len(prepared.file.data),
            checksum=prepared.checksum,
            processing_status=ProcessingStatus.COMPLETED,
            metadata=_build_metadata(prepared, write.stored, ingest_info),
            tags=write.tags,
            graph_edges=list(prepared.links),
            origin=ORIGIN,
        )


def compute_checksum(file: FetchedFile) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(file.data).hexdigest()


def make_preview(prepared: PreparedFile) -> FileOutcome:
    """Return the outcome that storing a prepared file would have."""
    status: FileStatus = "changed" if prepared.is_known else "added"
    rows = len(prepared.chunks) + len(prepared.entries)
    return FileOutcome(status, prepared.file.uri, clean_text(prepared.file.name), chunks=rows)


def make_failed_outcome(uri: str, name: str, error: Exception) -> FileOutcome:
    """Return the outcome for an error: `skipped` for an empty file, `failed` for anything else."""
    if not isinstance(error, RemError):
        logger.opt(exception=error).warning("{} could not be ingested", name)
        return FileOutcome("failed", uri, name, error=f"REM failed to read it: {type(error).__name__}: {error}")
    return FileOutcome("skipped" if isinstance(error, FileEmptyError) else "failed", uri, name, error=str(error))


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


def _add_chunks(prepared: PreparedFile, document: ParsedDocument, max_tokens: int) -> PreparedFile:
    file, title = prepared.file, find_title(document)
    return replace(
        prepared,
        document=document,
        chunks=add_note_names(file, document, title, chunk_document(document, max_tokens)),
        aliases=list_aliases(file, document, title),
        links=build_link_edges(file, document),
    )


def _add_entries(prepared: PreparedFile, document: ParsedDocument) -> PreparedFile:
    entries = parse_openapi(prepared.file, document) or [parse_wiki_page(prepared.file, document)]
    return replace(prepared, document=document, entries=entries)


def _merge_tags(prepared: PreparedFile, stored: StoredFile | None) -> list[str]:
    """Return the given tags, or those already stored, together with the tags in the front matter."""
    given = prepared.options.tags if prepared.options.tags is not None else (stored.tags if stored else ())
    own = extract_tags(prepared.document.metadata) if prepared.document else []
    return sorted({clean_text(tag) for tag in (*given, *own)})


def _build_metadata(
    prepared: PreparedFile, stored: StoredFile | None, ingest_info: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the metadata of a file row. Keys that others have written are kept."""
    foreign = {key: value for key, value in (stored.metadata if stored else {}).items() if key not in OWN_METADATA_KEYS}
    own: dict[str, Any] = {"ingest": {key: value for key, value in ingest_info.items() if value is not None}}
    if prepared.document is not None:
        headings = dict.fromkeys(chunk.heading_path[-1] for chunk in prepared.chunks if chunk.heading_path)
        own["title"] = prepared.document.title
        own["aliases"] = prepared.aliases
        own["written_at"] = find_written_at(prepared.file, prepared.document)
        own["headings"] = list(headings)[:MAX_HEADINGS] if prepared.document.format == "markdown" else None
        own["document"] = prepared.document.metadata
    return {**foreign, **{key: to_json_value(value) for key, value in own.items() if value}}
