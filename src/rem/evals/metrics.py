"""Metrics of a ranking: what should be found against what was found, best first. All are between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

Metric: TypeAlias = Callable[[Collection[str], Sequence[str], int], float]


def recall(gold: Collection[str], found: Sequence[str], k: int) -> float:
    """Which share of the gold ids is among the first k."""
    wanted = set(gold)
    return len(wanted.intersection(found[:k])) / len(wanted)


def recall_all(gold: Collection[str], found: Sequence[str], k: int) -> float:
    """Whether every gold id is among the first k: 1 or 0."""
    return float(set(gold).issubset(found[:k]))


def recall_any(gold: Collection[str], found: Sequence[str], k: int) -> float:
    """Whether at least one gold id is among the first k: 1 or 0."""
    return float(not set(gold).isdisjoint(found[:k]))


def ndcg_any(gold: Collection[str], found: Sequence[str], k: int) -> float:
    """How early the gold ids come, each counting the same, against the best possible order.

    The discount is that of LongMemEval's authors: the second place counts as much as the first.
    """
    wanted = set(gold)
    ideal = sum(_gain(place) for place in range(min(k, len(wanted))))
    return sum(_gain(place) for place, one in enumerate(found[:k]) if one in wanted) / ideal


def mrr(gold: Collection[str], found: Sequence[str], k: int) -> float:
    """One through the place of the first gold id; 0 if none is among the first k."""
    wanted = set(gold)
    return next((1 / place for place, one in enumerate(found[:k], start=1) if one in wanted), 0.0)


def _gain(place: int) -> float:
    return 1.0 if place == 0 else 1 / math.log2(place + 1)


_METRICS: dict[str, Metric] = {
    "recall": recall,
    "recall_all": recall_all,
    "recall_any": recall_any,
    "ndcg_any": ndcg_any,
    "mrr": mrr,
}


def measure(name: str, gold: Collection[str], found: Sequence[str]) -> float:
    """A metric by its name and depth, such as recall_all@5. There is a gold id, and nothing is found twice."""
    metric, _, depth = name.partition("@")
    return _METRICS[metric](gold, found, int(depth))


def mean(values: Collection[float]) -> float | None:
    """The mean; None of nothing."""
    return sum(values) / len(values) if values else None


def percentile(values: Collection[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
