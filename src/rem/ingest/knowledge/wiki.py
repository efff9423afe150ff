"""Turn a wiki page into a knowledge entry with edges to the pages that it links to."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from rem.ingest.chunking.headings import find_section_starts
from rem.ingest.knowledge.entries import EntryLink, KnowledgeEntry, clean_names
from rem.ingest.models import FetchedFile, ParsedDocument

MAX_TAG_CHARS = 255
_WIKI_LINK = re.compile(r"!?\[\[([^\[\]|#\n]{1,500})(?:#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_LINK = re.compile(r"(!?)\[[^\[\]\n]{0,500}\]\(\s*<?([^\s()<>]{1,1000})>?[^()\n]{0,200}\)")
_CODE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_PAGE_SUFFIXES = frozenset({"", ".md", ".markdown", ".mdx"})


def parse_wiki_page(file: FetchedFile, document: ParsedDocument) -> KnowledgeEntry:
    """Return the entry for a page, named by its title or, without one, by its file name."""
    stem = posixpath.splitext(posixpath.basename(file.name))[0]
    title = document.title or _first_heading(document) or stem
    uri_hash = hashlib.sha256(file.uri.encode(errors="surrogatepass")).hexdigest()
    names = clean_names([title, f"{title} ({file.name})", f"{title} {uri_hash[:8]}", uri_hash])
    path = posixpath.splitext(file.name)[0]
    links = _find_links(file, document.text) if document.format == "markdown" else ()
    return KnowledgeEntry(
        id=file.uri,
        names=names,
        content=document.text,
        links=tuple(EntryLink("links_to", label) for label in clean_names(links)),
        aliases=tuple(alias for alias in clean_names([file.name, path, stem]) if alias != names[0]),
    )


def _first_heading(document: ParsedDocument) -> str | None:
    if document.format != "markdown":
        return None
    return next((section.title for section in find_section_starts(document) if section.level == 1), None)


def _find_links(file: FetchedFile, text: str) -> Iterator[str]:
    """Yield the link targets of a page: the names in `[[…]]` and the paths of other pages."""
    prose = _CODE.sub(" ", text)
    for match in _WIKI_LINK.finditer(prose):
        yield match[1].strip()
    for match in _LINK.finditer(prose):
        is_image = bool(match[1])
        target = None if is_image else _resolve_page_path(file.name, match[2])
        if target:
            yield target


def _resolve_page_path(name: str, target: str) -> str | None:
    """Return the path of a linked page; None if the link leaves the ingested folder or is not a page."""
    path = unquote(target.partition("#")[0].partition("?")[0])
    if not path or ":" in path or path.startswith("/") or posixpath.splitext(path)[1].lower() not in _PAGE_SUFFIXES:
        return None
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
    return None if resolved.startswith("..") or resolved == "." else resolved


def extract_tags(metadata: dict[str, Any]) -> list[str]:
    """Return the tags in the front matter of a page, at most 255 characters each."""
    front_matter = metadata.get("front_matter")
    tags = (front_matter if isinstance(front_matter, dict) else metadata).get("tags", [])
    if isinstance(tags, str):
        tags = re.split(r"[,\s]+", tags)
    return [str(tag)[:MAX_TAG_CHARS] for tag in tags if str(tag).strip()] if isinstance(tags, list) else []
