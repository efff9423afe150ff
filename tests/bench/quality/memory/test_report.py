"""Reports on the quality of the memory: differences beyond noise, and files that can be read again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from bench.quality.memory.report import (
    MetricChange,
    Mode,
    QualityMetric,
    QualityReport,
    compare_reports,
    find_previous,
    list_reports,
    make_mean,
    make_share,
    read_report,
    write_report,
)

from rem.errors import InvalidInputError

MONDAY = datetime(2026, 11, 16, 12, tzinfo=UTC)


def _report(at: datetime = MONDAY, mode: Mode = "quick", **metrics: QualityMetric) -> QualityReport:
    return QualityReport(made_at=at, mode=mode, versions={"rem": "1"}, metrics=metrics, seconds=1.0)


def _answers(right: int, wrong: int, data: str = "d") -> QualityMetric:
    """Return a metric whose first cases are right."""
    return make_mean({f"q{number}": float(number < right) for number in range(right + wrong)}, data)


def _compare(before: QualityMetric, after: QualityMetric) -> MetricChange:
    (change,) = compare_reports(_report(x=before), _report(x=after))
    return change


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (_answers(80, 20), _answers(80, 20), "same"),
        (_answers(80, 20), _answers(79, 21), "same"),
        (_answers(80, 20), _answers(78, 22), "same"),
        (_answers(80, 20), _answers(70, 30), "worse"),
        (_answers(70, 30), _answers(80, 20), "better"),
        (_answers(8, 2), _answers(7, 3), "same"),
        (_answers(80, 20), _answers(10, 90, "other"), "other data"),
        (make_share(20, 20), make_share(20, 20), "same"),
        (make_share(20, 20), make_share(10, 20), "worse"),
        (make_share(1000, 1000), make_share(995, 1000), "same"),
        (make_share(1000, 1000), make_share(900, 1000), "worse"),
        (make_share(0, 0), make_share(0, 0), "same"),
    ],
)
def test_only_a_difference_beyond_noise_counts(before: QualityMetric, after: QualityMetric, verdict: str) -> None:
    assert _compare(before, after).verdict == verdict


def test_cases_that_swap_are_noise_and_cases_that_fall_are_not() -> None:
    before = make_mean({f"q{number}": float(number % 2) for number in range(40)}, "d")
    swapped = make_mean({f"q{number}": float(number % 2 == 0) for number in range(40)}, "d")
    assert _compare(before, swapped).verdict == "same"
    fallen = make_mean({f"q{number}": float(number % 2 and number > 16) for number in range(40)}, "d")
    assert _compare(before, fallen).verdict == "worse"


def test_new_metric_is_no_regression() -> None:
    (change,) = compare_reports(_report(), _report(x=_answers(0, 10)))
    assert (change.verdict, change.before) == ("new", None)


def test_reports_are_kept_private_and_found_by_mode(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert find_previous(folder, "quick") is None
    first = write_report(folder, _report(x=_answers(1, 1)))
    second = write_report(folder, _report(x=_answers(2, 0)))
    assert first != second
    assert first.stat().st_mode & 0o777 == 0o600
    write_report(folder, _report(MONDAY + timedelta(days=1), "full"))
    (folder / "memory-broken.json").write_text("{")
    assert [report.mode for _, report in list_reports(folder)] == ["quick", "quick", "full"]
    found = find_previous(folder, "quick")
    assert found is not None
    assert found[1].mode == "quick"
    assert read_report(first) == _report(x=_answers(1, 1))
    with pytest.raises(InvalidInputError, match="is not a report"):
        read_report(folder / "memory-broken.json")
