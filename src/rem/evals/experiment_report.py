"""Summarize a run of an experiment, and compare it with another run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rem.agents.evaluation import LOWER_IS_BETTER_OF_METHOD, PASS
from rem.evals.experiment_store import ExperimentRun, StoredCase
from rem.evals.metrics import mean, percentile

DEFAULT_TOLERANCE = 0.01
DIGITS = 4


@dataclass(frozen=True, slots=True)
class ScoreFigures:
    """One score of one evaluator over all cases that have it. True counts as 1."""

    evaluator: str
    score: str
    mean: float
    minimum: float
    maximum: float
    cases: int
    lower_is_better: bool

    @property
    def label(self) -> str:
        """The name of the score with its evaluator."""
        return f"{self.evaluator}.{self.score}"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The figures of one run."""

    run: ExperimentRun
    cases: int
    outputs: int
    """Cases that have run, with or without an error."""
    errors: int
    """Cases whose target failed."""
    evaluator_errors: int
    passed: int
    """Cases that every evaluator with a score `pass` passed. Cases with an error do not pass."""
    judged: int
    """Cases that could pass: those with an error, and those with a score `pass`."""
    scores: list[ScoreFigures]
    seconds_p50: float | None
    seconds_p95: float | None

    @property
    def pass_rate(self) -> float | None:
        """The share of the judged cases that passed; None if no evaluator has a score `pass`."""
        return self.passed / self.judged if self.judged else None

    @property
    def is_complete(self) -> bool:
        """Whether all cases have run and all evaluators have judged."""
        return self.run.ended_at is not None

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON values."""
        run = self.run
        return {
            "run": run.label,
            "id": str(run.id),
            "golden_set": run.golden_set,
            "target": run.target,
            "versions": run.versions,
            "seed": run.seed,
            "created_at": run.created_at.isoformat(),
            "ended_at": run.ended_at.isoformat() if run.ended_at else None,
            "complete": self.is_complete,
            "cases": self.cases,
            "outputs": self.outputs,
            "errors": self.errors,
            "evaluator_errors": self.evaluator_errors,
            "passed": self.passed,
            "judged": self.judged,
            "pass_rate": _round(self.pass_rate),
            "scores": [asdict(figures) for figures in self.scores],
            "seconds": {"p50": _round(self.seconds_p50), "p95": _round(self.seconds_p95)},
        }


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """One figure in two runs, over the cases that both have."""

    label: str
    before: float
    after: float
    is_regression: bool

    @property
    def difference(self) -> float:
        """How much the figure grew."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A run beside its baseline."""

    baseline: ExperimentRun
    run: ExperimentRun
    common_cases: int
    changes: list[ScoreChange]
    newly_failed: list[str] = field(default_factory=list)
    """Cases that passed in the baseline and do not pass now."""
    newly_passed: list[str] = field(default_factory=list)
    changed_versions: list[str] = field(default_factory=list)

    @property
    def regressions(self) -> list[ScoreChange]:
        """The figures that got worse."""
        return [change for change in self.changes if change.is_regression]

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        changes = [{**asdict(change), "difference": round(change.difference, DIGITS)} for change in self.changes]
        return {
            "baseline": self.baseline.label,
            "run": self.run.label,
            "common_cases": self.common_cases,
            "changes": changes,
            "regressions": [change.label for change in self.regressions],
            "newly_failed": self.newly_failed,
            "newly_passed": self.newly_passed,
            "changed_versions": self.changed_versions,
        }


def summarize_run(run: ExperimentRun, cases: Sequence[StoredCase]) -> RunSummary:
    """Return the figures of a run."""
    verdicts = [passes(case) for case in cases]
    seconds = [case.output.seconds for case in cases if case.ended_at is not None and case.error is None]
    return RunSummary(
        run,
        cases=len(cases),
        outputs=sum(case.ended_at is not None for case in cases),
        errors=sum(case.error is not None for case in cases),
        evaluator_errors=sum(bool(item.error) for case in cases for item in case.judgements.values()),
        passed=verdicts.count(True),
        judged=len(verdicts) - verdicts.count(None),
        scores=_compute_scores(run, cases),
        seconds_p50=percentile(seconds, 0.5),
        seconds_p95=percentile(seconds, 0.95),
    )


def passes(case: StoredCase) -> bool | None:
    """Return whether a case passed; None if it has not run, or no evaluator has a score `pass`."""
    if case.error is not None or any(judgement.error for judgement in case.judgements.values()):
        return False
    verdicts = [judgement.scores[PASS] for judgement in case.judgements.values() if PASS in judgement.scores]
    return all(verdicts) if verdicts else None


