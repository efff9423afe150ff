"""Rerank the best hits of a search: the interface of rerankers, and how both scores are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rem.settings import Settings


class Reranker(Protocol):
    """Scores how well texts answer a question. It raises RerankerError if it fails."""

    @property
    def name(self) -> str:
        """The name in notes and measurements."""

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return one score per text, in their order. Higher is better."""

    async def close(self) -> None:
        """Release threads and memory. It may be called twice."""


def open_reranker(settings: Settings) -> Reranker | None:
    """Return the reranker of the settings, or None. This is cheap: the model is loaded at its first use."""
    configured = settings.reranker
    if configured.model_path is None:
        return None
    from rem.embeddings.thread_pool import thread_count
    from rem.retrieval.cross_encoder import CrossEncoder

    return CrossEncoder(configured.model_path, threads=thread_count(configured.threads))


def rank_candidates(search_scores: Sequence[float], reranker_scores: Sequence[float], weight: float) -> list[int]:
    """Return the positions of the candidates, best first. Candidates with equal scores keep their order."""
    scores = blend_scores(search_scores, reranker_scores, weight)
    return sorted(range(len(scores)), key=lambda position: -scores[position])


def blend_scores(search_scores: Sequence[float], reranker_scores: Sequence[float], weight: float) -> list[float]:
    """Combine both scores into one from 0 to 1 per candidate. `weight` is the share of the reranker's score."""
    return [
        weight * reranker + (1 - weight) * search
        for search, reranker in zip(_normalise(search_scores), _normalise(reranker_scores), strict=True)
    ]


def _normalise(scores: Sequence[float]) -> list[float]:
    """Scale scores to 0 (worst) … 1 (best). If all are equal, all are 1."""
    if not scores:
        return []
    lowest = min(scores)
    spread = max(scores) - lowest
    return [(score - lowest) / spread if spread else 1.0 for score in scores]
