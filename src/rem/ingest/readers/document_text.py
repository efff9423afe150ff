"""What is made of a parser's result, so that nothing of a document is missing in its text."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator, Sequence
from html import unescape
from io import BytesIO
from xml.etree import ElementTree

from rem.ingest.readers.tables import format_rows

_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()<>#+\-.!~$&^=:\"'/])")
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)
_SHEET = re.compile(r"^## (.+)$", re.MULTILINE)
_ADDED = re.compile(r"\]\([^)\n]*\)|\[cmt:\d+\]|\[\^\w+\]|</?[a-z]+>")
"""What the parser puts between words: addresses of links, marks of comments and footnotes."""
_MOST_TRIES = 20
_NOT_WORD = re.compile(r"[\W_]+")
_PARTS = re.compile(
    r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"
    r"|ppt/(slides/slide\d+|notesSlides/notesSlide\d+|diagrams/data\d+|charts/chart\d+)\.xml"
    r"|xl/(drawings/drawing\d+|charts/chart\d+)\.xml"
    r"|content\.xml|styles\.xml"
)
"""The parts of office documents that hold text which people see. Cells are not among them: tables are taken whole."""


def unescaped(markdown: str) -> str:
    """Markdown without the backslashes that protect single signs, outside of code: people search for what they see."""
    parts = _FENCE.split(markdown)
    # Text, fence, code, fence, text, …
    return "".join(_unescaped(part) if place % 4 == 0 else part for place, part in enumerate(parts))


def _unescaped(text: str) -> str:
    # A number sign at the start of a line would become a heading.
    return re.sub(r"(?m)^\\(?=#)|" + _ESCAPED.pattern, lambda found: found[1] or found[0], text)


def sheets(content: str, tables: Sequence[Sequence[Sequence[str]]]) -> str:
    """The sheets of a workbook, each under its name, with a line for each row."""
    names = _SHEET.findall(content)
    if len(names) != len(tables):
        return content
    parts = []
    for name, rows in zip(names, tables, strict=True):
        parts.append(f"## {name}\n\n" + "\n".join(format_rows(rows)) + "\n")
    return "\n".join(parts)


def formulas(data: bytes) -> list[str]:
    """The cells of a workbook that hold a formula without its value: nobody has calculated them yet."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        lines = []
        for name, part in _worksheets(archive):
            cells = "; ".join(_uncalculated(archive, part))
            if cells:
                lines.append(f"Formulas of {name}: {cells}")
        return lines


def _worksheets(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """The sheets of a workbook, with the part of the archive that each is in."""
    places = {
        relation.get("Id"): posixpath.normpath(posixpath.join("/xl", relation.get("Target", ""))).lstrip("/")
        for relation in _elements(archive, "xl/_rels/workbook.xml.rels", "Relationship")
    }
    for sheet in _elements(archive, "xl/workbook.xml", "sheet"):
        place = next((places.get(value) for name, value in sheet.items() if name.endswith("}id")), None)
        if place in archive.namelist():
            yield sheet.get("name", "?"), place


def _uncalculated(archive: zipfile.ZipFile, part: str) -> Iterator[str]:
    for cell in _elements(archive, part, "c"):
        found = {_tag(child): child.text for child in cell}
        if found.get("f") and not (found.get("v") or "").strip():
            yield f"{cell.get('r', '?')} ={found['f']}"
        cell.clear()


def _elements(archive: zipfile.ZipFile, part: str, tag: str) -> Iterator[ElementTree.Element]:
    if part not in archive.namelist():
        return
    with archive.open(part) as stream:
        for _event, element in ElementTree.iterparse(stream):  # noqa: S314 - in a process with limits of its own
            if _tag(element) == tag:
                yield element
            elif _tag(element) == "row":
                element.clear()


def with_notes(slides: Sequence[tuple[str, str | None]]) -> str:
    """The slides of a presentation, each with what the speaker noted for it."""
    parts = []
    for text, notes in slides:
        parts.append(text.strip("\n"))
        if notes and notes.strip():
            parts.append(f"Notes: {notes.strip()}")
    return "\n\n".join(filter(None, parts)) + "\n"


def left_out(data: bytes, content: str) -> list[str]:
    """The paragraphs of an office document that its text does not hold: running heads, text boxes, footnotes, …"""
    known = _seen(content)
    place = 0
    missing: dict[str, None] = {}
    for runs in _paragraphs(data):
        words = _seen("".join(runs))
        if not words:
            continue
        # They come in the order of the text, so nearly all are found at once.
        found = known.find(words, place)
        if found < 0:
            found = known.find(words)
        if found >= 0:
            place = found
        elif not _is_spread(known, [run for run in map(_words, runs) if run]):
            missing["".join(runs).strip()] = None
    return list(missing)


def lines_left_out(source: str, content: str) -> list[str]:
    """The lines of a text that another one does not hold."""
    known = _seen(content)
    return [line.strip() for line in source.splitlines() if _seen(line) not in known]


def _is_spread(known: str, runs: list[str]) -> bool:
    """Whether all pieces of a paragraph stand close together: a parser puts marks of its own between them."""
    longest = max(runs, key=len)
    around = 2 * sum(map(len, runs)) + 300
    place = known.find(longest)
    for _ in range(_MOST_TRIES):
        if place < 0:
            return False
        near = known[max(0, place - around) : place + around]
        if len(runs) > 1 and all(run in near for run in runs):
            return True
        place = known.find(longest, place + 1)
    return False


def _seen(text: str) -> str:
    """The words of a text as both the document and the parser write them, whatever stands between or around them."""
    return _words(_ADDED.sub("", unescape(text)))


def _words(text: str) -> str:
    return _NOT_WORD.sub("", text)


def _paragraphs(data: bytes) -> Iterator[list[str]]:
    """The paragraphs of all parts, each as the pieces that it is written in."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        for name in sorted(filter(_PARTS.fullmatch, archive.namelist())):
            with archive.open(name) as part:
                for _event, element in ElementTree.iterparse(part):  # noqa: S314 - in a process with limits of its own
                    if _tag(element) in ("p", "h"):
                        yield list(_texts(element))
                        element.clear()


def _texts(element: ElementTree.Element) -> Iterator[str]:
    tag = _tag(element)
    # The number of a slide or page is no text. A paragraph inside of this one was taken already.
    if tag in ("fld", "page-number", "page-count"):
        return
    is_open_document = "opendocument" in element.tag
    if element.text and (tag == "t" or is_open_document):
        yield element.text
    for child in element:
        yield from _texts(child)
        if child.tail and is_open_document:
            yield child.tail


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]
