"""Read Markdown: its front matter, its headings, and the links to other notes."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import yaml

from rem.db.yaml import BoundedLoader, load_yaml
from rem.ingest.dates import parse_time
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.mime import MARKDOWN
from rem.ingest.readers.text import decode_text
from rem.models.field_types import shorten_json
from rem.text import find_front_matter

MAX_TITLE_CHARS = 200
NAME_FIELDS = ("title", "alias", "aliases", "tag", "tags")
"""Fields of front matter that people write as words, whatever YAML makes of them."""
# These match within one line and look at a bounded part of it: a line of megabytes takes linear time.
_LINE = re.compile(r"[^\n]*\n?")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]++|$)(.*)")
_CLOSING_HASHES = re.compile(r"(?:^|(?<![ \t])[ \t]+)#+[ \t]*$")
_SETEXT = re.compile(r"\A {0,3}(=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_NOT_PARAGRAPH = re.compile(r"\A(?:\s*$|\s*(?:[-*+>|]|\d+[.)]\s)| {4}|\t)")
_WIKI_LINK = re.compile(r"(!?)\[\[([^\[\]|#\n]{1,500})(?:#([^\[\]|\n]{0,500}))?(?:\|[^\[\]\n]{0,500})?\]\]")
_LINK = re.compile(r"(!?)\[[^\[\]\n]{0,500}\]\(\s*(?:<([^<>\n]{1,1000})>|([^\s()<>]{1,1000}))[^()\n]{0,200}\)")
_FENCED_CODE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]+`")
_LIST_ITEM = re.compile(r"\A\s*(?:[-*+]|\d{1,9}[.)])\s")
_INDENTED = re.compile(r" {4}|\t")
_PAGE_SUFFIXES = frozenset({"", ".md", ".markdown", ".mdx"})


@dataclass(frozen=True, slots=True)
class SectionStart:
    """The start of a section, which ends where the next one starts."""

    start: int
    level: int
    """A section belongs to the last one before it with a lower level."""
    title: str | None = None


@dataclass(frozen=True, slots=True)
class NoteLink:
    """A link to another note, by its name or by its path."""

    target: str
    """The name between `[[` and `]]`, or the decoded path of a Markdown link."""
    is_path: bool
    heading: str | None = None
    """The section that the link leads to, as it is written in the link."""


def read_markdown(file: FetchedFile) -> ParsedDocument:
    """Return the text of a file unchanged, including front matter.

    The title is that of the front matter, else the first heading.
    """
    text, metadata = decode_text(file)
    front_matter, _ = parse_front_matter(text)
    written_at = None
    if front_matter is not None:
        metadata["front_matter"] = front_matter
        written_at = parse_time(front_matter.get("date")) or parse_time(front_matter.get("created"))
    title = front_matter.get("title") if front_matter else None
    if not isinstance(title, str) or not title.strip():
        title = next((section.title for section in find_headings(text) if section.title), None)
    return ParsedDocument(
        text, "markdown", MARKDOWN, title.strip()[:MAX_TITLE_CHARS] if title else None, metadata, written_at
    )


def parse_front_matter(text: str) -> tuple[dict[str, Any] | None, int]:
    """Return the front matter as JSON values, or None, and the offset of the text after it. Invalid YAML is ignored."""
    match = find_front_matter(text)
    if match is None:
        return None, 0
    try:
        values = load_yaml(match["yaml"], aliases=False)
        front_matter = shorten_json(_spell_names(match["yaml"], values)) if isinstance(values, dict) else None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, LookupError, AttributeError):
        front_matter = None
    return front_matter or None, match.end()


def _spell_names(text: str, values: dict[Any, Any]) -> dict[Any, Any]:
    """Return the values with the names as they are written: YAML reads the alias `ON` as true, and `1.10` as 1.1."""
    root = yaml.compose(text, Loader=BoundedLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    spelt = {
        key.value: _spell(node, values[key.value])
        for key, node in pairs
        if isinstance(key, yaml.ScalarNode) and key.value in NAME_FIELDS and key.value in values
    }
    return values | spelt


def _spell(node: yaml.Node, value: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return value if value is None else node.value
    if isinstance(node, yaml.SequenceNode) and isinstance(value, list):
        return [_spell(item, item_value) for item, item_value in zip(node.value, value, strict=True)]
    return value


def iter_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text without their ends, each with its offset."""
    for match in _LINE.finditer(text):
        if match.start() < len(text):
            yield match.start(), match.group().rstrip("\r\n")


