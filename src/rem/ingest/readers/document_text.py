"""Complete and format the text that the document parser returns, so nothing of the document is missing."""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator, Sequence
from html import unescape
from io import BytesIO
from xml.etree import ElementTree

from rem.ingest.readers.tables import format_rows

_ESCAPED_CHARACTER = re.compile(r"\\([\\`*_{}\[\]()<>#+\-.!~$&^=:\"'/])")
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)
_SHEET_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_PARSER_MARKS = re.compile(r"\]\([^)\n]{0,1000}\)|\[cmt:\d+\]|\[\^\w+\]|</?[a-z]+>")
"""Text that the parser inserts between words: link targets, marks of comments and footnotes."""
MAX_POSITIONS = 20
_NON_WORD = re.compile(r"[\W_]+")
_TEXT_PARTS = re.compile(
    r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"
    r"|ppt/(slides/slide\d+|notesSlides/notesSlide\d+|diagrams/data\d+|charts/chart\d+)\.xml"
    r"|xl/(drawings/drawing\d+|charts/chart\d+)\.xml"
    r"|content\.xml|styles\.xml"
)
"""The parts of Office documents with visible text, except for cells: tables are always complete."""


def unescape_markdown(markdown: str) -> str:
    """Remove backslash escapes outside of fenced code. Users search for the text that they see."""
    parts = _FENCE.split(markdown)
    # The parts are: text, fence, code, fence, text, …
    return "".join(_unescape(part) if position % 4 == 0 else part for position, part in enumerate(parts))


def _unescape(text: str) -> str:
    # An unescaped number sign at the start of a line would become a heading.
    return re.sub(r"(?m)^\\(?=#)|" + _ESCAPED_CHARACTER.pattern, lambda match: match[1] or match[0], text)


def format_sheets(content: str, tables: Sequence[Sequence[Sequence[str]]]) -> str:
    """Return the sheets of a workbook, each with its name as a heading and one line for each row."""
    names = _SHEET_HEADING.findall(content)
    if len(names) != len(tables):
        return content
    parts = []
    for name, rows in zip(names, tables, strict=True):
        parts.append(f"## {name}\n\n" + "\n".join(format_rows(rows)) + "\n")
    return "\n".join(parts)


def list_formulas(data: bytes) -> list[str]:
    """Return a line for each sheet with the formulas that have no stored value, because nobody calculated them yet."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        lines = []
        for name, part in _find_worksheets(archive):
            cells = "; ".join(_find_uncalculated_cells(archive, part))
            if cells:
                lines.append(f"Formulas of {name}: {cells}")
        return lines


def _find_worksheets(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    """Yield the name of each sheet and its path in the archive."""
    paths = {
        relation.get("Id"): posixpath.normpath(posixpath.join("/xl", relation.get("Target", ""))).lstrip("/")
        for relation in _iter_elements(archive, "xl/_rels/workbook.xml.rels", "Relationship")
    }
    for sheet in _iter_elements(archive, "xl/workbook.xml", "sheet"):
        path = next((paths.get(value) for name, value in sheet.items() if name.endswith("}id")), None)
        if path in archive.namelist():
            yield sheet.get("name", "?"), path


def _find_uncalculated_cells(archive: zipfile.ZipFile, part: str) -> Iterator[str]:
    for cell in _iter_elements(archive, part, "c"):
        children = {_tag(child): child.text for child in cell}
        if children.get("f") and not (children.get("v") or "").strip():
            yield f"{cell.get('r', '?')} ={children['f']}"
        cell.clear()


def _iter_elements(archive: zipfile.ZipFile, part: str, tag: str) -> Iterator[ElementTree.Element]:
    if part not in archive.namelist():
        return
    with archive.open(part) as stream:
        for _event, element in ElementTree.iterparse(stream):  # noqa: S314 - in a process with limits of its own
            if _tag(element) == tag:
                yield element
            elif _tag(element) == "row":
                element.clear()


def format_slides(slides: Sequence[tuple[str, str | None]]) -> str:
    """Return the slides of a presentation, each followed by its speaker notes."""
    parts = []
    for text, notes in slides:
        parts.append(text.strip("\n"))
        if notes and notes.strip():
            parts.append(f"Notes: {notes.strip()}")
    return "\n\n".join(filter(None, parts)) + "\n"


def find_missing_paragraphs(data: bytes, content: str) -> list[str]:
    """Return the paragraphs of an Office document that `content` lacks: page headers, text boxes, footnotes, …"""
    known = _normalise(content)
    position = 0
    missing: dict[str, None] = {}
    for runs in _iter_paragraphs(data):
        words = _normalise("".join(runs))
        if not words:
            continue
        # Paragraphs come in the order of the text, so the search starts at the last one found.
        offset = known.find(words, position)
        if offset < 0:
            offset = known.find(words)
        if offset >= 0:
            position = offset
        elif not _contains_close_together(known, [run for run in map(_strip_non_words, runs) if run]):
            missing["".join(runs).strip()] = None
    return list(missing)


def find_missing_lines(source: str, content: str) -> list[str]:
    """Return the lines of `source` that `content` lacks."""
    known = _normalise(content)
    return [line.strip() for line in source.splitlines() if _normalise(line) not in known]


def _contains_close_together(known: str, runs: list[str]) -> bool:
    """Return whether all runs of a paragraph are close together: the parser may have put marks between them."""
    longest = max(runs, key=len)
    distance = 2 * sum(map(len, runs)) + 300
    offset = known.find(longest)
    for _ in range(MAX_POSITIONS):
        if offset < 0:
            return False
        near = known[max(0, offset - distance) : offset + distance]
        if len(runs) > 1 and all(run in near for run in runs):
            return True
        offset = known.find(longest, offset + 1)
    return False


def _normalise(text: str) -> str:
    """Return the letters and digits of a text, without the marks of the parser, to compare two versions of it."""
    return _strip_non_words(_PARSER_MARKS.sub("", unescape(text)))


def _strip_non_words(text: str) -> str:
    return _NON_WORD.sub("", text)


def _iter_paragraphs(data: bytes) -> Iterator[list[str]]:
    """Yield the paragraphs of all parts, each as its runs of text."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        for name in sorted(filter(_TEXT_PARTS.fullmatch, archive.namelist())):
            with archive.open(name) as part:
                for _event, element in ElementTree.iterparse(part):  # noqa: S314 - in a process with limits of its own
                    if _tag(element) in ("p", "h"):
                        yield list(_iter_texts(element))
                        element.clear()


def _iter_texts(element: ElementTree.Element) -> Iterator[str]:
    tag = _tag(element)
    # Slide and page numbers are not text. A nested paragraph was yielded before and is empty by now.
    if tag in ("fld", "page-number", "page-count"):
        return
    is_open_document = "opendocument" in element.tag
    if element.text and (tag == "t" or is_open_document):
        yield element.text
    for child in element:
        yield from _iter_texts(child)
        if child.tail and is_open_document:
            yield child.tail


def _tag(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]
