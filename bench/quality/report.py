"""The report of a benchmark: metrics overall and by kind of question, latency, throughput, and the outcomes."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

from bench.quality.dataset import Dataset
from bench.quality.retrieval_benchmark import QuestionOutcome, Timing
from rem.evals.metrics import mean, mrr, percentile, recall

Metric: TypeAlias = Callable[[Collection[str], Sequence[str], int], float]


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


METRIC_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Figures:
    """The mean metrics of a group of questions."""

    questions: int
    """The number of scored questions, which are those with gold ids."""
    metrics: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the duration of a question, in milliseconds."""

    p50: float | None
    p95: float | None


@dataclass(frozen=True, slots=True)
class Throughput:
    """The speed of storing, indexing and asking."""

    rows: int
    """Messages and texts."""
    store_seconds: float
    index_seconds: float
    dream_seconds: float
    """0 without dreams."""
    rows_per_second: float | None
    """Rows stored and indexed per second."""
    ask_seconds: float
    questions_per_second: float | None


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """The results of a benchmark."""

    dataset: str
    memories: int
    questions: int
    unjudged: int
    """The number of questions without gold ids. They are asked but not scored."""
    dropped_gold_ids: int
    blank_messages: int
    overall: Figures
    by_kind: dict[str, Figures]
    latency_ms: dict[str, Latency]
    throughput: Throughput
    notes: dict[str, int]
    """The notes of the searches, with their counts."""
    configuration: dict[str, Any]


def make_report(
    dataset: Dataset, outcomes: Sequence[QuestionOutcome], timing: Timing, configuration: dict[str, Any]
) -> BenchmarkReport:
    """Return the report of a benchmark."""
    scored = [outcome for outcome in outcomes if outcome.question.gold]
    kinds = sorted({outcome.question.kind for outcome in outcomes})
    rows = sum(case.size for case in dataset.cases)
    return BenchmarkReport(
        dataset=dataset.name,
        memories=len(dataset.cases),
        questions=len(outcomes),
        unjudged=len(outcomes) - len(scored),
        dropped_gold_ids=dataset.dropped.gold_ids,
        blank_messages=dataset.dropped.blank_messages,
        overall=_compute_figures(scored, dataset.metrics),
        by_kind={
            kind: _compute_figures([outcome for outcome in scored if outcome.question.kind == kind], dataset.metrics)
            for kind in kinds
        },
        latency_ms={
            "whole": _compute_latency([outcome.milliseconds for outcome in outcomes]),
            "without_embedding": _compute_latency(
                [outcome.milliseconds - outcome.embedding_milliseconds for outcome in outcomes]
            ),
        },
        throughput=Throughput(
            rows=rows,
            store_seconds=round(timing.store, 3),
            index_seconds=round(timing.index, 3),
            dream_seconds=round(timing.dream, 3),
            rows_per_second=_per_second(rows, timing.store + timing.index),
            ask_seconds=round(timing.ask, 3),
            questions_per_second=_per_second(len(outcomes), timing.ask),
        ),
        notes=dict(Counter(note for outcome in outcomes for note in outcome.notes)),
        configuration={"rem": version("remstack"), "python": platform.python_version(), **configuration},
    )


def outcome_rows(dataset: Dataset, outcomes: Sequence[QuestionOutcome]) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each outcome; `metrics` is None for a question without gold ids."""
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
            "metrics": _compute_metrics(outcome, dataset.metrics),
            "milliseconds": round(outcome.milliseconds, 3),
            "milliseconds_without_embedding": round(outcome.milliseconds - outcome.embedding_milliseconds, 3),
            "notes": outcome.notes,
        }


def _compute_metrics(outcome: QuestionOutcome, names: Sequence[str]) -> dict[str, float] | None:
    if not outcome.question.gold:
        return None
    return {name: round(measure(name, outcome.question.gold, outcome.found), METRIC_DIGITS) for name in names}


def _compute_figures(outcomes: Sequence[QuestionOutcome], names: Sequence[str]) -> Figures:
    return Figures(
        len(outcomes),
        {
            name: _round(mean([measure(name, outcome.question.gold, outcome.found) for outcome in outcomes]))
            for name in names
        },
    )


def _compute_latency(milliseconds: Collection[float]) -> Latency:
    return Latency(_round(percentile(milliseconds, 0.5)), _round(percentile(milliseconds, 0.95)))


def _per_second(count: int, seconds: float) -> float | None:
    return round(count / seconds, 1) if seconds else None


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, METRIC_DIGITS)
