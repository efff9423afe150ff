"""Entry: what of the knowledge base is loaded from a page or an API's description, as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rem.ingest.file_store import ORIGIN, AssignedName
from rem.ingest.json_values import replace_unstorable
from rem.models import Edge, Ontology
from rem.models.field_types import MAX_KEY_BYTES

if TYPE_CHECKING:
    from uuid import UUID

    from rem.ingest.file_store import FileStore

_TABLE = "ontologies"


@dataclass(frozen=True, slots=True)
class EntryLink:
    """An edge to another entry of the same file, or to whatever answers to a label."""

    rel_type: str
    label: str
    is_inside: bool = False
    """Whether the label is the `id` of an entry of the same file."""


@dataclass(frozen=True, slots=True)
class KnowledgeEntry:
    """One thing that a file describes."""

    id: str
    """What other entries of the file refer to it by."""
    names: tuple[str, ...]
    """What it may be called, the best first."""
    content: str
    links: tuple[EntryLink, ...] = ()
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Named:
    entry: KnowledgeEntry
    name: str
    key: str


def clean_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those of some labels that can be keys."""
    clean = (" ".join(replace_unstorable(name).split()) for name in names)
    fitting = (name for name in clean if any(map(str.isalnum, name)) and len(name.encode()) <= MAX_KEY_BYTES - 100)
    return tuple(dict.fromkeys(fitting))


async def build_entry_rows(
    shelf: FileStore, place: AssignedName, uri: str, entries: Sequence[KnowledgeEntry], tags: Sequence[str]
) -> list[Ontology]:
    """The rows of a file's entries, under names that nothing else has. What it no longer describes is erased.

    Those that their owner deleted are left out.
    """
    stored = await shelf.load_entries(place.id)
    named = await _named(shelf, place.id, entries)
    keys = {one.entry.id: one.key for one in named}
    rows = []
    for one in named:
        entry_id, is_deleted = stored.pop(one.key, (None, False))
        if not is_deleted:
            rows.append(_row(place, uri, one, keys, entry_id, tags))
    await shelf.erase("entries", [entry_id for entry_id, is_deleted in stored.values() if not is_deleted])
    return rows


async def _named(shelf: FileStore, file_id: UUID, entries: Sequence[KnowledgeEntry]) -> list[_Named]:
    names = [name for entry in entries for name in entry.names]
    known = dict(zip(names, await shelf.check_entry_keys(names, file_id), strict=True))
    used: set[str] = set()
    named = []
    for entry in entries:
        for name in entry.names:
            key, is_taken = known[name]
            if key and not is_taken and key not in used:
                used.add(key)
                named.append(_Named(entry, name, key))
                break
    return named


def _row(
    place: AssignedName, uri: str, one: _Named, keys: dict[str, str], entry_id: UUID | None, tags: Sequence[str]
) -> Ontology:
    data = {**one.entry.data, **({"aliases": list(one.entry.aliases)} if one.entry.aliases else {})}
    fields: dict[str, Any] = {} if entry_id is None else {"id": entry_id}
    return Ontology(
        name=one.name,
        uri=uri,
        content=replace_unstorable(one.entry.content),
        extracted_data=data,
        file_id=place.id,
        origin=ORIGIN,
        sources=[place.key],
        tags=sorted({*one.entry.tags, *tags}),
        graph_edges=list(_edges(place, one.entry, keys)),
        **fields,
    )


def _edges(place: AssignedName, entry: KnowledgeEntry, keys: dict[str, str]) -> Iterable[Edge]:
    yield Edge(dst=place.key, rel_type="part_of", origin=ORIGIN, properties={"dst_entity_type": "files"})
    seen = set()
    for link in entry.links:
        dst = keys.get(link.label) if link.is_inside else link.label
        if dst and (link.rel_type, dst) not in seen:
            seen.add((link.rel_type, dst))
            yield Edge(dst=dst, rel_type=link.rel_type, origin=ORIGIN, properties={"dst_entity_type": _TABLE})
