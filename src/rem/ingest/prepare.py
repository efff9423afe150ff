"""Prepare a file for storing: read its text, mask secrets in it, cut it, and find the names that look it up."""

from __future__ import annotations

import asyncio
import posixpath
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import yaml

from rem.db.yaml import YamlLimitError, load_yaml
from rem.errors import FileUnreadableError
from rem.ingest.chunks import Chunk, chunk_document, find_section_starts, identify_chunker
from rem.ingest.file_store import ORIGIN, clean_labels
from rem.ingest.models import FetchedFile, IngestOptions, ParsedDocument
from rem.ingest.readers.dispatch import read_file
from rem.ingest.readers.markdown import NoteLink, find_links, resolve_uri
from rem.ingest.readers.mime import MARKDOWN
from rem.knowledge.entries import KnowledgeEntry, parse_wiki_page
from rem.knowledge.openapi import parse_openapi
from rem.knowledge.records import ParsedRecords, find_records
from rem.models import Edge
from rem.rules import word_set
from rem.text import clean_text, collapse_spaces

if TYPE_CHECKING:
    from rem.privacy.policy import PrivacyPolicy
    from rem.settings import Settings

MAX_ALIASES = 50
MAX_LINKS = 2000
MAX_NAME_WORDS = 4
"""A longer title is not just the name of a person."""
_AGENT_SUFFIXES = frozenset({".yaml", ".yml"})
_AGENT_KIND = re.compile(rb"(?:^|[{,])[ \t\"']*kind[\"']?[ \t]*:[ \t]*[\"']?(?:agent|evaluator)\b", re.MULTILINE)
MAX_AGENT_FILE_BYTES = 256 * 1024
_MARKUP = re.compile(r"[*`]+|\[\[|\]\]")


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file that was read and cut, ready to be stored."""

    file: FetchedFile
    options: IngestOptions
    chunker: str
    """Identifies how the file was cut. A stored file that was cut otherwise is cut again."""
    document: ParsedDocument | None = None
    """Its text, masked. None for the definition of an agent."""
    chunks: Sequence[Chunk] = ()
    records: ParsedRecords = field(default_factory=ParsedRecords)
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


async def prepare_file(
    file: FetchedFile, options: IngestOptions, settings: Settings, privacy: PrivacyPolicy, *, takes_agents: bool = False
) -> PreparedFile:
    """Read a file and cut it into chunks or entries, without access to the database. The default is chunks.

    With `takes_agents`, a file that defines an agent is prepared as one.
    """
    options = replace(options, form=options.form or "resource")
    max_tokens = settings.ingest.chunk_tokens
    prepared = PreparedFile(file, options, identify_chunker(max_tokens))
    agent_yaml = await asyncio.to_thread(extract_agent_yaml, file) if takes_agents else None
    if agent_yaml is not None:
        return replace(prepared, options=replace(options, form="schema"), agent_yaml=agent_yaml)
    document = await read_file(file, settings)
    return await asyncio.to_thread(_cut, prepared, document, privacy, max_tokens)


def _cut(prepared: PreparedFile, document: ParsedDocument, privacy: PrivacyPolicy, max_tokens: int) -> PreparedFile:
    # The whole text is masked: in a chunk, a part of a private key could not be recognised.
    text = clean_text(document.text)
    prepared = replace(prepared, masked=tuple(privacy.list_masked([text])))
    document = replace(
        document,
        text=privacy.mask(text, "file"),
        title=None if document.title is None else privacy.mask(document.title, "title"),
        metadata=privacy.mask_value(document.metadata, "file"),
    )
    file = prepared.file
    if prepared.options.form == "ontology":
        entries = parse_openapi(file, document) or [parse_wiki_page(file, document)]
        return replace(prepared, document=document, entries=entries)
    title = find_title(document)
    return replace(
        prepared,
        document=document,
        chunks=add_note_names(file, document, title, chunk_document(document, max_tokens)),
        records=find_records(document),
        aliases=list_aliases(file, document, title),
        links=build_link_edges(file, document),
    )


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


def extract_agent_yaml(file: FetchedFile) -> str | None:
    """Return the YAML of an agent or evaluator; None if the file is something else.

    A broken file that declares itself an agent is returned, too, so saving it reports what is wrong.
    """
    if posixpath.splitext(file.name)[1].lower() not in _AGENT_SUFFIXES or len(file.data) > MAX_AGENT_FILE_BYTES:
        return None
    if not _AGENT_KIND.search(file.data):
        return None
    try:
        text = file.data.decode("utf-8-sig")
        value = load_yaml(text)
    except YamlLimitError as error:
        raise FileUnreadableError(f"{file.name} declares an agent but cannot be read: {error}.") from error
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError):
        return file.data.decode("utf-8-sig", errors="replace") if b"json_schema_extra" in file.data else None
    return text if _read_kind(value) in ("agent", "evaluator") else None


def _read_kind(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    extra = value.get("json_schema_extra")
    return extra.get("kind") if isinstance(extra, dict) and "kind" in extra else value.get("kind")
