"""Passages: what of a row is weighed and embedded, in stretches that an embedder reads whole."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rem.embeddings import is_blank
from rem.retrieval.searchable_rows import SearchableRow
from rem.retrieval.text_splitter import split_text
from rem.retrieval.time_words import mentions_time

MAX_PASSAGE_CHARS = 900
"""In characters: about 230 of the 256 tokens that the local model reads."""
MAX_MESSAGE_CHARS = 8000
"""In characters: so much of a message is weighed as one; what is longer, in parts of this length."""
MAX_TITLE_CHARS = 200
EARLIER_MESSAGE_WEIGHTS = (0.6, 0.4, 0.3)
"""How much a word counts that was said one, two or three messages before."""
MAX_EARLIER_CHARS = 1000
"""In characters, of all that was said before: a short answer needs it, a long one would drown in it."""
_LENGTH_WEIGHT, _LONG_ENOUGH = 1.8, 15
_QUESTION_WEIGHT = -0.85
_HUMAN_WEIGHT = 2.2
_WORD = re.compile(r"\w+")
_CLOSING_REMARK = re.compile(r"\s*\[[^\]]*\]\s*$")


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of one field of a row, and the stretch around it whose words it is found by."""

    field: str
    start: int
    end: int
    weighed: tuple[int, int] | None = None
    """None if another passage stands for the words of this one."""


def split_row(row: SearchableRow) -> Iterator[Passage]:
    """The passages of a row; one for the title alone if it has nothing else."""
    if not row.is_searched:
        return
    is_empty = True
    for field, body in row.bodies.items():
        for passage in _message_passages(field, body) if row.is_message else _text_passages(field, body):
            if not is_blank(body[passage.start : passage.end]):
                is_empty = False
                yield passage
    if is_empty and not is_blank(row.title[:MAX_TITLE_CHARS]):
        yield Passage(next(iter(row.bodies)), 0, 0, (0, 0))


def _text_passages(field: str, body: str) -> Iterator[Passage]:
    """A text is read in places: each passage is found by its own words."""
    for start, end in split_text(body, MAX_PASSAGE_CHARS):
        yield Passage(field, start, end, (start, end))


def _message_passages(field: str, body: str) -> Iterator[Passage]:
    """A message is one answer: its first passage is found by the words of all of it."""
    for first, last in split_text(body, MAX_MESSAGE_CHARS):
        weighed: tuple[int, int] | None = (first, last)
        for start, end in split_text(body[first:last], MAX_PASSAGE_CHARS):
            yield Passage(field, first + start, first + end, weighed)
            weighed = None


def collect_weighted_texts(row: SearchableRow, passage: Passage) -> Iterator[tuple[str, float]]:
    """The texts whose words the passage is found by, each with how much its words count."""
    if passage.weighed is None:
        return
    start, end = passage.weighed
    yield row.bodies[passage.field][start:end], 1.0
    if row.title:
        yield row.title[:MAX_TITLE_CHARS], 1.0
    if row.happened_at is not None:
        yield f"{row.happened_at:%-d %B %Y}", 1.0
    room = MAX_EARLIER_CHARS
    for said, share in zip(row.before, EARLIER_MESSAGE_WEIGHTS, strict=False):
        room -= len(said)
        if room < 0:
            break
        yield said, share


def compute_prior(row: SearchableRow) -> float:
    """How good an answer the row makes whatever the question: better if it says something, and a person says it."""
    body = "\n".join(row.bodies.values())
    # About half of the words of a text carry meaning.
    words = min(sum(1 for _ in _WORD.finditer(body[:1000])) / 2, _LONG_ENOUGH)
    prior = _LENGTH_WEIGHT * math.log1p(words) / math.log1p(_LONG_ENOUGH)
    if _CLOSING_REMARK.sub("", body[-1000:]).rstrip().endswith(("?", "？")):
        prior += _QUESTION_WEIGHT
    if row.role != "assistant" or row.speaker:
        prior += _HUMAN_WEIGHT
    return prior


def row_mentions_time(row: SearchableRow) -> bool:
    """Whether the row says when something was or will be."""
    return row.is_message and any(mentions_time(body[:MAX_MESSAGE_CHARS]) for body in row.bodies.values())


def build_embedding_text(row: SearchableRow, passage: Passage) -> str:
    """What of a passage the embedder reads."""
    body = row.bodies[passage.field][passage.start : passage.end]
    title = row.title[:MAX_TITLE_CHARS] if row.is_title_meant or not body else ""
    return "\n".join(part for part in (title, body) if part)
