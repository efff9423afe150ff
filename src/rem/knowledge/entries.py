"""Knowledge entries: rows of `ontologies` that are loaded from a wiki page or an API description (`openapi.py`)."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rem.ingest.chunks import find_section_starts
from rem.ingest.file_store import ORIGIN, AssignedName, clean_labels
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.markdown import find_links, is_page, resolve_path
from rem.models import Edge, Ontology
from rem.text import clean_text

if TYPE_CHECKING:
    from uuid import UUID

    from rem.ingest.file_store import FileStore


MAX_TAG_CHARS = 255


@dataclass(frozen=True, slots=True)
class EntryLink:
    """An edge to another entry."""

    rel_type: str
    label: str
    """The `id` of an entry of the same file, or the key or name of any other entry."""
    is_same_file: bool = False


@dataclass(frozen=True, slots=True)
class KnowledgeEntry:
    """One page, operation or schema that a file describes."""

    id: str
    """Identifies the entry within its file."""
    names: tuple[str, ...]
    """Possible names, the preferred one first."""
    content: str
    links: tuple[EntryLink, ...] = ()
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _NamedEntry:
    entry: KnowledgeEntry
    name: str
    key: str


async def build_entry_rows(
    file_store: FileStore,
    assigned: AssignedName,
    uri: str,
    entries: Sequence[KnowledgeEntry],
    tags: Sequence[str],
) -> list[Ontology]:
    """Return the rows of a file's entries under free names, and erase the entries that the file no longer has.

    Entries that their owner deleted are left out.
    """
    stored = await file_store.load_entries(assigned.id)
    named_entries = await _assign_entry_names(file_store, assigned.id, entries)
    keys = {named.entry.id: named.key for named in named_entries}
    rows = []
    for named in named_entries:
        entry_id, is_deleted = stored.pop(named.key, (None, False))
        if not is_deleted:
            rows.append(_build_row(assigned, uri, named, keys, entry_id, tags))
    await file_store.erase("entries", [entry_id for entry_id, is_deleted in stored.values() if not is_deleted])
    return rows


async def _assign_entry_names(
    file_store: FileStore, file_id: UUID, entries: Sequence[KnowledgeEntry]
) -> list[_NamedEntry]:
    """Return each entry with its first free name. An entry without a free name is left out."""
    names = [name for entry in entries for name in entry.names]
    checked = dict(zip(names, await file_store.check_entry_keys(names, file_id), strict=True))
    used_keys: set[str] = set()
    named_entries = []
    for entry in entries:
        for name in entry.names:
            key, is_taken = checked[name]
            if key and not is_taken and key not in used_keys:
                used_keys.add(key)
                named_entries.append(_NamedEntry(entry, name, key))
                break
    return named_entries


def _build_row(
    assigned: AssignedName,
    uri: str,
    named: _NamedEntry,
    keys: dict[str, str],
    entry_id: UUID | None,
    tags: Sequence[str],
) -> Ontology:
    entry = named.entry
    fields: dict[str, Any] = {} if entry_id is None else {"id": entry_id}
    return Ontology(
        name=named.name,
        uri=uri,
        content=clean_text(entry.content),
        extracted_data={**entry.data, **({"aliases": list(entry.aliases)} if entry.aliases else {})},
        file_id=assigned.id,
        origin=ORIGIN,
        sources=[assigned.key],
        tags=sorted({*entry.tags, *tags}),
        graph_edges=list(_build_edges(assigned, entry, keys)),
        **fields,
    )


def _build_edges(assigned: AssignedName, entry: KnowledgeEntry, keys: dict[str, str]) -> Iterable[Edge]:
    yield Edge(dst=assigned.key, rel_type="part_of", origin=ORIGIN, properties={"dst_entity_type": "files"})
    seen = set()
    for link in entry.links:
        dst = keys.get(link.label) if link.is_same_file else link.label
        if dst and (link.rel_type, dst) not in seen:
            seen.add((link.rel_type, dst))
            yield Edge(dst=dst, rel_type=link.rel_type, origin=ORIGIN, properties={"dst_entity_type": "ontologies"})


def parse_wiki_page(file: FetchedFile, document: ParsedDocument) -> KnowledgeEntry:
    """Return the entry for a page, named by its title or, without one, by its file name."""
    stem = posixpath.splitext(posixpath.basename(file.name))[0]
    title = document.title or _first_heading(document) or stem
    uri_hash = hashlib.sha256(file.uri.encode(errors="surrogatepass")).hexdigest()
    names = tuple(clean_labels([title, f"{title} ({file.name})", f"{title} {uri_hash[:8]}", uri_hash]))
    path = posixpath.splitext(file.name)[0]
    links = _find_links(file, document.text) if document.format == "markdown" else ()
    return KnowledgeEntry(
        id=file.uri,
        names=names,
        content=document.text,
        links=tuple(EntryLink("links_to", label) for label in clean_labels(links)),
        aliases=tuple(alias for alias in clean_labels([file.name, path, stem]) if alias != names[0]),
    )


def _first_heading(document: ParsedDocument) -> str | None:
    if document.format != "markdown":
        return None
    return next((section.title for section in find_section_starts(document) if section.level == 1), None)


def _find_links(file: FetchedFile, text: str) -> Iterator[str]:
    """Yield the link targets of a page: the names in `[[…]]`, and the paths of other pages of the ingested folder."""
    for link in find_links(text):
        if not link.is_path:
            yield link.target
        elif is_page(link.target) and (path := resolve_path(file.name, link.target)):
            yield path


def extract_tags(metadata: dict[str, Any]) -> list[str]:
    """Return the tags in the front matter of a page, at most 255 characters each."""
    front_matter = metadata.get("front_matter")
    tags = (front_matter if isinstance(front_matter, dict) else metadata).get("tags", [])
    if isinstance(tags, str):
        tags = re.split(r"[,\s]+", tags)
    names = [str(tag).strip().lstrip("#") for tag in tags] if isinstance(tags, list) else []
    return [name[:MAX_TAG_CHARS] for name in names if name]
