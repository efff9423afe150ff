"""The metrics, compared with values that were computed by hand."""

from __future__ import annotations

import math

import pytest
from bench.quality.report import measure

_FOUND = ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    ("name", "gold", "expected"),
    [
        ("recall@5", ["a", "z"], 0.5),
        ("recall@5", ["f"], 0.0),
        ("recall@10", ["f"], 1.0),
        ("recall@1", ["a", "b", "c", "d"], 0.25),
        ("recall@5", ["a", "a"], 1.0),
        ("recall_all@5", ["a", "e"], 1.0),
        ("recall_all@5", ["a", "f"], 0.0),
        ("recall_all@10", ["a", "f"], 1.0),
        ("recall_any@5", ["z", "e"], 1.0),
        ("recall_any@5", ["z", "f"], 0.0),
        ("mrr@10", ["z", "d"], 0.25),
        ("mrr@10", ["z"], 0.0),
        ("mrr@3", ["d"], 0.0),
        # The first two places count 1, the third 1 / log2(3), the fourth 1 / 2.
        ("ndcg_any@10", ["a"], 1.0),
        ("ndcg_any@10", ["b"], 1.0),
        ("ndcg_any@10", ["d"], 0.5),
        ("ndcg_any@10", ["c", "d"], (1 / math.log2(3) + 0.5) / 2),
        ("ndcg_any@10", ["a", "z"], 0.5),
        ("ndcg_any@2", ["a", "b", "c"], 1.0),
        ("ndcg_any@10", ["z"], 0.0),
    ],
)
def test_metric_equals_hand_computed_value(name: str, gold: list[str], expected: float) -> None:
    assert measure(name, gold, _FOUND) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["recall@5", "recall_all@5", "recall_any@5", "ndcg_any@10", "mrr@10"])
def test_metric_of_no_results_is_zero(name: str) -> None:
    assert measure(name, ["a"], []) == 0
