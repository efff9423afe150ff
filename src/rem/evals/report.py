"""Report: the figures of a run, overall and by kind of question, and one row for each question."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from rem.evals.dataset import Dataset
from rem.evals.metrics import mean, measure, percentile
from rem.evals.retrieval_benchmark import QuestionOutcome, Timing

_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Figures:
    """The means of the metrics over some questions."""

    questions: int
    """How many are judged: those of which it is known what they should find."""
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a question takes, in milliseconds."""

    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast it is stored and asked."""

    rows: int
    """Messages and texts."""
    store_seconds: float
    index_seconds: float
    dream_seconds: float
    """0 if nothing was dreamt."""
    rows_per_second: float | None
    """Stored and indexed."""
    ask_seconds: float
    questions_per_second: float | None


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """All that a benchmark found out."""

    dataset: str
    memories: int
    questions: int
    unjudged: int
    """Questions without a known answer. They are asked all the same."""
    dropped_gold_ids: int
    blank_messages: int
    overall: Figures
    by_kind: dict[str, Figures]
    latency_ms: dict[str, Latency]
    throughput: Throughput
    notes: dict[str, int]
    """What the answers said of themselves, and how many of them."""
    configuration: dict[str, Any]


def make_report(
    dataset: Dataset, outcomes: Sequence[QuestionOutcome], timing: Timing, configuration: dict[str, Any]
) -> BenchmarkReport:
    """The figures of a run."""
    judged = [outcome for outcome in outcomes if outcome.question.gold]
    kinds = sorted({outcome.question.kind for outcome in outcomes})
    rows = sum(case.size for case in dataset.cases)
    return BenchmarkReport(
        dataset=dataset.name,
        memories=len(dataset.cases),
        questions=len(outcomes),
        unjudged=len(outcomes) - len(judged),
        dropped_gold_ids=dataset.dropped.gold_ids,
        blank_messages=dataset.dropped.blank_messages,
        overall=_figures(judged, dataset.metrics),
        by_kind={
            kind: _figures([outcome for outcome in judged if outcome.question.kind == kind], dataset.metrics)
            for kind in kinds
        },
        latency_ms={
            "whole": _latency([outcome.milliseconds for outcome in outcomes]),
            "without_embedding": _latency(
                [outcome.milliseconds - outcome.embedding_milliseconds for outcome in outcomes]
            ),
        },
        throughput=Throughput(
            rows=rows,
            store_seconds=round(timing.store, 3),
            index_seconds=round(timing.index, 3),
            dream_seconds=round(timing.dream, 3),
            rows_per_second=_rate(rows, timing.store + timing.index),
            ask_seconds=round(timing.ask, 3),
            questions_per_second=_rate(len(outcomes), timing.ask),
        ),
        notes=dict(Counter(note for outcome in outcomes for note in outcome.notes)),
        configuration={"rem": version("remstack"), "python": platform.python_version(), **configuration},
    )


def outcome_rows(dataset: Dataset, outcomes: Sequence[QuestionOutcome]) -> Iterator[dict[str, Any]]:
    """What became of each question; what is not judged has no metrics."""
    for outcome in outcomes:
        yield {
            "id": outcome.question.id,
            "user": outcome.user,
            "kind": outcome.question.kind,
            "question": outcome.question.text,
            "asked_at": outcome.question.asked_at,
            "gold": outcome.question.gold,
            "found": outcome.found,
            "scores": outcome.scores,
            "metrics": _metrics(outcome, dataset.metrics),
            "milliseconds": round(outcome.milliseconds, 3),
            "milliseconds_without_embedding": round(outcome.milliseconds - outcome.embedding_milliseconds, 3),
            "notes": outcome.notes,
        }


def _metrics(outcome: QuestionOutcome, names: Sequence[str]) -> dict[str, float] | None:
    if not outcome.question.gold:
        return None
    return {name: round(measure(name, outcome.question.gold, outcome.found), _DIGITS) for name in names}


def _figures(judged: Sequence[QuestionOutcome], names: Sequence[str]) -> Figures:
    return Figures(
        len(judged),
        {
            name: _rounded(mean([measure(name, outcome.question.gold, outcome.found) for outcome in judged]))
            for name in names
        },
    )


def _latency(milliseconds: Collection[float]) -> Latency:
    return Latency(_rounded(percentile(milliseconds, 0.5)), _rounded(percentile(milliseconds, 0.95)))


def _rate(count: int, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
