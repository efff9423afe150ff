"""From the chunks of a file to the rows that are remembered of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rem.ingest.chunking.chunker import Chunk
from rem.ingest.file_store import ORIGIN, AssignedName, StoredChunks
from rem.models import Edge, Resource


@dataclass(frozen=True, slots=True)
class NumberedChunk:
    """A chunk under the number that it is stored by."""

    number: int
    chunk: Chunk
    digest: str


def number_chunks(chunks: Sequence[Chunk], stored: StoredChunks) -> list[NumberedChunk]:
    """The chunks that are to be stored, from 1.

    What the owner deleted is not stored again, wherever in the file it is now; and its number is not given to another
    text, because a deleted key stays deleted.
    """
    unwanted = set(stored.deleted.values())
    rows: list[NumberedChunk] = []
    number = 0
    for chunk in chunks:
        digest = hashlib.md5(chunk.text.encode(), usedforsecurity=False).hexdigest()
        if digest in unwanted:
            # Those behind it keep their numbers, if the deleted one is where it was.
            number += stored.deleted.get(number + 1) == digest
            continue
        number += 1
        while number in stored.deleted:
            number += 1
        rows.append(NumberedChunk(number, chunk, digest))
    return rows


def build_chunk_rows(
    place: AssignedName, uri: str, chunks: Sequence[NumberedChunk], stored: StoredChunks, when: datetime, **common: Any
) -> list[Resource]:
    """The rows; those that are stored already keep their ids, and those whose text is the same also their time."""
    keys = [place.chunk_keys[chunk.number - 1] for chunk in chunks]
    return [
        Resource(
            name=f"{place.name}#{numbered_chunk.number}",
            uri=uri,
            ordinal=numbered_chunk.number,
            content=numbered_chunk.chunk.text,
            metadata=_metadata(place, numbered_chunk.chunk),
            graph_edges=_edges(place, keys, position),
            origin=ORIGIN,
            sources=[place.key],
            **_identity(numbered_chunk, stored, when),
            **common,
        )
        for position, numbered_chunk in enumerate(chunks)
    ]


def _identity(chunk: NumberedChunk, stored: StoredChunks, when: datetime) -> dict[str, Any]:
    if chunk.number not in stored.live:
        return {"timestamp": when}
    chunk_id, digest = stored.live[chunk.number]
    return {"id": chunk_id} if digest == chunk.digest else {"id": chunk_id, "timestamp": when}


def _metadata(place: AssignedName, chunk: Chunk) -> dict[str, Any]:
    return {
        "file_id": str(place.id),
        "file": place.key,
        "heading_path": list(chunk.heading_path),
        "start": chunk.start,
        "end": chunk.end,
        **chunk.metadata,
    }


def _edges(place: AssignedName, keys: Sequence[str], position: int) -> list[Edge]:
    edges = [_edge(place.key, "part_of", "files")]
    if position > 0:
        edges.append(_edge(keys[position - 1], "previous_part", "resources"))
    if position + 1 < len(keys):
        edges.append(_edge(keys[position + 1], "next_part", "resources"))
    return edges


def _edge(dst: str, rel_type: str, table: str) -> Edge:
    return Edge(dst=dst, rel_type=rel_type, origin=ORIGIN, properties={"dst_entity_type": table})