def find_headings(text: str) -> Iterator[SectionStart]:
    """Yield the headings of Markdown, in both notations, outside of fenced code and front matter."""
    fence = ""
    previous: tuple[int, str] | None = None
    _, text_start = parse_front_matter(text)
    for start, line in iter_lines(text):
        if start < text_start:
            continue
        fence_match = _FENCE.match(line)
        if fence:
            if fence_match and fence_match[1].startswith(fence) and not line[fence_match.end() :].strip():
                fence = ""
        elif fence_match:
            fence, previous = fence_match[1], None
        else:
            heading = _parse_heading(start, line, previous)
            if heading:
                yield heading
            previous = None if heading or _NOT_PARAGRAPH.match(line) else (start, line)


def _parse_heading(start: int, line: str, previous: tuple[int, str] | None) -> SectionStart | None:
    """Return the heading on a line, or the one on the previous line that this line underlines."""
    match = _ATX.match(line)
    if match:
        title = _CLOSING_HASHES.sub("", match[2][: 2 * MAX_TITLE_CHARS])
        return SectionStart(start, len(match[1]), clean_title(title))
    underline = previous and _SETEXT.match(line)
    if previous and underline:
        return SectionStart(previous[0], 1 if underline[1][0] == "=" else 2, clean_title(previous[1]))
    return None


def clean_title(text: str) -> str | None:
    """Return a heading without surrounding white space and not too long; None if it is empty."""
    return text.strip()[:MAX_TITLE_CHARS] or None


def find_links(text: str) -> Iterator[NoteLink]:
    """Yield the links to other notes: first wiki links, then Markdown links. Images and web addresses are left out."""
    prose = _remove_code(text)
    for is_embedded, name, heading in _WIKI_LINK.findall(prose):
        # A table needs `\|` between name and label.
        target = name.strip().removesuffix("\\").strip()
        if target and not (is_embedded and not is_page(target)):
            yield NoteLink(target, False, heading.strip().removesuffix("\\") or None)
    for is_image, bracketed, bare in _LINK.findall(prose):
        path, _, heading = (bracketed or bare).partition("#")
        path = unquote(path.partition("?")[0]).strip()
        if path and not is_image and ":" not in path and not path.startswith(("/", "\\")) and not path.endswith("/"):
            yield NoteLink(path, True, unquote(heading) or None)


def is_page(path: str) -> bool:
    """Return whether a path can be a page of text: it ends with a Markdown extension or has none."""
    return posixpath.splitext(path)[1].lower() in _PAGE_SUFFIXES


def resolve_path(base: str, path: str) -> str | None:
    """Return a path relative to the folder of the path `base`; None if it leads out of the outermost folder."""
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(base), path))
    return None if resolved.startswith("..") or resolved == "." else resolved


def resolve_uri(base: str, path: str) -> str | None:
    """Return the URI of a path relative to the URI of a file. A page may be linked without its extension `.md`."""
    address = urlsplit(base)
    resolved = resolve_path(unquote(address.path), path)
    if resolved is None:
        return None
    if not posixpath.splitext(resolved)[1]:
        resolved += ".md"
    return f"{address.scheme}://{address.netloc}{quote(resolved)}"


def _remove_code(text: str) -> str:
    """Return the text without fenced, indented and inline code."""
    prose = _FENCED_CODE.sub(" ", text)
    return _INLINE_CODE.sub(" ", "\n".join(_skip_indented_code(prose.splitlines())))


def _skip_indented_code(lines: list[str]) -> Iterator[str]:
    """Yield the lines without indented code: indented lines after an empty line, unless they belong to a list."""
    is_code_allowed, in_list = True, False
    for line in lines:
        if not line.strip():
            is_code_allowed = True
            continue
        is_indented = _INDENTED.match(line) is not None
        if is_indented and is_code_allowed and not in_list:
            continue
        if _LIST_ITEM.match(line):
            in_list = True
        elif not is_indented and is_code_allowed:
            in_list = False
        is_code_allowed = False
        yield line
