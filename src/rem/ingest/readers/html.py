"""Convert the visible text of HTML to Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import unquote

_IGNORED_TAGS = frozenset({"script", "style", "template", "noscript", "iframe", "object"})
_HEADING_PREFIXES = {f"h{level}": "#" * level for level in range(1, 7)}
_BLOCK_TAG_NAMES = """
address article aside audio blockquote body caption center dd details dialog div dl dt fieldset figcaption figure
footer form header hr legend main menu nav ol p pre section summary table tbody tfoot thead ul video
"""
_BLOCK_TAGS = frozenset([*_HEADING_PREFIXES, *_BLOCK_TAG_NAMES.split()])
_TIGHT_BLOCK_TAGS = frozenset({"dd", "dt", "tbody", "thead", "tfoot"})
"""Blocks without an empty line before and after them."""
_LIST_TAGS = frozenset({"ul", "ol", "menu"})
_LINE_TAGS = frozenset({"br", "li", "tr", "option", "optgroup"})
_SEPARATED_TAG_NAMES = """
button canvas desc foreignobject label math meter mi mn mo mrow mtext output progress rp rt rtc select svg text textarea
"""
_SEPARATED_TAGS = frozenset(_SEPARATED_TAG_NAMES.split())
"""Inline tags that separate words: `<button>A</button><button>B</button>` is two words."""
_CONTACT_SCHEMES = ("mailto:", "tel:")
_SPACE = re.compile(r"[ \t\r\n\f\u00a0]+")
_BREAKS = re.compile(r"\n{3,}")
_TRAILING = re.compile(r"(?<![ \t])[ \t]+\n")
_CHARSET = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*+[\"']?\s*([\w.:\-]{1,40})", re.IGNORECASE)
MAX_HEAD_BYTES = 4096
MAX_LIST_DEPTH = 20
MAX_CONTACT_CHARS = 200
MAX_META_CHARS = 2000


class HtmlPage(NamedTuple):
    """A page converted to Markdown."""

    text: str
    title: str | None
    metadata: dict[str, Any]


def find_declared_charset(data: bytes) -> str | None:
    """Return the encoding declared in the head of a page; None if there is none."""
    match = _CHARSET.search(data[:MAX_HEAD_BYTES])
    return match[1].decode("ascii") if match else None


def parse_html(html: str) -> HtmlPage:
    """Return all visible text of a page with headings, lists and table rows. Images become their alternative texts."""
    writer = _MarkdownWriter()
    writer.feed(html)
    writer.close()
    text = _BREAKS.sub("\n\n", _TRAILING.sub("\n", "".join(writer.parts))).strip("\n")
    title = _SPACE.sub(" ", "".join(writer.title)).strip() or writer.first_heading()
    return HtmlPage(text + "\n" if text.strip() else "", title or None, writer.metadata)


class _MarkdownWriter(HTMLParser):
    """Collects Markdown while the parser walks through a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title: list[str] = []
        self.metadata: dict[str, Any] = {}
        self._heading: list[str] = []
        self._ignored_tag: str | None = None
        self._ignored_depth = 0
        self._in_title = False
        self._in_heading = False
        self._pre_depth = 0
        self._lists: list[int | None] = []
        self._cells = 0
        self._at_line_start = True
        self._link = "", 0

    def first_heading(self) -> str:
        return _SPACE.sub(" ", "".join(self._heading)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._ignored_tag:
            self._ignored_depth += tag == self._ignored_tag
            return
        self._in_title = False
        values = {name: value or "" for name, value in attrs}
        if tag in _IGNORED_TAGS:
            self._ignored_tag, self._ignored_depth = tag, 1
        elif tag == "title":
            # An SVG may have a title as well.
            self._in_title = not self.title
        elif tag in _BLOCK_TAGS:
            self._start_block(tag, values)
        elif tag in _LINE_TAGS:
            self._start_line(tag)
        else:
            self._start_inline(tag, values)

    def handle_endtag(self, tag: str) -> None:
        if self._ignored_tag:
            self._ignored_depth -= tag == self._ignored_tag
            if self._ignored_depth <= 0:
                self._ignored_tag = None
            return
        if tag == "title":
            self._in_title = False
        elif tag in _BLOCK_TAGS:
            self._end_block(tag)
        elif tag in _LINE_TAGS and tag != "br":
            self._break("\n")
        elif tag == "a":
            self._end_link()
        elif tag in _SEPARATED_TAGS:
            self._separate()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        # HTML ignores the slash, XHTML does not. Only tags that would hide the following text are closed.
        if tag in _IGNORED_TAGS or tag == "title":
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        if self._ignored_tag:
            return
        if self._in_title:
            self.title.append(data)
            return
        if self._in_heading:
            self._heading.append(data)
        if self._pre_depth:
            self._put(data)
            return
        text = _SPACE.sub(" ", data)
        self._put(text.lstrip(" ") if self._at_line_start else text)

    def unknown_decl(self, data: str) -> None:
        if data.startswith("CDATA["):
            self.handle_data(data[6:])

    def _start_block(self, tag: str, values: dict[str, str]) -> None:
        is_nested = tag in _LIST_TAGS and bool(self._lists)
        self._break("\n" if is_nested or tag in _TIGHT_BLOCK_TAGS else "\n\n")
        if tag in _HEADING_PREFIXES:
            self._put(f"{_HEADING_PREFIXES[tag]} ")
            self._at_line_start = True
            self._in_heading = not self._heading
        elif tag in ("ul", "menu"):
            self._lists.append(None)
        elif tag == "ol":
            start = values.get("start", "1")
            self._lists.append(int(start) if start.isdecimal() and len(start) < 10 else 1)
        elif tag == "pre":
            self._pre_depth += 1
            self._put("```\n")
        elif tag == "hr":
            self._put("---")
            self._break("\n\n")

    def _end_block(self, tag: str) -> None:
        if tag in _HEADING_PREFIXES:
            self._in_heading = False
        elif tag in _LIST_TAGS and self._lists:
            self._lists.pop()
        elif tag == "pre" and self._pre_depth:
            self._pre_depth -= 1
            self._break("\n")
            self._put("```")
        self._break("\n" if self._lists or tag in _TIGHT_BLOCK_TAGS else "\n\n")

    def _start_line(self, tag: str) -> None:
        # Two <br> in a row leave an empty line. Other tags only end a line that has text.
        if tag == "br":
            self.parts.append("\n")
            self._at_line_start = True
            return
        self._break("\n")
        if tag == "tr":
            self._cells = 0
        elif tag == "li":
            self._put(self._next_bullet())
            self._at_line_start = True

    def _next_bullet(self) -> str:
        indent = "  " * min(len(self._lists) - 1, MAX_LIST_DEPTH)
        number = self._lists[-1] if self._lists else None
        if number is None:
            return f"{indent}- "
        self._lists[-1] = number + 1
        return f"{indent}{number}. "

    def _start_inline(self, tag: str, values: dict[str, str]) -> None:
        if tag in _SEPARATED_TAGS:
            self._separate()
        elif tag == "a":
            self._link = values.get("href", ""), len(self.parts)
        elif tag in ("td", "th"):
            if self._cells:
                self._put(" | ")
                self._at_line_start = True
            self._cells += 1
        elif tag in ("img", "area") and values.get("alt", "").strip():
            self.handle_data(f" {values['alt']} ")
        elif tag == "meta":
            self._add_meta(values)
        elif tag == "html" and values.get("lang"):
            self.metadata["lang"] = values["lang"][:40]

    def _separate(self) -> None:
        """Write a space, unless there is one, so two words do not become one."""
        if not self._at_line_start and not self._pre_depth and not self.parts[-1].endswith(" "):
            self._put(" ")

    def _end_link(self) -> None:
        """Append the address of a mailto: or tel: link unless the link text contains it."""
        (href, start), self._link = self._link, ("", 0)
        if not href.lower().startswith(_CONTACT_SCHEMES):
            return
        address = unquote(href.partition(":")[2].partition("?")[0]).strip()[:MAX_CONTACT_CHARS]
        if address and address.lower() not in "".join(self.parts[start:]).lower():
            self.handle_data(f" ({address})")

    def _add_meta(self, values: dict[str, str]) -> None:
        name = values.get("name", "").lower()
        if name in ("description", "author", "keywords") and values.get("content", "").strip():
            self.metadata.setdefault(name, values["content"].strip()[:MAX_META_CHARS])

    def _break(self, separator: str) -> None:
        """End the current line, or leave an empty line."""
        if self.parts:
            self.parts.append(separator if separator == "\n\n" or not self._at_line_start else "")
        self._at_line_start = True

    def _put(self, text: str) -> None:
        if text:
            self.parts.append(text)
            self._at_line_start = text.endswith("\n")
