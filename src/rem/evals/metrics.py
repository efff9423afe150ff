"""Metrics of rankings with known answers, and means and percentiles of figures."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence


def recall(gold: Collection[str], results: Sequence[str], k: int) -> float:
    """Return the share of the gold ids among the first k results."""
    gold_ids = set(gold)
    return len(gold_ids.intersection(results[:k])) / len(gold_ids)


def mrr(gold: Collection[str], results: Sequence[str], k: int) -> float:
    """Return 1 / rank of the first gold id; 0 if none is among the first k results."""
    gold_ids = set(gold)
    return next((1 / rank for rank, result in enumerate(results[:k], start=1) if result in gold_ids), 0.0)


def ndcg(grades: Mapping[str, int], results: Sequence[str], k: int) -> float:
    """Return the normalized discounted cumulative gain of the first k results, as trec_eval computes it."""
    ideal = sorted(grades.values(), reverse=True)
    gains = [grades.get(result, 0) for result in results]
    return _discounted_sum(gains[:k]) / _discounted_sum(ideal[:k])


def mean(values: Collection[float]) -> float | None:
    """Return the mean, or None without values."""
    return sum(values) / len(values) if values else None


def percentile(values: Collection[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed, or None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def _discounted_sum(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
