"""The report on the quality of the memory: metrics between 0 and 1, kept as files, and compared beyond noise."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from statistics import stdev
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rem.errors import InvalidInputError

Mode: TypeAlias = Literal["quick", "full"]
Verdict: TypeAlias = Literal["same", "better", "worse", "new", "other data"]
FORMAT = 1
"""The version of the files. Files of another one are not compared."""
MIN_CHANGE = 0.01
"""A smaller change is never reported as one."""
ERRORS_OF_NOISE = 2.0
"""Standard errors that count as noise: a larger difference is by chance in 1 of 20 comparisons."""


class QualityMetric(BaseModel):
    """One figure. 1 is the best value, 0 the worst."""

    model_config = ConfigDict(extra="forbid")

    value: float
    count: int
    """The number of cases that it is the mean of."""
    data: str = ""
    """The fingerprint of the data. Figures of other data are not compared."""
    cases: dict[str, float] = Field(default_factory=dict)
    """The figure of each case, so that two reports are compared case by case."""


class QualityReport(BaseModel):
    """The quality of the memory at one time, with one version of REM."""

    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    made_at: datetime
    mode: Mode
    note: str | None = None
    versions: dict[str, str]
    metrics: dict[str, QualityMetric]
    counts: dict[str, int] = Field(default_factory=dict)
    """What the audit of the user's own memory found, by check."""
    speed: dict[str, float] = Field(default_factory=dict)
    """Times, which are shown but not judged, because they depend on the machine."""
    seconds: float
    details: dict[str, Any] = Field(default_factory=dict)
    """The reports of the single benchmarks."""


class MetricChange(BaseModel):
    """A metric of two reports."""

    name: str
    before: float | None
    after: float
    noise: float | None
    """A difference up to this may be chance."""
    verdict: Verdict


def compare_reports(before: QualityReport, after: QualityReport) -> list[MetricChange]:
    """Return the change of every metric of the new report."""
    return [_compare(name, before.metrics.get(name), metric) for name, metric in after.metrics.items()]


def _compare(name: str, before: QualityMetric | None, after: QualityMetric) -> MetricChange:
    if before is None:
        return MetricChange(name=name, before=None, after=after.value, noise=None, verdict="new")
    if before.data != after.data:
        return MetricChange(name=name, before=before.value, after=after.value, noise=None, verdict="other data")
    noise = max(_estimate_noise(before, after), MIN_CHANGE)
    difference = after.value - before.value
    verdict: Verdict = "same" if abs(difference) <= noise else "better" if difference > 0 else "worse"
    return MetricChange(name=name, before=before.value, after=after.value, noise=round(noise, 4), verdict=verdict)


def _estimate_noise(before: QualityMetric, after: QualityMetric) -> float:
    """Return a difference that may be chance: of the same cases by how they changed, else by the number of cases."""
    if len(after.cases) > 1 and before.cases.keys() == after.cases.keys():
        differences = [after.cases[case] - before.cases[case] for case in after.cases]
        return ERRORS_OF_NOISE * stdev(differences) / math.sqrt(len(differences))
    variances = (metric.value * (1 - metric.value) / max(metric.count, 1) for metric in (before, after))
    return ERRORS_OF_NOISE * math.sqrt(sum(max(variance, 0.0) for variance in variances))


def write_report(folder: Path, report: QualityReport) -> Path:
    """Write a report to a new file that only its owner can read, and return its path."""
    name = f"memory-{report.made_at:%Y-%m-%dT%H%M%SZ}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(1, 1000):
            path = folder / f"{name}{'' if number == 1 else f'-{number}'}.json"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                continue
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(report.model_dump_json(indent=1) + "\n")
            return path
    except OSError as error:
        raise InvalidInputError(
            f"{folder} cannot be written: {error.strerror}. Name another with --reports."
        ) from error
    raise InvalidInputError(f"{folder} has too many reports of the same second.")


def read_report(path: Path) -> QualityReport:
    """Read a report. Raise InvalidInputError if the file is not one."""
    try:
        return QualityReport.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        raise InvalidInputError(
            f"{path} is not a report of `python -m bench memory`, or one of another version."
        ) from error


def list_reports(folder: Path) -> list[tuple[Path, QualityReport]]:
    """Return the reports of a folder, oldest first. Files that are no reports are left out."""
    reports = []
    for path in folder.glob("memory-*.json") if folder.is_dir() else ():
        try:
            reports.append((path, read_report(path)))
        except InvalidInputError:
            continue
    return sorted(
        ((path, report) for path, report in reports if report.format == FORMAT), key=lambda item: item[1].made_at
    )


def find_previous(folder: Path, mode: Mode) -> tuple[Path, QualityReport] | None:
    """Return the newest report of the same mode; None if there is none."""
    return next((item for item in reversed(list_reports(folder)) if item[1].mode == mode), None)


def make_share(part: int, whole: int) -> QualityMetric:
    """Return the share of cases that are right, for a metric without single cases; 1 if there are none."""
    return QualityMetric(value=round(part / whole, 4) if whole else 1.0, count=whole)


def make_mean(cases: Mapping[str, float], data: str) -> QualityMetric:
    """Return the mean of the cases."""
    value = sum(cases.values()) / len(cases) if cases else 0.0
    return QualityMetric(value=round(value, 4), count=len(cases), data=data, cases=dict(cases))
