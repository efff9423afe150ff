"""Parse Markdown into blocks: headings, paragraphs, tables and lists, each with its place in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from rem.ingest.readers.markdown import parse_front_matter
from rem.text import collapse_spaces

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_TOKENS = 400_000
"""About 120,000 cells. A token takes half a kilobyte of memory, and a text of megabytes can have millions."""
MAX_INLINE_CHARS = 4000
"""A longer text keeps its marks: emphasis that is opened very often takes the parser long."""
_LINE_END = re.compile(r"\r\n?|\n")
_MARKS = frozenset("*_`[]<>&!\\~")
_WIKI_LINK = re.compile(r"\[\[([^\[\]|]{1,500})(?:\|([^\[\]]{1,500}))?\]\]")
_BOX = re.compile(r"\[([ xX])\][ \t]+(?=\S)")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading, in either notation."""

    start: int
    end: int
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph outside of lists."""

    start: int
    end: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The paragraph as one line."""
        return " ".join(self.lines)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table, with as many cells as the table has columns."""

    start: int
    end: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table. Cells beyond its columns are not part of it."""

    start: int
    end: int
    headers: tuple[str, ...]
    rows: Sequence[TableRow]


@dataclass(slots=True)
class ListItem:
    """An item of a list, without the lists inside it."""

    start: int
    end: int
    text: str = ""
    checked: bool | None = None
    """None if the item has no box."""


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list. A list inside an item is a block of its own, after this one."""

    start: int
    end: int
    parent: str
    """The text of the item that contains the list; empty for an outermost list."""
    items: list[ListItem] = field(default_factory=list)


Block: TypeAlias = Heading | Paragraph | TextTable | ItemList


@dataclass(frozen=True, slots=True)
class MarkdownText:
    """A parsed text."""

    front_matter: dict[str, Any]
    front_matter_end: int
    blocks: Sequence[Block]
    """In the order in which they start. Code, quotations of HTML and rulers are left out."""
    is_complete: bool
    """False if the text had too many cells, items and paragraphs: the blocks are then those of its beginning."""


def parse_markdown(text: str) -> MarkdownText:
    """Parse a text. Never fails: every text is Markdown."""
    front_matter, body_start = parse_front_matter(text)
    tokens, is_complete = _tokenize(text[body_start:])
    lines = [body_start, *(match.end() for match in _LINE_END.finditer(text, body_start)), len(text)]
    blocks = list(_Reader(text, lines, tokens).read())
    return MarkdownText(front_matter or {}, body_start, blocks, is_complete)


def strip_marks(text: str) -> str:
    """Return a line without the marks of emphasis, code and links, and with single spaces."""
    if _MARKS.isdisjoint(text) or len(text) > MAX_INLINE_CHARS:
        return collapse_spaces(text)
    # A link between notes goes first: its label stands behind a bar, and `[[a]](b)` would be another link.
    shown = _WIKI_LINK.sub(lambda match: match[2] or match[1].rstrip("\\"), text)
    (inline,) = _get_parser().parseInline(shown)
    return collapse_spaces("".join(_list_texts(inline.children or ())))


def _list_texts(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("softbreak", "hardbreak", "html_inline"):
            yield " "
        elif token.type == "image":
            yield from _list_texts(token.children or ())
        else:
            yield token.content


@cache
def _get_parser() -> MarkdownIt:
    """Return a parser of CommonMark and tables. It is loaded when it is used first."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _tokenize(text: str) -> tuple[list[Token], bool]:
    """Return the tokens of the blocks, and whether they are all of the text."""
    from markdown_it.rules_block import StateBlock

    class BoundedState(StateBlock):
        """Stop at a number of tokens."""

        def push(self, ttype: str, tag: str, nesting: Any) -> Token:
            if len(self.tokens) >= MAX_TOKENS:
                raise _TooManyTokensError
            return super().push(ttype, tag, nesting)

    tokens: list[Token] = []
    parser = _get_parser()
    state = BoundedState(_LINE_END.sub("\n", text).replace("\0", "\ufffd"), parser, {}, tokens)
    try:
        parser.block.tokenize(state, state.line, state.lineMax)
    except _TooManyTokensError:
        return tokens, False
    return tokens, True