def compare(
    baseline: tuple[ExperimentRun, Sequence[StoredCase]],
    current: tuple[ExperimentRun, Sequence[StoredCase]],
    *,
    tolerance: float = DEFAULT_TOLERANCE,
) -> RunComparison:
    """Compare a run with its baseline, over the cases with the same id, input and reference.

    A figure is a regression if it is worse by more than `tolerance`. A share of errors is a regression if it grew. The
    time that the cases took is shown and never a regression, because it depends on the machine.
    """
    (old_run, old_cases), (new_run, new_cases) = baseline, current
    asked = {case.case.id: (case.case.input, case.case.reference) for case in old_cases}
    common = {item.case.id for item in new_cases if asked.get(item.case.id) == (item.case.input, item.case.reference)}
    old = [case for case in old_cases if case.case.id in common]
    new = [case for case in new_cases if case.case.id in common]
    before, after = summarize_run(old_run, old), summarize_run(new_run, new)
    verdicts = {case.case.id: passes(case) for case in old}
    return RunComparison(
        old_run,
        new_run,
        len(common),
        list(_find_changes(before, after, tolerance)),
        newly_failed=[case.case.id for case in new if verdicts[case.case.id] and passes(case) is False],
        newly_passed=[case.case.id for case in new if verdicts[case.case.id] is False and passes(case)],
        changed_versions=_find_changed_versions(old_run, new_run),
    )


def _find_changes(before: RunSummary, after: RunSummary, tolerance: float) -> Iterator[ScoreChange]:
    if before.pass_rate is not None and after.pass_rate is not None:
        is_worse = after.pass_rate < before.pass_rate - tolerance
        yield ScoreChange("pass rate", before.pass_rate, after.pass_rate, is_worse)
    if before.cases:
        old_rate, new_rate = ((item.errors + item.evaluator_errors) / item.cases for item in (before, after))
        yield ScoreChange("errors per case", old_rate, new_rate, new_rate > old_rate)
    old_scores = {figures.label: figures for figures in before.scores}
    for figures in after.scores:
        old = old_scores.get(figures.label)
        if old is None:
            continue
        growth = figures.mean - old.mean
        is_worse = growth > tolerance if figures.lower_is_better else growth < -tolerance
        # Seconds differ from one run to the next on the same machine.
        is_regression = is_worse and figures.score != "seconds"
        yield ScoreChange(figures.label, old.mean, figures.mean, is_regression)


def _find_changed_versions(old: ExperimentRun, new: ExperimentRun) -> list[str]:
    names = dict.fromkeys((*old.versions, *new.versions))
    return [name for name in names if old.versions.get(name) != new.versions.get(name)]


def _compute_scores(run: ExperimentRun, cases: Sequence[StoredCase]) -> list[ScoreFigures]:
    figures = []
    for evaluator in run.evaluators:
        extra = evaluator["json_schema_extra"]
        evaluation = extra.get("evaluation", {})
        lower = (
            *evaluation.get("lower_is_better", ()),
            *LOWER_IS_BETTER_OF_METHOD.get(evaluation.get("method", ""), ()),
        )
        for score in _list_scores(extra["name"], cases):
            values = _list_values(cases, extra["name"], score)
            average = mean(values) or 0.0
            figures.append(
                ScoreFigures(extra["name"], score, average, min(values), max(values), len(values), score in lower)
            )
    return figures


def _list_scores(evaluator: str, cases: Sequence[StoredCase]) -> list[str]:
    judgements = (case.judgements.get(evaluator) for case in cases)
    return list(dict.fromkeys(score for judgement in judgements if judgement for score in judgement.scores))


def _list_values(cases: Sequence[StoredCase], evaluator: str, score: str) -> list[float]:
    """Return the values of one score, in the order of the cases."""
    judgements = [case.judgements.get(evaluator) for case in cases]
    return [float(item.scores[score]) for item in judgements if item is not None and score in item.scores]


def write_results(folder: Path, run: ExperimentRun, cases: Sequence[StoredCase]) -> list[Path]:
    """Write a run as files: `outputs.jsonl`, `scores.jsonl` and `summary.json`. Return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = orjson.dumps(summarize_run(run, cases).as_json(), option=orjson.OPT_INDENT_2)
    contents = {
        "outputs.jsonl": b"".join(_to_line(_output_row(case)) for case in cases if case.ended_at is not None),
        "scores.jsonl": b"".join(_to_line(row) for case in cases for row in _score_rows(case)),
        "summary.json": summary + b"\n",
    }
    for name, content in contents.items():
        # A reader never sees half a file.
        part = folder / f"{name}.part"
        part.write_bytes(content)
        part.replace(folder / name)
    return [folder / name for name in contents]


def case_to_json(case: StoredCase) -> dict[str, Any]:
    """Return a case with its output and all judgements as JSON values."""
    judgements = [{name: value for name, value in row.items() if name != "id"} for row in _score_rows(case)]
    return {**_output_row(case), "judgements": judgements}


def _output_row(case: StoredCase) -> dict[str, Any]:
    return case.case.as_json() | {
        "output": case.output.value,
        "error": case.error,
        "seconds": round(case.output.seconds, 3),
        "details": case.output.details,
    }


def _score_rows(case: StoredCase) -> Iterator[dict[str, Any]]:
    for evaluator, judgement in case.judgements.items():
        yield {
            "id": case.case.id,
            "evaluator": evaluator,
            "scores": judgement.scores,
            "explanation": judgement.explanation,
            "error": judgement.error,
            "seconds": round(judgement.seconds, 3),
        }


def _to_line(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
