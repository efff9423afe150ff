"""Build the rows of `resources` from the chunks of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rem.ingest.chunking.chunker import Chunk
from rem.ingest.file_store import ORIGIN, AssignedName, StoredChunks
from rem.models import Edge, Resource

if TYPE_CHECKING:
    from rem.encryption.sealed_values import Sealer


@dataclass(frozen=True, slots=True)
class NumberedChunk:
    """A chunk with the number that it is stored under."""

    number: int
    chunk: Chunk
    digest: str
    """MD5 of the text, or a keyed hash if texts are encrypted."""


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


def build_chunk_rows(
    assigned: AssignedName,
    uri: str,
    chunks: Sequence[NumberedChunk],
    stored: StoredChunks,
    written_at: datetime,
    **common: Any,
) -> list[Resource]:
    """Return one row for each chunk, with `common` as further fields.

    Chunks that are stored already keep their ids. Those with unchanged text also keep their timestamps.
    """
    keys = [assigned.chunk_keys[chunk.number - 1] for chunk in chunks]
    return [
        Resource(
            name=f"{assigned.name}#{numbered.number}",
            uri=uri,
            ordinal=numbered.number,
            content=numbered.chunk.text,
            metadata=_build_metadata(assigned, numbered.chunk),
            graph_edges=_build_edges(assigned, keys, position),
            origin=ORIGIN,
            sources=[assigned.key],
            **_id_and_timestamp(numbered, stored, written_at),
            **common,
        )
        for position, numbered in enumerate(chunks)
    ]


def _id_and_timestamp(chunk: NumberedChunk, stored: StoredChunks, written_at: datetime) -> dict[str, Any]:
    if chunk.number not in stored.live:
        return {"timestamp": written_at}
    chunk_id, digest = stored.live[chunk.number]
    return {"id": chunk_id} if digest == chunk.digest else {"id": chunk_id, "timestamp": written_at}


def _build_metadata(assigned: AssignedName, chunk: Chunk) -> dict[str, Any]:
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
