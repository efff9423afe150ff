"""Find the links of a Markdown text: `[[wiki links]]` and links to other files, outside of code."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

_WIKI_LINK = re.compile(r"(!?)\[\[([^\[\]|#\n]{1,500})(?:#([^\[\]|\n]{0,500}))?(?:\|[^\[\]\n]{0,500})?\]\]")
_LINK = re.compile(r"(!?)\[[^\[\]\n]{0,500}\]\(\s*(?:<([^<>\n]{1,1000})>|([^\s()<>]{1,1000}))[^()\n]{0,200}\)")
_FENCED_CODE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]+`")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")
_INDENTED = re.compile(r" {4}|\t")
_PAGE_SUFFIXES = frozenset({"", ".md", ".markdown", ".mdx"})


@dataclass(frozen=True, slots=True)
class NoteLink:
    """A link to another note, by its name or by its path."""

    target: str
    """The name between `[[` and `]]`, or the decoded path of a Markdown link."""
    is_path: bool
    heading: str | None = None
    """The section that the link leads to, as it is written in the link."""


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
