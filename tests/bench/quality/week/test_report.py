"""The figures of a week and its limits, computed by hand."""

from __future__ import annotations

import pytest
from bench.quality.week.data import Group, Week, WeekQuestion
from bench.quality.week.derived import DerivedCounts
from bench.quality.week.report import StageFigures, make_week_report
from bench.quality.week.run import OTHER_SESSION, SAME_SESSION, LookupCount, WeekOutcome, WeekResult
from bench.quality.week.tickets import TicketResult

_WEEK = Week.model_validate(
    {
        "name": "x",
        "user": "x",
        "sessions": [{"id": "a", "day": 1, "at": "08:00", "messages": ["Hello there"]}],
        "questions": [
            {"ask": f"Question {number}?", "group": "people", "source": "a", "answer": [f"answer {number}"]}
            for number in range(40)
        ],
    }
)


def _outcomes(stage: str, first: int, among: int, count: int = 40, group: Group = "people") -> list[WeekOutcome]:
    """Return outcomes of which `first` are right at once, and `among` in any extract."""
    return [
        WeekOutcome(
            stage,
            _in_group(question, group),
            ("wrong", question.answer[0] if number < among else "wrong"),
            number < first,
            number < among,
            10.0,
        )
        for number, question in enumerate(_WEEK.questions[:count])
    ]


def _in_group(question: WeekQuestion, group: Group) -> WeekQuestion:
    return question if question.group == group else question.model_copy(update={"group": group})


def _limits(result: WeekResult, tickets: TicketResult | None = None) -> list[str]:
    return make_week_report(_WEEK, result, tickets).broken_limits


def test_figures_equal_hand_computed_ones() -> None:
    outcomes = [*_outcomes(SAME_SESSION, 10, 20), *_outcomes(OTHER_SESSION, 3, 4, 4, "notes")]
    report = make_week_report(_WEEK, WeekResult(outcomes, seconds=3.0), None)
    assert report.stages == {SAME_SESSION: StageFigures(40, 0.25, 0.5), OTHER_SESSION: StageFigures(4, 0.75, 1.0)}
    assert report.groups[OTHER_SESSION] == {"notes": StageFigures(4, 0.75, 1.0)}
    assert report.milliseconds_per_question == 10.0
    assert len(report.misses) == 31
    assert report.misses[0]["rank"] == 2
    assert report.misses[-2] == {
        "stage": SAME_SESSION,
        "group": "people",
        "question": "Question 39?",
        "answer": ["answer 39"],
        "not": [],
        "source": "a",
        "rank": None,
        "first": "wrong",
    }


def test_good_week_keeps_all_limits() -> None:
    outcomes = [*_outcomes(SAME_SESSION, 35, 38), *_outcomes(OTHER_SESSION, 34, 38)]
    lookups = [LookupCount("night 1", ("Ada",), 4)]
    assert _limits(WeekResult(outcomes, lookups), TicketResult(20, ())) == []


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (WeekResult(_outcomes(SAME_SESSION, 33, 40)), "same session: 82.5% of the answers come first"),
        (WeekResult(_outcomes(SAME_SESSION, 37, 37)), "same session: 92.5% of the answers are among"),
        (
            WeekResult([*_outcomes(SAME_SESSION, 40, 40), *_outcomes(OTHER_SESSION, 38, 40)]),
            "other session: 95.0% come first, 100.0% at the stage before (same session), of 40 questions",
        ),
        (WeekResult(derived=DerivedCounts(5, ("Why?",))), "1 moments come from questions"),
        (WeekResult(derived=DerivedCounts(topics=5, topics_of_questions=("why",))), "1 topics come from questions"),
        (
            WeekResult(derived=DerivedCounts(entities=5, entities_of_questions=("Who",))),
            "1 entities come from questions",
        ),
        (WeekResult(lookups=[LookupCount("night 1", ("Ada", "Bo"), 4)]), "LOOKUP found 2 of 4 people"),
    ],
)
def test_each_broken_limit_is_named(result: WeekResult, message: str) -> None:
    (limit,) = _limits(result)
    assert limit.startswith(message)


def test_weak_group_breaks_a_limit_if_it_is_large_enough() -> None:
    strong = _outcomes(SAME_SESSION, 40, 40)
    assert _limits(WeekResult([*strong, *_outcomes(SAME_SESSION, 3, 7, 7, "notes")])) == []
    (limit,) = _limits(WeekResult([*strong, *_outcomes(SAME_SESSION, 5, 8, 8, "notes")]))
    assert limit.startswith("same session, notes: 62.5% come first")


def test_missed_tickets_break_a_limit() -> None:
    (limit,) = _limits(WeekResult(), TicketResult(20, (1601,)))
    assert limit.startswith("19 of 20 tickets come first")
