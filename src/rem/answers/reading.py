"""AnswerReader: what the answer engine asks models about rows, messages, and pairs of older and newer rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rem.search.reader import MessageReading, Reader, RowReading, RowText
from rem.search.reranker import Reranker


class AnswerReader:
    """Reads with the reader of the package, and orders with another model if the settings name one.

    Methods raise RerankerError if a model fails.
    """

    def __init__(self, reader: Reader, reranker: Reranker) -> None:
        """Take the relevance of rows from `reranker`, and all else from `reader`."""
        self._reader = reader
        self._reranker = reranker

    async def read(self, question: str, rows: Sequence[RowText]) -> list[RowReading | None]:
        """Return what each row says about a question, in their order; None for a row that was not read."""
        readings = await self._reader.read(question, rows)
        if self._reranker is self._reader:
            return readings
        logits = await self._reranker.scores(question, [row.text for row in rows])
        return [
            None if reading is None else replace(reading, relevance=logit)
            for reading, logit in zip(readings, logits, strict=True)
        ]

    async def classify(self, message: str, previous: str | None = None) -> MessageReading:
        """Return what a message asks for or does, and whether it continues the one before it."""
        alone = await self._reader.classify(message)
        if not previous:
            return alone
        # With the message before it, a question that was asked twice looks like a statement.
        return replace(alone, continues=(await self._reader.classify(message, previous)).continues)

    async def find_replaced(self, question: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return for each pair of an older and a newer text how sure it is that the newer one replaces the older."""
        return await self._reader.replaces(question, [(newer, older) for older, newer in pairs])