class _TooManyTokensError(Exception):
    """The text has more blocks than are read."""


class _Reader:
    """Turns the tokens of a parser into blocks."""

    def __init__(self, text: str, lines: Sequence[int], tokens: Sequence[Token]) -> None:
        self._text = text
        self._lines = lines
        self._tokens = tokens
        self._blocks: list[Block] = []
        self._lists: list[ItemList] = []

    def read(self) -> Sequence[Block]:
        """Return the blocks in the order in which they start."""
        readers = {
            "heading_open": self._read_heading,
            "table_open": self._read_table,
            "paragraph_open": self._read_paragraph,
            "bullet_list_open": self._open_list,
            "ordered_list_open": self._open_list,
            "list_item_open": self._open_item,
            "bullet_list_close": self._close_list,
            "ordered_list_close": self._close_list,
        }
        position = 0
        while position < len(self._tokens):
            reader = readers.get(self._tokens[position].type)
            position = reader(position) if reader else position + 1
        return self._blocks

    def _span(self, token: Token) -> tuple[int, int]:
        """Return the place of a token's lines, without the white space around them."""
        first, last = token.map or (0, 0)
        start = self._lines[min(first, len(self._lines) - 1)]
        end = self._lines[min(max(last, first), len(self._lines) - 1)]
        body = self._text[start:end]
        return start + len(body) - len(body.lstrip()), start + len(body.rstrip())

    def _inline(self, position: int) -> str:
        """Return the source of the text inside the token at a position; empty if the tokens end there."""
        token = self._tokens[position + 1] if position + 1 < len(self._tokens) else None
        return token.content if token is not None and token.type == "inline" else ""

    def _read_heading(self, position: int) -> int:
        token = self._tokens[position]
        # A heading in a list or a quotation is no section.
        if token.level == 0:
            self._blocks.append(Heading(*self._span(token), int(token.tag[1:]), strip_marks(self._inline(position))))
        return position + 1

    def _read_paragraph(self, position: int) -> int:
        content = self._inline(position)
        if self._lists and self._lists[-1].items:
            self._extend_item(self._lists[-1].items[-1], content)
        else:
            lines = tuple(filter(None, map(strip_marks, content.split("\n"))))
            self._blocks.append(Paragraph(*self._span(self._tokens[position]), lines))
        return position + 2

    def _extend_item(self, item: ListItem, content: str) -> None:
        box = None if item.text else _BOX.match(content)
        if box:
            item.checked = box[1] != " "
            content = content[box.end() :]
        item.text = " ".join(filter(None, (item.text, strip_marks(content))))

    def _open_list(self, position: int) -> int:
        parent = self._lists[-1].items[-1].text if self._lists and self._lists[-1].items else ""
        opened = ItemList(*self._span(self._tokens[position]), parent)
        if parent:
            self._lists[-1].items[-1].end = min(self._lists[-1].items[-1].end, opened.start)
        self._blocks.append(opened)
        self._lists.append(opened)
        return position + 1

    def _open_item(self, position: int) -> int:
        self._lists[-1].items.append(ListItem(*self._span(self._tokens[position])))
        return position + 1

    def _close_list(self, position: int) -> int:
        self._lists.pop()
        return position + 1

    def _read_table(self, position: int) -> int:
        span = self._span(self._tokens[position])
        rows: list[TableRow] = []
        cells: list[str] = []
        row_span = span
        while position < len(self._tokens) and self._tokens[position].type != "table_close":
            token = self._tokens[position]
            if token.type == "tr_open":
                cells, row_span = [], self._span(token)
            elif token.type == "inline":
                cells.append(strip_marks(token.content))
            elif token.type == "tr_close":
                rows.append(TableRow(*row_span, tuple(cells)))
            position += 1
        if rows:
            self._blocks.append(TextTable(*span, rows[0].cells, rows[1:]))
        return position + 1
