"""Rerank rows: the interface of rerankers, and how their scores are added to those of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from loguru import logger

from rem.errors import RerankerError
from rem.models.results import Note

if TYPE_CHECKING:
    from rem.search.reader import Reader
    from rem.settings import RerankerSettings


class Reranker(Protocol):
    """Scores how well texts answer a question. It raises RerankerError if it fails."""

    @property
    def name(self) -> str:
        """The name in notes and measurements."""

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return one logit per text, in their order. Higher is better."""

    async def close(self) -> None:
        """Release threads and memory. It may be called twice."""


@dataclass(frozen=True, slots=True)
class RowReranker:
    """Orders rows by the sum of their scores and the weighted logits of a model, which reads the best ones."""

    model: Reranker
    weight: float
    candidates: int

    async def order(self, question: str, texts: Sequence[str], scores: Sequence[float], notes: list[Note]) -> list[int]:
        """Return the positions of the rows, best first; those of equal sums in the order of their scores.

        Rows that the model does not read come last. If the model fails, the scores alone decide, and a note says so.
        """
        places = order_by_score(scores)
        best, rest = places[: self.candidates], places[self.candidates :]
        try:
            logits = await self.model.scores(question, [texts[place] for place in best])
        except RerankerError as error:
            logger.warning("The reranker failed, so its order is not used: {}", error)
            notes.append(Note("not_reranked", f"Not reranked: {error}"))
            return places
        sums = [scores[place] + self.weight * logit for place, logit in zip(best, logits, strict=True)]
        return [*(best[place] for place in order_by_score(sums)), *rest]


def order_by_score(scores: Sequence[float]) -> list[int]:
    """Return the positions of the scores, best first. Equal scores keep their order."""
    return sorted(range(len(scores)), key=lambda position: -scores[position])


def open_reader(settings: RerankerSettings) -> Reader:
    """Return REM's own model. This is cheap: it is loaded at its first use."""
    from rem.search.reader import Reader
    from rem.search.thread_pool import thread_count

    return Reader(threads=thread_count(settings.threads))


def open_reranker(settings: RerankerSettings, reader: Reader | None = None) -> Reranker | None:
    """Return the model of the settings, or None. Without one of their own it is the reader."""
    if settings.enabled is False:
        return None
    path = settings.model_path
    if path is None:
        return reader or open_reader(settings)
    from rem.search.cross_encoder import CrossEncoder
    from rem.search.cross_encoder_loader import find_model_folder, load_model
    from rem.search.thread_pool import thread_count

    return CrossEncoder(find_model_folder(path).name, lambda: load_model(path), threads=thread_count(settings.threads))


def make_search_reranker(model: Reranker | None, settings: RerankerSettings) -> RowReranker | None:
    """Return what reranks the hits of SEARCH, if the settings say so."""
    if model is None or not settings.reranks_search:
        return None
    return RowReranker(model, settings.weight, settings.candidates)
