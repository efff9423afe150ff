"""Split rows into passages, and compute what the index stores of them: words, prior, text to embed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rem.message_kinds import get_kind, is_reminder
from rem.models.message import MessageKind, Role
from rem.search.embedding_validation import is_blank
from rem.search.identifiers import find_identifier_words
from rem.search.searchable_rows import SearchableRow
from rem.search.text_splitter import split_text
from rem.search.time_words import mentions_time

MAX_PASSAGE_CHARS = 900
"""About 230 of the 256 tokens that the local embedding model reads."""
MAX_FRONT_MATTER_CHARS = 2000
MAX_MESSAGE_CHARS = 8000
"""The words of a message are weighed together up to this length. A longer message is weighed in parts."""
MAX_TITLE_CHARS = 200
TITLE_WEIGHT = 2.0
"""The weight of the words of a title: a title says what a text is about."""
EARLIER_MESSAGE_WEIGHTS = (0.6, 0.4, 0.3)
"""The weights of words from one, two and three messages before."""
MAX_EARLIER_CHARS = 1000
"""The total length of earlier messages. Short answers need them; long ones would outweigh the message itself."""
MAX_SUBJECT_CHARS = 300
"""Length of an earlier message that is embedded with one that continues it."""
CONTEXT_WEIGHT = 0.3
"""The weight of the words before and after a passage of a long text: its subject is often named there."""
LENGTH_PRIOR = 1.8
FULL_LENGTH_WORDS = 15
"""A text with this many content words gets the full length prior."""
QUESTION_PRIOR = -0.85
PERSON_PRIOR = 2.2
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?^---[ \t]*(?:\r?\n|\Z)\s*", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"\w+")
_TITLE_WORD = re.compile(r"[^\W\d_]{3}|[^\W\d_a-zA-Z]")
_CLOSING_REMARK = re.compile(r"(?:(?<!\s)\s+)?\[[^\]]{0,500}\]\s*$")


class PassageKind(StrEnum):
    """What the passages of a row are for an answer. The kind decides about ranks, and never hides a message."""

    STATEMENT = "statement"
    """Also notes and documents, and what a named speaker of a talk said."""
    QUESTION = "question"
    REMARK = "remark"
    """A command, small talk or a quotation of a user."""
    ANSWER = "answer"
    """What an assistant said. It is no evidence."""
    COPY = "copy"
    """A row made of other rows, by a dream or as a record. It would rank beside these rows: only FROM finds it."""


@dataclass(frozen=True, slots=True)
class PassageSpan:
    """A part of one field of a row, as offsets, and the part around it whose words are indexed with it."""

    field: str
    start: int
    end: int
    weighed: tuple[int, int] | None = None
    """None if another passage holds the words of this one."""


def split_row(row: SearchableRow) -> Iterator[PassageSpan]:
    """Yield the passages of a row. A row with a title and no text gets one empty passage for the title."""
    if not row.is_searched:
        return
    is_empty = True
    for field, body in row.bodies.items():
        for passage in split_message(field, body) if row.is_message else _text_passages(field, body):
            if not is_blank(body[passage.start : passage.end]):
                is_empty = False
                yield passage
    if is_empty and not is_blank(row.title[:MAX_TITLE_CHARS]):
        yield PassageSpan(next(iter(row.bodies)), 0, 0, (0, 0))


def _text_passages(field: str, body: str) -> Iterator[PassageSpan]:
    """Split a text. Each passage is indexed by its own words.

    Front matter is not embedded or shown, but its words (tags, aliases) are found.
    """
    front_matter = _FRONT_MATTER.match(body[:MAX_FRONT_MATTER_CHARS])
    body_start = front_matter.end() if front_matter else 0
    for start, end in split_text(body, MAX_PASSAGE_CHARS):
        shown_start = max(start, min(body_start, end))
        yield PassageSpan(field, start if is_blank(body[shown_start:end]) else shown_start, end, (start, end))


def split_message(field: str, body: str) -> Iterator[PassageSpan]:
    """Split a message. Its first passage is indexed by the words of the whole message."""
    for first, last in split_text(body, MAX_MESSAGE_CHARS):
        weighed: tuple[int, int] | None = (first, last)
        for start, end in split_text(body[first:last], MAX_PASSAGE_CHARS):
            yield PassageSpan(field, first + start, first + end, weighed)
            weighed = None


def collect_weighted_texts(row: SearchableRow, passage: PassageSpan) -> Iterator[tuple[str, float]]:
    """Yield the texts whose words a passage is found by, with their weights.

    They are the body and its identifiers, the text around it, the title, the date, and the earlier messages.
    """
    if passage.weighed is None:
        return
    start, end = passage.weighed
    body = row.bodies[passage.field][start:end]
    yield body, 1.0
    if identifier_words := find_identifier_words(body):
        yield identifier_words, 1.0
    if not row.is_message:
        for context in _context_of(row.bodies[passage.field], start, end):
            yield context, CONTEXT_WEIGHT
    if row.title:
        yield row.title[:MAX_TITLE_CHARS], TITLE_WEIGHT
    if row.happened_at is not None:
        yield f"{row.happened_at:%-d %B %Y}", 1.0
    remaining_chars = MAX_EARLIER_CHARS
    for message, weight in zip(row.earlier_messages, EARLIER_MESSAGE_WEIGHTS, strict=False):
        remaining_chars -= len(message)
        if remaining_chars < 0:
            break
        yield message, weight


def _context_of(body: str, start: int, end: int) -> Iterator[str]:
    """Yield the whole words before and after a passage, up to the length of a passage each."""
    before = body[max(start - MAX_PASSAGE_CHARS, 0) : start]
    after = body[end : end + MAX_PASSAGE_CHARS]
    if start > MAX_PASSAGE_CHARS:
        before = before.partition(" ")[2]
    if end + MAX_PASSAGE_CHARS < len(body):
        after = after.rpartition(" ")[0]
    yield from (text for text in (before, after) if not is_blank(text))


def compute_prior(row: SearchableRow) -> float:
    """Return the part of the score that does not depend on the query. Long texts and texts of people score higher."""
    body = "\n".join(row.bodies.values())
    # About half of the words of a text are content words.
    words = min(sum(1 for _ in _WORD.finditer(body[:1000])) / 2, FULL_LENGTH_WORDS)
    prior = LENGTH_PRIOR * math.log1p(words) / math.log1p(FULL_LENGTH_WORDS)
    if _CLOSING_REMARK.sub("", body[-1000:]).rstrip().endswith(("?", "？")):
        prior += QUESTION_PRIOR
    if row.role != "assistant" or row.speaker:
        prior += PERSON_PRIOR
    return prior


def get_passage_kind(row: SearchableRow) -> PassageKind:
    """Return the kind of the passages of a row. A request to be reminded tells what somebody has to do."""
    if row.role is None:
        return PassageKind.STATEMENT if row.kind is None else PassageKind.COPY
    if row.role == Role.ASSISTANT:
        return PassageKind.STATEMENT if row.speaker else PassageKind.ANSWER
    text = "\n".join(row.bodies.values())
    kind = row.kind or get_kind(Role(row.role), text)
    if kind in (None, MessageKind.STATEMENT) or (kind == MessageKind.COMMAND and is_reminder(text)):
        return PassageKind.STATEMENT
    return PassageKind.QUESTION if kind == MessageKind.QUESTION else PassageKind.REMARK


def row_mentions_time(row: SearchableRow) -> bool:
    """Return whether the row is a message that mentions a time."""
    return row.is_message and any(mentions_time(body[:MAX_MESSAGE_CHARS]) for body in row.bodies.values())


def build_embedding_text(row: SearchableRow, passage: PassageSpan) -> str:
    """Return the text of a passage to embed: its title and its body."""
    body = row.bodies[passage.field][passage.start : passage.end]
    title = row.title[:MAX_TITLE_CHARS] if row.has_own_title or not body else ""
    if body and not _TITLE_WORD.search(title):
        # A title without words is only an id.
        title = ""
    # A message outside of a dialogue has no neighbours that could tell its subject: "His owner is Ada."
    subject = row.earlier_messages[-1] if row.earlier_messages and row.position is None else ""
    return "\n".join(part for part in (title, subject[:MAX_SUBJECT_CHARS], body) if part)
