"""The report of a week: figures by stage and group, and the limits that they must keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bench.quality.week.data import GROUPS, Week
from bench.quality.week.derived import MisreadMessage
from bench.quality.week.run import WeekOutcome, WeekResult
from bench.quality.week.tickets import TicketResult

MIN_FIRST, MIN_AMONG, MIN_GROUP_FIRST, MIN_LOOKUP = 0.85, 0.95, 0.75, 0.75
MAX_DROP = 0.03
"""A stage may be this much worse than the one before, on the questions that both have in common."""
MIN_GROUP_QUESTIONS = 8
"""In a smaller group one question is worth more than the distance between the limits."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """The shares of right answers at one stage."""

    questions: int
    first: float
    among: float

    @classmethod
    def of(cls, outcomes: Sequence[WeekOutcome]) -> StageFigures:
        """Return the figures of some outcomes."""
        count = len(outcomes)
        return cls(
            count,
            round(sum(outcome.is_first for outcome in outcomes) / max(count, 1), 4),
            round(sum(outcome.is_among for outcome in outcomes) / max(count, 1), 4),
        )


@dataclass(frozen=True, slots=True)
class WeekReport:
    """The figures of a week."""

    week: str
    notes: int
    sessions: int
    questions: int
    stages: dict[str, StageFigures]
    groups: dict[str, dict[str, StageFigures]]
    """Figures by stage and group."""
    people: dict[str, tuple[int, int]]
    """By stage: the number of people that LOOKUP found, and of all people."""
    missing_people: tuple[str, ...]
    """The people that LOOKUP did not find after the last night."""
    derived: dict[str, Any]
    misread: list[MisreadMessage]
    """Messages that were stored with another kind than they have."""
    tickets: TicketResult | None
    misses: list[dict[str, Any]]
    broken_limits: list[str] = field(default_factory=list)
    milliseconds_per_question: float = 0.0
    dream_seconds: float = 0.0
    seconds: float = 0.0


def make_week_report(week: Week, result: WeekResult, tickets: TicketResult | None) -> WeekReport:
    """Compute the figures of a run, and list the limits that it breaks."""
    stages = _group_by_stage(result.outcomes)
    derived = result.derived
    asked = len(result.outcomes)
    return WeekReport(
        week=week.name,
        notes=len(week.notes),
        sessions=len(week.sessions),
        questions=len(week.questions),
        stages={stage: StageFigures.of(outcomes) for stage, outcomes in stages.items()},
        groups={stage: _figures_by_group(outcomes) for stage, outcomes in stages.items()},
        people={item.stage: (item.found, item.people) for item in result.lookups},
        missing_people=result.lookups[-1].missing if result.lookups else (),
        derived={
            name: {"all": getattr(derived, name), "of_questions": list(getattr(derived, f"{name}_of_questions"))}
            for name in ("moments", "topics", "entities")
        },
        misread=result.misread,
        tickets=tickets,
        misses=[_describe_miss(outcome) for outcome in result.outcomes if not outcome.is_first],
        broken_limits=list(_find_broken_limits(stages, result, tickets)),
        milliseconds_per_question=round(sum(outcome.milliseconds for outcome in result.outcomes) / max(asked, 1), 1),
        dream_seconds=round(result.dream_seconds, 1),
        seconds=round(result.seconds, 1),
    )


def _group_by_stage(outcomes: Sequence[WeekOutcome]) -> dict[str, list[WeekOutcome]]:
    """Return the outcomes by stage, in the order of the stages."""
    stages: dict[str, list[WeekOutcome]] = {}
    for outcome in outcomes:
        stages.setdefault(outcome.stage, []).append(outcome)
    return stages


def _figures_by_group(outcomes: Sequence[WeekOutcome]) -> dict[str, StageFigures]:
    by_group = {group: [outcome for outcome in outcomes if outcome.question.group == group] for group in GROUPS}
    return {group: StageFigures.of(members) for group, members in by_group.items() if members}


def _describe_miss(outcome: WeekOutcome) -> dict[str, Any]:
    question = outcome.question
    rank = next((rank for rank, extract in enumerate(outcome.extracts, 1) if question.is_answered_by(extract)), None)
    return {
        "stage": outcome.stage,
        "group": question.group,
        "question": question.ask,
        "answer": list(question.answer),
        "not": list(question.outdated),
        "source": question.source,
        "rank": rank,
        "first": outcome.extracts[0],
    }


def _find_broken_limits(
    stages: dict[str, list[WeekOutcome]], result: WeekResult, tickets: TicketResult | None
) -> Iterator[str]:
    """Yield a sentence for each limit that the run breaks."""
    for stage, outcomes in stages.items():
        yield from _check_stage(stage, outcomes)
    names = list(stages)
    for before, after in pairwise(names):
        yield from _check_drop(before, stages[before], after, stages[after])
    for name in ("moments", "topics", "entities"):
        count = len(getattr(result.derived, f"{name}_of_questions"))
        if count:
            yield f"{count} {name} come from questions: 0 are allowed."
    if result.lookups:
        last = result.lookups[-1]
        if last.found < MIN_LOOKUP * last.people:
            yield f"LOOKUP found {last.found} of {last.people} people: {MIN_LOOKUP:.0%} is the limit."
    if tickets is not None and tickets.missed:
        yield f"{tickets.searches - len(tickets.missed)} of {tickets.searches} tickets come first: all should."


def _check_stage(stage: str, outcomes: Sequence[WeekOutcome]) -> Iterator[str]:
    figures = StageFigures.of(outcomes)
    if figures.first < MIN_FIRST:
        yield f"{stage}: {figures.first:.1%} of the answers come first: {MIN_FIRST:.0%} is the limit."
    if figures.among < MIN_AMONG:
        yield f"{stage}: {figures.among:.1%} of the answers are among the extracts: {MIN_AMONG:.0%} is the limit."
    for group, members in _figures_by_group(outcomes).items():
        if members.questions >= MIN_GROUP_QUESTIONS and members.first < MIN_GROUP_FIRST:
            yield f"{stage}, {group}: {members.first:.1%} come first: {MIN_GROUP_FIRST:.0%} is the limit."


def _check_drop(before: str, earlier: Sequence[WeekOutcome], after: str, later: Sequence[WeekOutcome]) -> Iterator[str]:
    """Compare two stages on the questions that were asked at both."""
    was_first = {id(outcome.question): outcome.is_first for outcome in earlier}
    common = [outcome for outcome in later if id(outcome.question) in was_first]
    if not common:
        return
    share_before = sum(was_first[id(outcome.question)] for outcome in common) / len(common)
    share_after = sum(outcome.is_first for outcome in common) / len(common)
    if share_before - share_after > MAX_DROP:
        yield (
            f"{after}: {share_after:.1%} come first, {share_before:.1%} at the stage before ({before}), of "
            f"{len(common)} questions: a drop of {MAX_DROP:.0%} is the limit."
        )
