"""Passages: what of a row is weighed and embedded, in stretches that an embedder reads whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rem.embeddings import is_blank
from rem.retrieval.corpus import SearchableRow
from rem.retrieval.splitter import split

LONGEST_PASSAGE = 900
"""In characters: about 200 of the 256 tokens that the local model reads, which leaves room for what stands around."""
LONGEST_TITLE = 200
BEFORE_SHARES = (0.6, 0.4, 0.3)
"""How much a word counts that was said one, two or three messages before."""
LONGEST_BEFORE = 1000
"""In characters, of all that was said before: a short answer needs it, a long one would drown in it."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of one field of a row."""

    field: str
    start: int
    end: int


def passages_of(row: SearchableRow) -> Iterator[Passage]:
    """The passages of a row; one for the title alone if it has nothing else."""
    is_empty = True
    for field, body in row.bodies.items():
        for start, end in split(body, LONGEST_PASSAGE):
            if not is_blank(body[start:end]):
                is_empty = False
                yield Passage(field, start, end)
    if is_empty and not is_blank(row.title):
        yield Passage(next(iter(row.bodies)), 0, 0)


def body_of(row: SearchableRow, passage: Passage) -> str:
    """The passage's own words."""
    return row.bodies[passage.field][passage.start : passage.end]


def weighed_texts(row: SearchableRow, passage: Passage) -> Iterator[tuple[str, float]]:
    """The texts whose words the passage is found by, each with how much its words count."""
    yield body_of(row, passage), 1.0
    if row.title:
        yield row.title[:LONGEST_TITLE], 1.0
    if row.group_id is not None:
        yield f"{row.created_at:%-d %B %Y}", 1.0
    room = LONGEST_BEFORE
    for said, share in zip(row.before, BEFORE_SHARES, strict=False):
        room -= len(said)
        if room < 0:
            break
        yield said, share


def prior_of(row: SearchableRow, passage: Passage) -> float:
    """How good an answer the passage makes whatever the question."""
    return 0.0


def embedded_text(row: SearchableRow, passage: Passage) -> str:
    """What of a passage the embedder reads."""
    return "\n".join(part for part in (row.title[:LONGEST_TITLE], body_of(row, passage)) if part)
