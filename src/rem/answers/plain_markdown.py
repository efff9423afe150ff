"""Turn the Markdown of a note into plain sentences for an answer: without marks, and with its heading as its title."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

BlockKind: TypeAlias = Literal["heading", "item", "row", "text"]
MAX_READ_CHARS = 20_000
"""The rest of a longer text is left as it is."""
_FRONT_MATTER = re.compile(r"\A\s*---\n.*?\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"\A\s*# ++([^\n]*+)\n?")
_HEADING = re.compile(r"(?:… ?)?#{1,6} ++(.+)")
_ITEM = re.compile(r"(?:[-*+•] +|(?=\d{1,3}[.)] ))(?:\[(?P<box>[ xX])\] +)?(?P<text>\S.*)")
_ROW = re.compile(r"\|(.+)\|")
_FENCE = re.compile(r"```|~~~")
_QUOTE = re.compile(r"(?:> ?)+")
_IMAGE = re.compile(r"!\[([^\]\n]{0,300})\]\([^()\s]*(?: \"[^\"\n]*\")?\)")
_LINK = re.compile(r"\[([^\[\]\n]+)\](?:\([^()\s]*(?: \"[^\"\n]*\")?\)|\[[^\[\]\n]*\])")
_WIKI_LINK = re.compile(r"!?\[\[(?:[^\[\]|\n]*\|)?([^\[\]|\n]+)\]\]")
_EMPHASIS = re.compile(r"(\*\*|__|~~|`)(?=\S)([^\n]{0,300}?\S)\1")
_LIGHT_EMPHASIS = re.compile(r"(?<![\w*\\])([*_])(?=[^\s*_])([^*_\n]*[^\s*_\\])\1(?![\w*])")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENDED = (".", "!", "?", ":", ";", ",", "…")


class _Block(NamedTuple):
    """A line of the text, or several lines of one paragraph."""

    kind: BlockKind
    text: str


class PlainNote(NamedTuple):
    """A text without Markdown."""

    title: str
    """Its first heading; "" if the text does not begin with one, or has nothing else."""
    text: str


def strip_markdown(text: str) -> PlainNote:
    """Return a text in one line without Markdown: items of a list with semicolons, links as their text."""
    body, rest = text[:MAX_READ_CHARS], text[MAX_READ_CHARS:]
    body = _FRONT_MATTER.sub("", body)
    heading = _TITLE.match(body)
    title = _strip_heading(heading[1]) if heading else ""
    if heading is not None:
        if not body[heading.end() :].strip():
            return PlainNote("", title)
        body = body[heading.end() :]
    return PlainNote(title, _join_blocks(list(_split_blocks(body))) + rest)


def _split_blocks(text: str) -> Iterator[_Block]:
    is_code = False
    for line in text.splitlines():
        plain = line.strip()
        if _FENCE.match(plain):
            is_code = not is_code
            continue
        if is_code:
            yield _Block("text", plain)
            continue
        if not plain or _is_rule(plain):
            continue
        plain = _QUOTE.sub("", plain, count=1) if plain.startswith(">") else plain
        if heading := _HEADING.fullmatch(plain):
            yield _Block("heading", _strip_heading(heading[1]))
        elif item := _ITEM.fullmatch(plain):
            done = " (done)" if item["box"] in ("x", "X") else ""
            yield _Block("item", _strip_marks(item["text"]) + done)
        elif row := _ROW.fullmatch(plain):
            cells = [cell for part in row[1].split("|") if (cell := _strip_marks(part.strip()))]
            yield _Block("row", (": " if len(cells) == 2 else ", ").join(cells))
        elif plain:
            yield _Block("text", _strip_marks(plain))


def _join_blocks(blocks: list[_Block]) -> str:
    parts = [f"{block.text}{_separate(block, following)}" for block, following in pairwise(blocks)]
    return "".join([*parts, *(block.text for block in blocks[-1:])])


def _separate(block: _Block, following: _Block) -> str:
    """Return what stands between two blocks."""
    if block.text.endswith(_ENDED):
        return " "
    if block.kind == "heading":
        return ": "
    if block.kind in ("item", "row"):
        return "; " if following.kind == block.kind else ". "
    return ". " if following.kind == "heading" else ": " if following.kind in ("item", "row") else " "


def _is_rule(line: str) -> bool:
    """Return whether a line only divides: dashes, also those of a table, or stars, or equals signs."""
    if "--" in line:
        return not line.strip(" :|-")
    stars = line.replace(" ", "")
    return (not line.strip("=") and len(line) > 2) or (not stars.strip("*_") and len(stars) > 2 and "  " not in line)


def _strip_heading(text: str) -> str:
    """Return a heading without emphasis, links, and the hashes that may close it."""
    text = text.rstrip()
    without = text.rstrip("#")
    return _strip_marks(without.rstrip() if without.endswith(" ") else text)


def _strip_marks(text: str) -> str:
    """Return a line without emphasis and links."""
    text = _LINK.sub(r"\1", _WIKI_LINK.sub(r"\1", _IMAGE.sub(r"\1", text)))
    text = _LIGHT_EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text))
    return _ESCAPED.sub(r"\1", text)
