"""Rerank rows: the interface of rerankers, and how their scores are added to those of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from loguru import logger

from rem.errors import RerankerError

if TYPE_CHECKING:
    from rem.settings import RerankerSettings

MAX_ANSWER_CHARS = 8_000
"""The model reads this much for an answer, so that 20 long passages do not delay it. Two free cores take about 140 ms
(`python -m bench reranker`)."""


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
class RowOrder:
    """The order of rows by a reranker."""

    places: list[int]
    """The positions of the rows, best first."""
    logits: Mapping[int, float]
    """The logit of each row that the model has read, by position; empty if the model failed."""


@dataclass(frozen=True, slots=True)
class RowReranker:
    """Orders rows by the sum of their scores and the weighted logits of a model, which reads the best ones."""

    model: Reranker
    weight: float
    candidates: int
    max_chars: int | None = None
    """The length of the texts together that the model reads."""
    replacements: Reranker | None = None
    """Scores whether the newer one of two texts replaces the older one, as an answer to a question."""

    async def order(self, question: str, texts: Sequence[str], scores: Sequence[float], notes: list[str]) -> RowOrder:
        """Return the order of the rows; those of equal sums in the order of their scores.

        Rows that the model does not read come last. If the model fails, the scores alone decide, and a note says so.
        """
        places = order_by_score(scores)
        count = self._count_read([len(texts[place]) for place in places[: self.candidates]])
        best, rest = places[:count], places[count:]
        try:
            logits = await self.model.scores(question, [texts[place] for place in best])
        except RerankerError as error:
            logger.warning("The reranker failed, so its order is not used: {}", error)
            notes.append(f"Not reranked: {error}")
            return RowOrder(places, {})
        sums = [scores[place] + self.weight * logit for place, logit in zip(best, logits, strict=True)]
        ordered = [*(best[place] for place in order_by_score(sums)), *rest]
        return RowOrder(ordered, dict(zip(best, logits, strict=True)))

    def _count_read(self, lengths: Sequence[int]) -> int:
        if self.max_chars is None:
            return len(lengths)
        return sum(total <= self.max_chars for total in accumulate(lengths))


def order_by_score(scores: Sequence[float]) -> list[int]:
    """Return the positions of the scores, best first. Equal scores keep their order."""
    return sorted(range(len(scores)), key=lambda position: -scores[position])


def open_reranker(settings: RerankerSettings) -> Reranker | None:
    """Return the model of the settings, or None. This is cheap: the model is loaded at its first use."""
    if settings.enabled is False:
        return None
    from rem.embeddings.thread_pool import thread_count
    from rem.retrieval.cross_encoder import CrossEncoder
    from rem.retrieval.cross_encoder_loader import OWN_MODEL, find_model_folder, load_model, load_own_model

    threads = thread_count(settings.threads)
    path = settings.model_path
    if path is None:
        return CrossEncoder(OWN_MODEL, load_own_model, threads=threads)
    return CrossEncoder(find_model_folder(path).name, lambda: load_model(path), threads=threads)


def open_replacement_model(settings: RerankerSettings) -> Reranker | None:
    """Return the model that finds replaced rows in answers, or None. This is cheap, too."""
    if settings.enabled is False or not settings.answer_weight:
        return None
    from rem.embeddings.thread_pool import thread_count
    from rem.retrieval.cross_encoder import CrossEncoder
    from rem.retrieval.cross_encoder_loader import REPLACEMENT_MODEL, load_replacement_model

    return CrossEncoder(REPLACEMENT_MODEL, load_replacement_model, threads=thread_count(settings.threads))


def make_search_reranker(model: Reranker | None, settings: RerankerSettings) -> RowReranker | None:
    """Return what reranks the hits of SEARCH, if the settings say so."""
    if model is None or not settings.reranks_search:
        return None
    return RowReranker(model, settings.weight, settings.candidates)


def make_answer_reranker(
    model: Reranker | None, settings: RerankerSettings, replacements: Reranker | None
) -> RowReranker | None:
    """Return what reranks the rows of answers to questions in plain words, if the settings say so."""
    if model is None or not settings.answer_weight:
        return None
    return RowReranker(model, settings.answer_weight, settings.candidates, MAX_ANSWER_CHARS, replacements)
