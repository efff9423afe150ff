"""Metrics of a ranking, all between 0 and 1: gold ids (to be found) against results (found, best first)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

Metric: TypeAlias = Callable[[Collection[str], Sequence[str], int], float]


def recall(gold: Collection[str], results: Sequence[str], k: int) -> float:
    """Return the share of the gold ids among the first k results."""
    gold_ids = set(gold)
    return len(gold_ids.intersection(results[:k])) / len(gold_ids)


def recall_all(gold: Collection[str], results: Sequence[str], k: int) -> float:
    """Return 1 if all gold ids are among the first k results, otherwise 0."""
    return float(set(gold).issubset(results[:k]))


def recall_any(gold: Collection[str], results: Sequence[str], k: int) -> float:
    """Return 1 if at least one gold id is among the first k results, otherwise 0."""
    return float(not set(gold).isdisjoint(results[:k]))


def ndcg_any(gold: Collection[str], results: Sequence[str], k: int) -> float:
    """Return the normalized discounted cumulative gain, with the same gain for every gold id.

    The discount is that of LongMemEval's authors: the second rank counts as much as the first.
    """
    gold_ids = set(gold)
    ideal = sum(_discount(rank) for rank in range(min(k, len(gold_ids))))
    return sum(_discount(rank) for rank, result in enumerate(results[:k]) if result in gold_ids) / ideal


def mrr(gold: Collection[str], results: Sequence[str], k: int) -> float:
    """Return 1 / rank of the first gold id; 0 if none is among the first k results."""
    gold_ids = set(gold)
    return next((1 / rank for rank, result in enumerate(results[:k], start=1) if result in gold_ids), 0.0)


def _discount(rank: int) -> float:
    return 1.0 if rank == 0 else 1 / math.log2(rank + 1)


METRICS: dict[str, Metric] = {
    "recall": recall,
    "recall_all": recall_all,
    "recall_any": recall_any,
    "ndcg_any": ndcg_any,
    "mrr": mrr,
}


def measure(name: str, gold: Collection[str], results: Sequence[str]) -> float:
    """Return the metric with this name, such as recall_all@5. `gold` must not be empty, `results` has no duplicates."""
    metric, _, k = name.partition("@")
    return METRICS[metric](gold, results, int(k))


def mean(values: Collection[float]) -> float | None:
    """Return the mean, or None without values."""
    return sum(values) / len(values) if values else None


def percentile(values: Collection[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values does not exceed, or None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
