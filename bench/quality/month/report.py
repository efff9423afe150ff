"""The report of a month: shares of right answers by stage and group with their intervals, and what nights changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.quality.month.data import GROUPS, Month
from bench.quality.month.run import BEFORE, MonthOutcome

Z = 1.959964
"""Of the normal distribution, for an interval that holds 95 %."""
DIGITS = 4
ANSWERABLE = "answerable"


@dataclass(frozen=True, slots=True)
class Share:
    """A share, and the 95 % interval of Wilson around it."""

    count: int
    n: int
    share: float
    low: float
    high: float

    @classmethod
    def of(cls, outcomes: Sequence[MonthOutcome], is_counted: Callable[[MonthOutcome], bool]) -> Share:
        """Return the share of the outcomes that are counted."""
        count, n = sum(map(is_counted, outcomes)), len(outcomes)
        low, high = wilson(count, n)
        return cls(count, n, round(count / n, DIGITS), round(low, DIGITS), round(high, DIGITS))


@dataclass(frozen=True, slots=True)
class AnswerFigures:
    """The figures of questions that have an answer."""

    right40: Share
    right_all: Share
    words: float
    """The median number of visible words."""


@dataclass(frozen=True, slots=True)
class SilenceFigures:
    """The figures of questions that have no answer. The three shares add up to 1."""

    silent: Share
    nearest: Share
    false: Share
    words: float


@dataclass(frozen=True, slots=True)
class NightChange:
    """The questions whose answer a night made right or wrong, compared with the stage before any night."""

    better: list[str]
    worse: list[str]


@dataclass(frozen=True, slots=True)
class MonthReport:
    """The figures of a month."""

    month: str
    notes: int
    talks: int
    questions: int
    stages: dict[str, dict[str, AnswerFigures]]
    """By stage and group; `answerable` has all groups."""
    unanswerable: dict[str, SilenceFigures]
    """By stage."""
    changes: dict[str, NightChange]
    """By stage."""
    milliseconds_per_question: float
    answers: list[dict[str, Any]]
    """Every answer with its score, in the order of the questions."""


def wilson(count: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share that was measured `count` times in `n`."""
    centre, spread = count + Z * Z / 2, Z * math.sqrt(count * (n - count) / n + Z * Z / 4)
    return (centre - spread) / (n + Z * Z), (centre + spread) / (n + Z * Z)


def make_month_report(month: Month, outcomes: Sequence[MonthOutcome]) -> MonthReport:
    """Compute the figures of a run."""
    by_stage: dict[str, list[MonthOutcome]] = {}
    for outcome in outcomes:
        by_stage.setdefault(outcome.stage, []).append(outcome)
    silent = {stage: [item for item in items if not item.question.is_answerable] for stage, items in by_stage.items()}
    return MonthReport(
        month=month.name,
        notes=sum(len(person.notes) for person in month.people),
        talks=sum(len(person.talks) for person in month.people),
        questions=len(month.questions),
        stages={stage: _figures_by_group(items) for stage, items in by_stage.items()},
        unanswerable={stage: _measure_silence(items) for stage, items in silent.items() if items},
        changes={stage: _compare(by_stage[BEFORE], items) for stage, items in by_stage.items() if stage != BEFORE},
        milliseconds_per_question=round(sum(item.milliseconds for item in outcomes) / max(len(outcomes), 1), 1),
        answers=[_describe(outcome) for outcome in outcomes],
    )


def _figures_by_group(outcomes: Sequence[MonthOutcome]) -> dict[str, AnswerFigures]:
    answerable = [outcome for outcome in outcomes if outcome.question.is_answerable]
    groups: dict[str, list[MonthOutcome]] = {ANSWERABLE: answerable}
    groups |= {group: [item for item in answerable if item.question.group == group] for group in GROUPS}
    return {
        name: AnswerFigures(
            Share.of(items, lambda item: item.right40),
            Share.of(items, lambda item: item.right_all),
            median(item.words for item in items),
        )
        for name, items in groups.items()
        if items
    }


def _measure_silence(outcomes: Sequence[MonthOutcome]) -> SilenceFigures:
    return SilenceFigures(
        Share.of(outcomes, lambda item: item.answer.status == "nothing"),
        Share.of(outcomes, lambda item: item.answer.status == "nearest"),
        Share.of(outcomes, lambda item: item.answer.status == "answered"),
        median(item.words for item in outcomes),
    )


def _is_good(outcome: MonthOutcome) -> bool:
    return outcome.right40 if outcome.question.is_answerable else outcome.answer.status == "nothing"


def _compare(before: Sequence[MonthOutcome], after: Sequence[MonthOutcome]) -> NightChange:
    was_good = {outcome.question.id: _is_good(outcome) for outcome in before}
    return NightChange(
        [item.question.id for item in after if _is_good(item) and not was_good[item.question.id]],
        [item.question.id for item in after if not _is_good(item) and was_good[item.question.id]],
    )


def _describe(outcome: MonthOutcome) -> dict[str, Any]:
    question = outcome.question
    return {
        "stage": outcome.stage,
        "id": question.id,
        "group": question.group,
        "question": question.ask,
        "expected": question.expect,
        "forbidden": question.forbidden,
        "status": outcome.answer.status,
        "is_good": _is_good(outcome),
        "right40": outcome.right40,
        "right_all": outcome.right_all,
        "words": outcome.words,
        "answer": outcome.answer.text,
    }
