"""FileWrite: what is to be stored of one file, and the rows that it becomes in `files` and `resources`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

from rem.ingest.chunks import Chunk
from rem.ingest.dates import find_written_at, resolve_written_at
from rem.ingest.file_store import ORIGIN, AssignedName, NameRequest, StoredChunks, StoredFile, propose_names
from rem.ingest.models import FileOutcome, FileStatus, shorten_run_id
from rem.knowledge.entries import extract_tags
from rem.knowledge.records import MAX_RECORDS, build_record_rows
from rem.models import Edge, File, Record, Resource
from rem.models.field_types import shorten_json
from rem.models.file import ProcessingStatus
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.encryption.sealed_values import Sealer
    from rem.ingest.prepare import PreparedFile

MAX_HEADINGS = 200
"""Headings listed in the metadata of a file."""
RECORDS_LIMIT_NOTE = (
    f"At most its first {MAX_RECORDS:,} rows of tables and lists are stored as records. All of its text is found; "
    "split the file to have its other rows as records, too."
)
OWN_METADATA_KEYS = frozenset({"title", "aliases", "headings", "written_at", "document", "ingest", "error", "wanted"})


class NumberedChunk(NamedTuple):
    """A chunk with the number that it is stored under."""

    number: int
    chunk: Chunk
    digest: str
    """MD5 of the text, or a keyed hash if texts are encrypted."""


@dataclass
class FileWrite:
    """A prepared file together with its stored version, if there is one."""

    prepared: PreparedFile
    stored: StoredFile | None
    stored_chunks: StoredChunks
    sealer: Sealer | None
    entry_keys: Sequence[str] = ()
    """The keys of its knowledge entries, when they are stored."""
    _new_id: UUID = field(default_factory=uuid4)

    @property
    def file_id(self) -> UUID:
        return self._new_id if self.stored is None else self.stored.id

    @property
    def name_request(self) -> NameRequest:
        """The request for a name. A stored file keeps its name unless the name is no longer free."""
        names = [*([self.stored.name] if self.stored else []), *propose_names(self.prepared.file)]
        return NameRequest(self.file_id, names, self.chunks[-1].number if self.chunks else 0)

    @cached_property
    def chunks(self) -> Sequence[NumberedChunk]:
        return number_chunks(self.prepared.chunks, self.stored_chunks, self.sealer)

    @property
    def obsolete_chunk_ids(self) -> list[UUID]:
        """The stored chunks that the file no longer has."""
        kept = {chunk.number for chunk in self.chunks}
        return [chunk_id for number, (chunk_id, _) in self.stored_chunks.live.items() if number not in kept]

    @property
    def is_new(self) -> bool:
        return self.stored is None or self.stored.checksum is None

    @property
    def has_entries(self) -> bool:
        """Whether the file has knowledge entries now, or had some."""
        return bool(self.prepared.entries) or self._stored_info.get("form") == "ontology"

    @property
    def tags(self) -> list[str]:
        """The given tags, or those already stored, together with the tags in the front matter."""
        given = self.prepared.options.tags
        if given is None:
            given = tuple(self.stored.tags) if self.stored else ()
        own = extract_tags(self.prepared.document.metadata) if self.prepared.document else []
        return sorted({clean_text(tag) for tag in (*given, *own)})

    @property
    def category(self) -> str | None:
        return self.prepared.options.category or self._stored_info.get("category")

    @property
    def _stored_info(self) -> Mapping[str, Any]:
        return self.stored.ingest_info if self.stored else {}

    @property
    def _row_count(self) -> int:
        return len(self.chunks) + len(self.entry_keys)

    def make_outcome(self, assigned: AssignedName, run_id: UUID | None) -> FileOutcome:
        """Return the outcome of the file when its rows are stored."""
        status: FileStatus = "added" if self.is_new or (self.stored and self.stored.is_removed) else "changed"
        return FileOutcome(
            status,
            self.prepared.file.uri,
            assigned.name,
            assigned.key,
            chunks=self._row_count,
            keys=(*(assigned.chunk_keys[chunk.number - 1] for chunk in self.chunks), *self.entry_keys),
            run=shorten_run_id(run_id) if run_id else None,
            masked=self.prepared.masked,
            note=None if self.prepared.records.is_complete else RECORDS_LIMIT_NOTE,
        )

    def build_chunk_rows(self, assigned: AssignedName, now: datetime) -> list[Resource]:
        """Return one row for each chunk.

        Chunks that are stored already keep their ids. Those with unchanged text also keep their timestamps.
        """
        keys = [assigned.chunk_keys[chunk.number - 1] for chunk in self.chunks]
        written_at = resolve_written_at(self.prepared.file, self.prepared.document, now)
        common: dict[str, Any] = {"tags": self.tags}
        if self.category is not None:
            common["category"] = self.category
        return [
            Resource(
                name=f"{assigned.name}#{numbered.number}",
                uri=self.prepared.file.uri,
                ordinal=numbered.number,
                content=numbered.chunk.text,
                metadata=_build_chunk_metadata(assigned, numbered.chunk),
                graph_edges=_build_edges(assigned, keys, position),
                origin=ORIGIN,
                sources=[assigned.key],
                **_id_and_timestamp(numbered, self.stored_chunks, written_at),
                **common,
            )
            for position, numbered in enumerate(self.chunks)
        ]

    def build_record_rows(self, assigned: AssignedName, chunk_ids: Iterator[UUID]) -> list[Record]:
        """Return the rows for its tables and lists. Takes the ids of its stored chunks from `chunk_ids`."""
        places = [(numbered.chunk.start, numbered.chunk.end, next(chunk_ids)) for numbered in self.chunks]
        found = self.prepared.records.records
        return build_record_rows(found, places, assigned.id, self.sealer, tags=self.tags, sources=[assigned.key])

    def build_file_row(self, assigned: AssignedName) -> File:
        """Return the row of the file itself."""
        prepared = self.prepared
        return File(
            id=assigned.id,
            name=assigned.name,
            uri=prepared.file.uri,
            mime_type=prepared.document.mime_type if prepared.document else "application/yaml",
            size_bytes=len(prepared.file.data),
            checksum=prepared.file.checksum,
            processing_status=ProcessingStatus.COMPLETED,
            metadata=self._build_file_metadata(),
            tags=self.tags,
            graph_edges=list(prepared.links),
            origin=ORIGIN,
        )

    def _build_file_metadata(self) -> dict[str, Any]:
        """Return the metadata of the file row. Keys that others have written are kept."""
        prepared, stored = self.prepared, self.stored.metadata if self.stored else {}
        ingest_info = {
            "form": prepared.options.form,
            "chunker": prepared.chunker,
            "chunks": self._row_count,
            "category": self.category,
        }
        own: dict[str, Any] = {"ingest": {key: value for key, value in ingest_info.items() if value is not None}}
        if prepared.document is not None:
            headings = dict.fromkeys(chunk.heading_path[-1] for chunk in prepared.chunks if chunk.heading_path)
            own["title"] = prepared.document.title
            own["aliases"] = prepared.aliases
            own["written_at"] = find_written_at(prepared.file, prepared.document)
            own["headings"] = list(headings)[:MAX_HEADINGS] if prepared.document.format == "markdown" else None
            own["document"] = prepared.document.metadata
        foreign = {key: value for key, value in stored.items() if key not in OWN_METADATA_KEYS}
        return {**foreign, **{key: shorten_json(value) for key, value in own.items() if value}}


def number_chunks(chunks: Sequence[Chunk], stored: StoredChunks, sealer: Sealer | None = None) -> list[NumberedChunk]:
    """Return the chunks to store, numbered from 1.

    Chunks whose text the owner deleted are left out, even if they have moved. The numbers of deleted chunks are not
    used again, because their keys stay deleted.
    """
    deleted_digests = set(stored.deleted.values())
    numbered: list[NumberedChunk] = []
    number = 0
    for chunk in chunks:
        digest = digest_chunk(chunk.text, sealer)
        if digest in deleted_digests:
            # If the deleted chunk is still at its place, the chunks after it keep their numbers.
            number += stored.deleted.get(number + 1) == digest
            continue
        number += 1
        while number in stored.deleted:
            number += 1
        numbered.append(NumberedChunk(number, chunk, digest))
    return numbered


def digest_chunk(text: str, sealer: Sealer | None) -> str:
    """Return the digest that the database has for a text (`rem_text_digest`)."""
    if sealer is not None and sealer.is_sealing:
        return sealer.digest(text)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _id_and_timestamp(chunk: NumberedChunk, stored: StoredChunks, written_at: datetime) -> dict[str, Any]:
    if chunk.number not in stored.live:
        return {"timestamp": written_at}
    chunk_id, digest = stored.live[chunk.number]
    return {"id": chunk_id} if digest == chunk.digest else {"id": chunk_id, "timestamp": written_at}


def _build_chunk_metadata(assigned: AssignedName, chunk: Chunk) -> dict[str, Any]:
    return {
        "file_id": str(assigned.id),
        "file": assigned.key,
        "heading_path": list(chunk.heading_path),
        "start": chunk.start,
        "end": chunk.end,
        **chunk.metadata,
    }


def _build_edges(assigned: AssignedName, keys: Sequence[str], position: int) -> list[Edge]:
    edges = [_edge(assigned.key, "part_of", "files")]
    if position > 0:
        edges.append(_edge(keys[position - 1], "previous_part", "resources"))
    if position + 1 < len(keys):
        edges.append(_edge(keys[position + 1], "next_part", "resources"))
    return edges


def _edge(dst: str, rel_type: str, table: str) -> Edge:
    return Edge(dst=dst, rel_type=rel_type, origin=ORIGIN, properties={"dst_entity_type": table})
