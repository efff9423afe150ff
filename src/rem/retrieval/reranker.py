"""Rereading the best candidates: what a reranker promises, and how its order and the search's become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rem.settings import Settings


class Reranker(Protocol):
    """Says how well texts answer a question, reading both together. A failure is a `RerankerError`."""

    @property
    def name(self) -> str:
        """What to call it in notes and measurements."""

    async def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """One score per text, in their order; higher is better."""

    async def close(self) -> None:
        """Give back threads and memory; closing twice is fine."""


def open_reranker(settings: Settings) -> Reranker | None:
    """The reranker that the settings ask for, if any. Cheap: the model is loaded at its first use."""
    wanted = settings.reranker
    if wanted.model_path is None:
        return None
    from rem.embeddings.thread_pool import thread_count
    from rem.retrieval.cross_encoder import CrossEncoder

    return CrossEncoder(wanted.model_path, threads=thread_count(wanted.threads))


def rank_candidates(scores_fusion: Sequence[float], scores_reranker: Sequence[float], weight: float) -> list[int]:
    """The candidates' positions, best first; candidates that are equally good keep their order."""
    scores = blend_scores(scores_fusion, scores_reranker, weight)
    return sorted(range(len(scores)), key=lambda position: -scores[position])


def blend_scores(scores_fusion: Sequence[float], scores_reranker: Sequence[float], weight: float) -> list[float]:
    """One score from 0 to 1 per candidate: `weight` of it is the reranker's, the rest that of the search."""
    return [
        weight * reranker + (1 - weight) * fusion
        for fusion, reranker in zip(_normalised(scores_fusion), _normalised(scores_reranker), strict=True)
    ]


def _normalised(scores: Sequence[float]) -> list[float]:
    """The scores from 0 (the worst) to 1 (the best); if all are equal, all are the best."""
    if not scores:
        return []
    least = min(scores)
    reach = max(scores) - least
    return [(score - least) / reach if reach else 1.0 for score in scores]
