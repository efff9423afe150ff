"""Say where a text comes from: the title and the date of its source, without keys, paths and ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath

from rem.answers.dates import add_dates, format_day
from rem.answers.plain_markdown import strip_markdown
from rem.models.resource import REMEMBERED_ORIGIN
from rem.models.results import Hit
from rem.text import collapse_spaces, find_sentence_spans

YOU = "you"
MAX_TITLE_CHARS = 60
MAX_LINE_CHARS = 280
MAX_QUOTED_WORDS = 28
"""With its source, a quote stays below 40 words."""
_BLOCK_START = re.compile(r"\A[ \t]*+(?:#{1,6}[ \t]|[-*+•>][ \t]|\d{1,3}[.)][ \t]|```|\||\Z)")
_HEADING = re.compile(r"\A[ \t]*+#{1,6}[ \t]")
_WHOLE_LINE = re.compile(r"\A[ \t]*+(?:#{1,6}[ \t]|```|\||\Z|[^:;]{1,60}: [^;]*; [^:;]{1,60}: )")
"""A heading, a fence or a row of a table is never wrapped; an item of a list can be."""
_TABLE_RULE = re.compile(r"\A[ \t]*+\|?[ \t:|]*+-{2}[ \t:|-]*\Z")
MIN_WRAPPED_CHARS = 50
"""A shorter line is not wrapped: it ends where its author wanted."""
_PART = re.compile(r"#\d+\Z")
_SEPARATORS = re.compile(r"[-_]+")


def find_title(hit: Hit) -> str:
    """Return what people call the source of a hit: a speaker, the title of a note, the name of a thing."""
    record = hit.record
    metadata = record.get("metadata") or {}
    if hit.table == "messages":
        speaker = metadata.get("speaker")
        return str(speaker) if speaker else "REM" if record.get("role") == "assistant" else YOU
    if hit.table == "resources" and record.get("origin") == REMEMBERED_ORIGIN:
        return YOU
    title = metadata.get("title") or record.get("caption")
    if not isinstance(title, str) or not title.strip():
        title = strip_markdown(hit.text).title or _shorten_name(str(record.get("name") or ""))
    return shorten(to_line(title), MAX_TITLE_CHARS)


def describe_source(hit: Hit) -> str:
    """Return the title of a hit and its date, such as "Shop alarm, 26 Oct 2026"."""
    title, day = find_title(hit), format_day(hit.happened_at.date()) if hit.happened_at else ""
    return ", ".join(part for part in (title, "" if day in title else day) if part)


def quote_sentence(hit: Hit, sentence: str) -> str:
    """Return a sentence of a hit on one line, with the dates of its relative expressions, and its source."""
    at = hit.happened_at
    line = shorten(to_line(sentence), MAX_LINE_CHARS)
    dated = add_dates(line, at.date()) if at else line
    source = describe_source(hit)
    return f"{dated} ({source})" if source else dated


def to_line(text: str) -> str:
    """Return a text on one line without Markdown."""
    plain = strip_markdown(text)
    return collapse_spaces(plain.text or plain.title)


def widen_quote(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the whole sentence around a span, with others of the same line if there is room for them.

    A line is what its author wrote as one: a message, a paragraph, an item of a list. A heading, also
    that of a table, answers nothing, so it gives way to what stands below it.
    """
    unwrapped = unwrap_lines(text)
    spans = list(find_sentence_spans(unwrapped)) or [(0, len(text))]
    middle = (start + end) // 2
    place = max((place for place, (first, _) in enumerate(spans) if first <= middle), default=0)
    lines = [unwrapped[first:last] for first, last in spans]
    while place + 1 < len(spans) and (_HEADING.match(lines[place]) or _is_table_head(lines[place : place + 2])):
        place += 1
    first = last = place
    while last + 1 < len(spans) and _is_same_line(unwrapped, spans[first][0], spans[last + 1][1]):
        last += 1
    while first > 0 and _is_same_line(unwrapped, spans[first - 1][0], spans[last][1]):
        first -= 1
    return spans[first][0], spans[last][1]


def _is_table_head(lines: Sequence[str]) -> bool:
    """Return whether the first of two lines is the rule below the names of columns, or the names above it."""
    return any(_TABLE_RULE.match(line) for line in lines) and lines[0].lstrip().startswith("|")


def _is_same_line(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text is short enough to be quoted, and on one line."""
    part = text[start:end]
    return "\n" not in part and len(part.split()) <= MAX_QUOTED_WORDS


def unwrap_lines(text: str) -> str:
    """Return a text of the same length, with a space for each line break inside of a paragraph."""
    lines = text.split("\n")
    joined = lines[:1]
    for line, following in pairwise(lines):
        is_wrapped = len(line) >= MIN_WRAPPED_CHARS and not (_WHOLE_LINE.match(line) or _BLOCK_START.match(following))
        joined += [" " if is_wrapped else "\n", following]
    return "".join(joined)


def shorten(text: str, max_chars: int) -> str:
    """Return a text, cut after a word if it is longer."""
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars].rsplit(' ', 1)[0]} …"


def _shorten_name(name: str) -> str:
    """Return the name of a file without its folders, its ending and its part: a path says where, not what."""
    path = PurePosixPath(_PART.sub("", name))
    stem = path.stem if path.suffix[1:].isalpha() else path.name
    return _SEPARATORS.sub(" ", stem) if "/" in name or path.suffix else name
