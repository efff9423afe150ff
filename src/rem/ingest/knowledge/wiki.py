"""Turn a wiki page into a knowledge entry with edges to the pages that it links to."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from rem.ingest.chunking.headings import find_section_starts
from rem.ingest.file_store import clean_labels
from rem.ingest.knowledge.entries import EntryLink, KnowledgeEntry
from rem.ingest.links import find_links, is_page, resolve_path
from rem.ingest.models import FetchedFile, ParsedDocument

MAX_TAG_CHARS = 255


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
