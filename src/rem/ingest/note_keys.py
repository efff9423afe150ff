"""Find the names by which LOOKUP finds a file and the sections of a note, and the edges to the notes it links to."""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from rem.ingest.chunking.chunker import Chunk
from rem.ingest.chunking.headings import find_section_starts
from rem.ingest.file_store import ORIGIN, clean_labels
from rem.ingest.links import NoteLink, find_links, resolve_uri
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.mime import MARKDOWN
from rem.models import Edge
from rem.rules import word_set
from rem.text import clean_text, collapse_spaces

MAX_ALIASES = 50
MAX_LINKS = 2000
MAX_NAME_WORDS = 4
"""A longer title is not just the name of a person."""
_MARKUP = re.compile(r"[*`]+|\[\[|\]\]")


def find_title(document: ParsedDocument) -> str | None:
    """Return the title in the front matter or, in Markdown, the first heading of level 1."""
    if document.mime_type != MARKDOWN:
        return document.title
    title = _get_front_matter(document.metadata).get("title")
    if isinstance(title, str | int | float) and str(title).strip():
        return collapse_spaces(clean_text(str(title)))
    first = next((section.title for section in find_section_starts(document) if section.level == 1), None)
    return _clean_heading(first)


def list_aliases(file: FetchedFile, document: ParsedDocument, title: str | None) -> list[str]:
    """Return the names of a file besides its path: its title, the aliases in its front matter, and its file name."""
    base = posixpath.basename(file.name)
    names = [title, _strip_honorific(title), *_read_front_matter_aliases(document.metadata)]
    if document.format in ("markdown", "text"):
        path = posixpath.splitext(file.name)[0]
        # A wiki link has the path below the folder of all notes, without that folder's own name.
        names += [posixpath.basename(path), path, path.partition("/")[2]]
    names.append(base)
    labels = clean_labels(name for name in names if name)
    return [label for label in labels if label != file.name][:MAX_ALIASES]


def add_note_names(
    file: FetchedFile, document: ParsedDocument, title: str | None, chunks: Sequence[Chunk]
) -> list[Chunk]:
    """Return the chunks of a note with its title, the headings that they contain and the keys of those sections."""
    if document.mime_type != MARKDOWN or not chunks:
        return list(chunks)
    common = {"title": title} if title else {}
    stem = posixpath.splitext(posixpath.basename(file.name))[0]
    starts = [chunk.start for chunk in chunks]
    headings: dict[int, list[str]] = {}
    for section in find_section_starts(document):
        heading = _clean_heading(section.title)
        if heading and heading != title:
            headings.setdefault(max(0, bisect_right(starts, section.start) - 1), []).append(heading)
    sections = {place: _section_metadata(found, [title or stem, stem]) for place, found in headings.items()}
    if first_name := _find_first_name(title):
        # The first name of the person whom a note is about is a weak key, like a heading: another row can have it.
        sections[0] = {**sections.get(0, {}), "headings": [first_name, *sections.get(0, {}).get("headings", [])]}
    return [
        replace(chunk, metadata={**chunk.metadata, **common, **sections.get(place, {})})
        for place, chunk in enumerate(chunks)
    ]


def build_link_edges(file: FetchedFile, document: ParsedDocument) -> list[Edge]:
    """Return a `links_to` edge for each note or file that a Markdown note links to."""
    if document.mime_type != MARKDOWN:
        return []
    edges: dict[str, Edge] = {}
    # A note may have the same link very often.
    for link in dict.fromkeys(find_links(document.text)):
        label = resolve_uri(file.uri, link.target) if link.is_path else link.target
        for dst in clean_labels([label or ""]):
            if dst not in edges:
                edges[dst] = _make_link_edge(dst, link)
        if len(edges) >= MAX_LINKS:
            break
    return list(edges.values())


def _make_link_edge(dst: str, link: NoteLink) -> Edge:
    properties: dict[str, Any] = {"dst_entity_type": "files"} if link.is_path else {}
    if link.heading:
        properties["heading"] = clean_text(link.heading)
    return Edge(dst=dst, rel_type="links_to", origin=ORIGIN, properties=properties)


def _read_front_matter_aliases(metadata: dict[str, Any]) -> list[str]:
    """Return the aliases in the front matter. A text is split at commas, the items of a list are not."""
    front_matter = _get_front_matter(metadata)
    aliases: list[str] = []
    for name in ("aliases", "alias"):
        value = front_matter.get(name)
        values = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
        aliases += [str(item) for item in values if isinstance(item, str | int | float)]
    return aliases


def _get_front_matter(metadata: dict[str, Any]) -> dict[str, Any]:
    front_matter = metadata.get("front_matter")
    return front_matter if isinstance(front_matter, dict) else {}


def _clean_heading(title: str | None) -> str | None:
    return collapse_spaces(clean_text(_MARKUP.sub("", title))) or None if title else None


def _strip_honorific(title: str | None) -> str | None:
    """Return the title "Dr. Petra Novak" as "Petra Novak"; None if it has no honorific."""
    first, _, rest = (title or "").partition(" ")
    return rest.strip() or None if first.lower().rstrip(".") in _words("honorifics") else None


def _find_first_name(title: str | None) -> str | None:
    """Return the first name if a title is the full name of a person."""
    words = (_strip_honorific(title) or title or "").split()
    has_capitals = all(word[0].isupper() or word in _words("particles") for word in words)
    is_name = 1 < len(words) <= MAX_NAME_WORDS and has_capitals
    return words[0] if is_name and words[0].lower() in _words("given_names") else None


@cache
def _words(name: str) -> frozenset[str]:
    return word_set(f"names.{name}")


def _section_metadata(headings: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    keys = (f"{name}#{heading}" for name in dict.fromkeys(names) for heading in headings)
    return {"headings": clean_labels(headings), "section_keys": clean_labels(keys)}
