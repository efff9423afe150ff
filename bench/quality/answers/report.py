"""The report on answers: accuracy by kind of question, F1, tokens and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.quality.answers.results import AnsweredQuestion, AnswersHeader, ModelCalls
from rem.evals.metrics import mean

DIGITS = 4


@dataclass(frozen=True, slots=True)
class AnswerFigures:
    """The figures of a group of questions."""

    questions: int
    judged: int
    """Questions with a clear verdict. The others count as wrong."""
    accuracy: float | None
    f1: float | None


@dataclass(frozen=True, slots=True)
class ModelUse:
    """The use of a model by all questions."""

    input_tokens: int
    output_tokens: int
    cost: float | None
    """In US dollars; None if the price of the model is not known."""
    seconds: float


@dataclass(frozen=True, slots=True)
class AnswersReport:
    """The figures of a run."""

    header: AnswersHeader
    overall: AnswerFigures
    answerable: AnswerFigures
    """Without the questions that cannot be answered, as LoCoMo's figures are mostly published."""
    by_kind: dict[str, AnswerFigures]
    reader: ModelUse
    judge: ModelUse
    history_tokens: float | None
    """The mean number of tokens that the reader got from the memory."""
    missing: int
    """Questions that failed or were not reached: the same command asks them again."""


def make_answers_report(header: AnswersHeader, answers: Sequence[AnsweredQuestion], total: int) -> AnswersReport:
    """Compute the figures. `total` is the number of questions of the run."""
    kinds = sorted({answer.kind for answer in answers})
    return AnswersReport(
        header=header,
        overall=_compute(answers),
        answerable=_compute([answer for answer in answers if answer.is_answerable]),
        by_kind={kind: _compute([answer for answer in answers if answer.kind == kind]) for kind in kinds},
        reader=_sum_use([answer.reader for answer in answers]),
        judge=_sum_use([answer.judge for answer in answers]),
        history_tokens=mean([answer.history_tokens for answer in answers]),
        missing=total - len(answers),
    )


def _compute(answers: Sequence[AnsweredQuestion]) -> AnswerFigures:
    accuracy = mean([float(answer.verdict is True) for answer in answers])
    f1 = mean([answer.f1 for answer in answers if answer.f1 is not None])
    return AnswerFigures(
        len(answers),
        sum(answer.verdict is not None for answer in answers),
        None if accuracy is None else round(accuracy, DIGITS),
        None if f1 is None else round(f1, DIGITS),
    )


def _sum_use(calls: Sequence[ModelCalls]) -> ModelUse:
    costs = [call.cost for call in calls if call.cost is not None]
    return ModelUse(
        sum(call.input_tokens for call in calls),
        sum(call.output_tokens for call in calls),
        round(sum(costs), 4) if calls and len(costs) == len(calls) else None,
        round(sum(call.seconds for call in calls), 1),
    )
