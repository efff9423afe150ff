"""HTML: what a reader sees, as Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import unquote

_DROPPED = frozenset({"script", "style", "template", "noscript", "iframe", "object"})
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_BLOCKS = frozenset(
    {
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "caption",
            "center",
            "details",
            "dialog",
            "div",
            "fieldset",
        ),
        *("figcaption", "figure", "footer", "form", "header", "hr", "legend", "main", "nav", "p", "pre", "section"),
        *("summary", "table", "tbody", "tfoot", "thead", "video", "audio", "dd", "dl", "dt", "menu", "ol", "ul"),
        *_HEADINGS,
    }
)
_LINES = frozenset({"br", "li", "tr", "option", "optgroup"})
_APART = frozenset(
    {
        *("button", "select", "textarea", "label", "svg", "text", "desc", "math", "mi", "mn", "mo", "mtext", "mrow"),
        *("rt", "rp", "rtc", "meter", "progress", "output", "canvas", "foreignobject"),
    }
)
"""What stands for itself in a line: no word goes on across its edges."""
_CONTACTS = ("mailto:", "tel:")
_SPACE = re.compile(r"[ \t\r\n\f\u00a0]+")
_BREAKS = re.compile(r"\n{3,}")
_TRAILING = re.compile(r"[ \t]+\n")
_CHARSET = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:\-]{1,40})", re.IGNORECASE)
_HEAD_BYTES = 4096
_DEEPEST_LIST = 20
_LONGEST_CONTACT = 200


class HtmlPage(NamedTuple):
    """A page as text."""

    text: str
    title: str | None
    metadata: dict[str, Any]


def declared_charset(data: bytes) -> str | None:
    """The encoding that a page names in its head."""
    found = _CHARSET.search(data[:_HEAD_BYTES])
    return found[1].decode("ascii") if found else None


def parse_html(html: str) -> HtmlPage:
    """All visible text of a page with its headings, lists and rows; alternative texts stand for images."""
    writer = _Writer()
    writer.feed(html)
    writer.close()
    text = _BREAKS.sub("\n\n", _TRAILING.sub("\n", "".join(writer.parts))).strip("\n")
    title = _SPACE.sub(" ", "".join(writer.title)).strip() or writer.first_heading()
    return HtmlPage(text + "\n" if text.strip() else "", title or None, writer.metadata)


class _Writer(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title: list[str] = []
        self.metadata: dict[str, Any] = {}
        self._heading: list[str] = []
        self._dropped: str | None = None
        self._drop_depth = 0
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
        if self._dropped:
            self._drop_depth += tag == self._dropped
            return
        self._in_title = False
        values = {name: value or "" for name, value in attrs}
        if tag in _DROPPED:
            self._dropped, self._drop_depth = tag, 1
        elif tag == "title":
            # A drawing may have one as well.
            self._in_title = not self.title
        elif tag in _BLOCKS:
            self._start_block(tag, values)
        elif tag in _LINES:
            self._start_line(tag)
        else:
            self._start_inline(tag, values)

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            self._drop_depth -= tag == self._dropped
            if self._drop_depth <= 0:
                self._dropped = None
            return
        if tag == "title":
            self._in_title = False
        elif tag in _BLOCKS:
            self._end_block(tag)
        elif tag in _LINES and tag != "br":
            self._break("\n")
        elif tag == "a":
            self._end_link()
        elif tag in _APART:
            self._part()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        # HTML itself ignores the slash, XHTML does not: only what would swallow text is closed.
        if tag in _DROPPED or tag == "title":
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        if self._dropped:
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
        is_nested = tag in ("ul", "ol", "menu") and bool(self._lists)
        self._break("\n" if is_nested or tag in ("dd", "dt", "tbody", "thead", "tfoot") else "\n\n")
        if tag in _HEADINGS:
            self._put(f"{_HEADINGS[tag]} ")
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
        if tag in _HEADINGS:
            self._in_heading = False
        elif tag in ("ul", "ol", "menu") and self._lists:
            self._lists.pop()
        elif tag == "pre" and self._pre_depth:
            self._pre_depth -= 1
            self._break("\n")
            self._put("```")
        self._break("\n" if self._lists or tag in ("dd", "dt", "tbody", "thead", "tfoot") else "\n\n")

    def _start_line(self, tag: str) -> None:
        # Two line breaks in a row are a gap; all others only end a line that was begun.
        if tag == "br":
            self.parts.append("\n")
            self._at_line_start = True
            return
        self._break("\n")
        if tag == "tr":
            self._cells = 0
        elif tag == "li":
            self._put(self._bullet())
            self._at_line_start = True

    def _bullet(self) -> str:
        indent = "  " * min(len(self._lists) - 1, _DEEPEST_LIST)
        number = self._lists[-1] if self._lists else None
        if number is None:
            return f"{indent}- "
        self._lists[-1] = number + 1
        return f"{indent}{number}. "

    def _start_inline(self, tag: str, values: dict[str, str]) -> None:
        if tag in _APART:
            self._part()
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
            self._note_meta(values)
        elif tag == "html" and values.get("lang"):
            self.metadata["lang"] = values["lang"][:40]

    def _part(self) -> None:
        """See to it that two words do not become one."""
        if not self._at_line_start and not self._pre_depth and not self.parts[-1].endswith(" "):
            self._put(" ")

    def _end_link(self) -> None:
        """An address that one can write to or call belongs to what is seen of it."""
        (href, start), self._link = self._link, ("", 0)
        if not href.lower().startswith(_CONTACTS):
            return
        address = unquote(href.partition(":")[2].partition("?")[0]).strip()[:_LONGEST_CONTACT]
        if address and address.lower() not in "".join(self.parts[start:]).lower():
            self.handle_data(f" ({address})")

    def _note_meta(self, values: dict[str, str]) -> None:
        name = values.get("name", "").lower()
        if name in ("description", "author", "keywords") and values.get("content", "").strip():
            self.metadata.setdefault(name, values["content"].strip()[:2000])

    def _break(self, kind: str) -> None:
        """End the line that was begun, if one was; or leave a gap."""
        if self.parts:
            self.parts.append(kind if kind == "\n\n" or not self._at_line_start else "")
        self._at_line_start = True

    def _put(self, text: str) -> None:
        if text:
            self.parts.append(text)
            self._at_line_start = text.endswith("\n")
