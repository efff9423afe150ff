"""The metrics of evaluators, compared with values that were computed by hand."""

from __future__ import annotations

import pytest

from rem.evals.metrics import mean, ndcg, percentile


def test_ndcg_equals_hand_computed_value() -> None:
    # Gains 1 and 3 at ranks 1 and 2, against 3 and 1.
    assert ndcg({"a": 3, "b": 1}, ["b", "a", "c"], 10) == pytest.approx((1 + 3 / 1.58496) / (3 + 1 / 1.58496), abs=1e-4)
    assert ndcg({"a": 3}, ["b"], 10) == 0


def test_percentile_is_one_of_the_values() -> None:
    values = [40.0, 10.0, 30.0, 20.0]
    assert (percentile(values, 0.5), percentile(values, 0.95)) == (20.0, 40.0)
    assert percentile([7.0], 0.95) == 7.0
    assert percentile([], 0.5) is None


def test_mean_of_nothing_is_none() -> None:
    assert mean([0.5, 1.0]) == 0.75
    assert mean([]) is None
