"""ReadResult: the rows that were read for a question, with the sentences that answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rem.answers.sources import quote_sentence, widen_quote
from rem.models.results import Hit, Note, Span, Step
from rem.search.reader import MessageType, RowReading, RowText


@dataclass(frozen=True, slots=True)
class ReadHit:
    """A hit with what the model read in it."""

    hit: Hit
    row: RowText
    """What the model read: the text with its title and the message before it."""
    reading: RowReading

    @property
    def sentence(self) -> str:
        """The sentence that answers, with others of the same line if it is short."""
        start, end = self.span
        return self.hit.shown_text[start:end].strip()

    @property
    def span(self) -> tuple[int, int]:
        """The place of the sentence in the shown text."""
        return widen_quote(self.hit.shown_text, *self.reading.sentence)

    @property
    def line(self) -> str:
        """The sentence with its dates and its source."""
        return quote_sentence(self.hit, self.sentence)


class TableAnswer(NamedTuple):
    """The words in which a table or a list answers."""

    text: str
    hit: Hit
    """The note or message that contains the table."""
    row: str
    """The likeliest row of the table, as it was read."""
    confidence: float
    """How sure it is that this is the answer, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The rows that were read for one wording of a question, best first."""

    question: str
    read: Sequence[ReadHit] = ()
    confidence: float = 0.0
    kind: MessageType = MessageType.FACT
    support: Sequence[ReadHit] = field(default=())
    """The rows that say whom or what a description means."""
    unread: Sequence[Hit] = ()
    """What an assistant said about it, which is no evidence, and what was found by its name alone."""
    table: TableAnswer | None = None
    notes: tuple[Note, ...] = ()
    """What was not searched or not read."""
    steps: tuple[Step, ...] = ()
    """The timed steps of the search."""

    @property
    def hits(self) -> list[Hit]:
        """The hits of an answer, those of the first hop after the best one."""
        hits = [item.hit for item in self.read]
        return [*hits[:1], *(item.hit for item in self.support), *hits[1:]]

    @property
    def quote(self) -> Span | None:
        """The sentence of the best hit."""
        if not self.read:
            return None
        start, end = self.read[0].span
        return Span(0, start, end, self.read[0].hit.shown_text[start:end])
