"""Pages of a wiki: each becomes an entry of the knowledge base, with edges to the pages that it links to."""

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

_WIKI_LINK = re.compile(r"!?\[\[([^\[\]|#\n]{1,500})(?:#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_LINK = re.compile(r"(!?)\[[^\[\]\n]{0,500}\]\(\s*<?([^\s()<>]{1,1000})>?[^()\n]{0,200}\)")
_CODE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_PAGES = frozenset({"", ".md", ".markdown", ".mdx"})


def parse_wiki_page(file: FetchedFile, document: ParsedDocument) -> KnowledgeEntry:
    """The entry that a page is: called by its title, else by its file's name."""
    stem = posixpath.splitext(posixpath.basename(file.name))[0]
    title = document.title or _first_heading(document) or stem
    mark = hashlib.sha256(file.uri.encode(errors="surrogatepass")).hexdigest()
    names = clean_names([title, f"{title} ({file.name})", f"{title} {mark[:8]}", mark])
    path = posixpath.splitext(file.name)[0]
    links = _links(file, document.text) if document.format == "markdown" else ()
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
    return next((mark.title for mark in find_section_starts(document) if mark.level == 1), None)


def _links(file: FetchedFile, text: str) -> Iterator[str]:
    """What a page links to: the names in `[[…]]`, and the paths of other pages."""
    prose = _CODE.sub(" ", text)
    for found in _WIKI_LINK.finditer(prose):
        yield found[1].strip()
    for found in _LINK.finditer(prose):
        target = None if found[1] else _page(file.name, found[2])
        if target:
            yield target


def _page(name: str, target: str) -> str | None:
    """The path of the page that a link means, as far as it lies in what is loaded."""
    path = unquote(target.partition("#")[0].partition("?")[0])
    if not path or ":" in path or path.startswith("/") or posixpath.splitext(path)[1].lower() not in _PAGES:
        return None
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
    return None if whole.startswith("..") or whole == "." else whole


def extract_tags(metadata: dict[str, Any]) -> list[str]:
    """The tags of a page's front matter."""
    front = metadata.get("front_matter")
    found = (front if isinstance(front, dict) else metadata).get("tags", [])
    if isinstance(found, str):
        found = re.split(r"[,\s]+", found)
    return [str(tag)[:255] for tag in found if str(tag).strip()] if isinstance(found, list) else []
