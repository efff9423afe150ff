"""A small month on a real database: what is stored and asked, how answers are scored, and what the check finds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml
from bench.quality.month.check import check_questions, find_copied_texts, find_problems
from bench.quality.month.data import GROUPS, SHIPPED_MONTHS, Month, MonthQuestion, read_month
from bench.quality.month.report import make_month_report, wilson
from bench.quality.month.run import BEFORE, MonthOutcome, MonthRun, PlainAnswer, Status
from bench.quality.month.texts import holds, visible_words

from rem.app import Rem
from rem.errors import InvalidInputError
from rem.settings import Settings
from tests.bench.bench_command import bench
from tests.rem_command import REPOSITORY

MONTHS = REPOSITORY / "bench/quality/month"
TALKS = """
- id: oven
  at: 2025-03-04T18:30:00
  messages:
    - user: "The oven man Zaren came last Friday, the new thermostat was 84 euros."
    - assistant: "Noted. Did he say how long it lasts?"
    - user: "sorry, 94 not 84"
- id: boat
  at: 2025-03-09T08:00:00
  messages:
    - user: "My locker at the boat club is number 214."
    - assistant: "Locker 214, noted."
"""
NOTES = {
    "costs.csv": "Item,Price\nflour,12.50\nsalt,3\nyeast,4\n",
    "plan.md": "# Plan\n\n## Week 1\n\n- [x] order yeast\n- [ ] clean oven\n\n"
    "## Week 2\n\n| Who | Shift |\n| --- | --- |\n| Pia | late |\n| Jon | early |\n| Sam | late |\n",
}
QUESTIONS: list[dict[str, Any]] = [
    {"id": "price", "group": "corrected", "ask": "what did it cost", "expect": ["94"], "not": ["84"], "source": "oven"},
    {"id": "locker", "group": "just_said", "ask": "which locker is mine", "expect": ["214"], "source": "boat"},
    {
        "id": "more",
        "group": "follow_up",
        "ask": "and who is early?",
        "after": "who is late in week 2?",
        "expect": ["Jon"],
        "source": "plan.md",
    },
    {"id": "fax", "group": "unanswerable", "ask": "what is the fax number of the club", "absent": ["fax"]},
]


@pytest.fixture
def write_month(tmp_path: Path) -> Callable[..., Month]:
    """Return a function that writes a month with other questions or notes into a folder, and reads it."""

    def write(questions: list[dict[str, Any]] = QUESTIONS, notes: dict[str, str] = NOTES) -> Month:
        folder = tmp_path / "small" / "rosa"
        (folder / "notes").mkdir(parents=True, exist_ok=True)
        person = {
            "user": "rosa@example.com",
            "about": "A baker.",
            "notes_before": "2025-03-01",
            "written": {"plan.md": "2025-03-02"},
        }
        (folder / "person.yaml").write_text(yaml.safe_dump(person))
        (folder / "talks.yaml").write_text(TALKS)
        (folder / "questions.yaml").write_text(yaml.safe_dump(questions))
        for name, text in notes.items():
            (folder / "notes" / name).write_text(text)
        return read_month(folder.parent)

    return write


async def test_month_is_stored_with_its_dates_and_asked(
    rem: Rem, settings: Settings, write_month: Callable[..., Month], sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    steps: list[str] = []

    def start_step(label: str) -> Callable[[int, int | None], None]:
        steps.append(label)
        return lambda done, total: None

    month = write_month()
    outcomes = await MonthRun(rem, month, tenant="bench-month-test").run((1,), start_step)
    assert steps == ["Storing", BEFORE, "Night 1", "After night 1"]
    assert [outcome.question.id for outcome in outcomes if outcome.stage == BEFORE] == [
        "locker",
        "price",
        "more",
        "fax",
    ]
    by_id = {outcome.question.id: outcome for outcome in outcomes if outcome.stage == BEFORE}
    assert by_id["locker"].right40
    assert by_id["locker"].answer.hits > 0
    # The question about what was just said is a message of its talk, and the first one of a follow-up comes before it.
    texts = await sql.fetch("SELECT content FROM messages WHERE role = 'user' ORDER BY session_id, message_index")
    said = [row["content"] for row in texts]
    assert said[said.index("which locker is mine") - 1] == "My locker at the boat club is number 214."
    assert said[said.index("and who is early?") - 1] == "who is late in week 2?"
    told = await sql.fetchval("SELECT min(created_at) FROM messages WHERE content LIKE 'The oven man%'")
    assert told == datetime(2025, 3, 4, 18, 30, tzinfo=UTC)
    written = await sql.fetch("SELECT DISTINCT timestamp::date::text AS day FROM resources")
    assert {row["day"] for row in written} == {"2025-03-01", "2025-03-02"}


def _score(status: Status, text: str, **question: Any) -> MonthOutcome:
    model = MonthQuestion.model_validate({**QUESTIONS[0], **question})
    return MonthOutcome(BEFORE, model, PlainAnswer(status, text, 1), 1.0)


@pytest.mark.parametrize(
    ("status", "text", "right40", "right_all"),
    [
        ("answered", "It was **94** euros.", True, True),
        ("nearest", "The closest is: “94 not 84”", False, True),
        ("nearest", "The closest is: “sorry, 94”", True, True),
        ("nothing", "I found nothing, not even 94.", False, False),
        ("answered", "It was 84 euros.", False, False),
        ("answered", "| word " * 40 + "94", False, True),
        ("answered", "| word " * 39 + "94 and 84", True, True),
    ],
)
def test_first_words_hold_the_answer_and_nothing_outdated(
    status: Status, text: str, right40: bool, right_all: bool
) -> None:
    outcome = _score(status, text)
    assert (outcome.right40, outcome.right_all) == (right40, right_all)


@pytest.mark.parametrize(
    ("text", "is_right"), [("2 people\n- Pia\n- Sam", True), ("These fit:\n2 rows", False), ("2. Pia\n3. Sam", False)]
)
def test_count_stands_in_the_first_line(text: str, is_right: bool) -> None:
    computation = {"do": "count", "file": "plan.md"}
    outcome = _score("answered", text, expect=["2"], compute=computation, **{"not": []})
    assert (outcome.right40, outcome.right_all) == (is_right, is_right)


def test_all_items_are_required_and_one_of_the_alternatives() -> None:
    question = {"expect": ["Pia", ["half past two", "14:30"]], "not": []}
    assert _score("answered", "Pía at 14:30", **question).right40
    assert not _score("answered", "Pia at two", **question).right_all


@pytest.mark.parametrize(
    ("text", "expected", "is_held"),
    [
        ("It costs 1,240 euros", "1240", True),
        ("room 214.", "214", True),
        ("room 2140", "214", False),
        ("beer,6,182,2025-08", "182", True),
        ("14.50", "14", False),
        ("three of them", "3", True),
        ("see [[people/pia|Pia Roth]]", "pia roth", True),
        ("on the 4th of March", "date:2025-03-04", True),
        ("March 4th", "date:2025-03-04", True),
        ("2025-03-04T10:00", "date:2025-03-04", True),
        ("2025-03-041", "date:2025-03-04", False),
        ("2025-03-04 at ten", "date:2025-03-04", True),
        ("on 04/03/2025", "date:2025-03-04", True),
        ("on 14 March", "date:2025-03-04", False),
        ("on 4 Mar", "date:2025-03-04", True),
    ],
)
def test_texts_are_compared_as_a_reader_would(text: str, expected: str, is_held: bool) -> None:
    assert holds(text, expected) is is_held


def test_marks_of_markdown_are_not_words() -> None:
    assert visible_words("| **a** | b |\n| --- | --- |\n- [c](http://d.e) – `f`") == ["a", "b", "c", "f"]


def test_report_has_shares_with_intervals_and_what_a_night_changed(write_month: Callable[..., Month]) -> None:
    month = write_month()
    price, locker, _, fax = month.questions
    answers: list[tuple[str, MonthQuestion, Status, str]] = [
        (BEFORE, price, "answered", "84"),
        (BEFORE, locker, "answered", "214"),
        (BEFORE, fax, "answered", "Its number is 214."),
        ("night 1", price, "answered", "94"),
        ("night 1", locker, "nothing", "-"),
        ("night 1", fax, "nothing", "I do not know."),
    ]
    outcomes = [MonthOutcome(stage, item, PlainAnswer(status, text, 0), 1.0) for stage, item, status, text in answers]
    report = make_month_report(month, outcomes)
    share = report.stages[BEFORE]["answerable"].right40
    assert (share.count, share.n, share.share) == (1, 2, 0.5)
    assert (round(share.low, 3), round(share.high, 3)) == (0.095, 0.905)
    assert report.unanswerable[BEFORE].false.share == 1.0
    assert report.unanswerable["night 1"].silent.share == 1.0
    assert report.changes["night 1"].better == ["price", "fax"]
    assert report.changes["night 1"].worse == ["locker"]
    assert [answer["id"] for answer in report.answers if not answer["is_good"]] == ["price", "fax", "locker"]


def test_interval_of_a_share() -> None:
    low, high = wilson(75, 100)
    assert (round(low, 3), round(high, 3)) == (0.657, 0.825)


def test_small_month_has_no_wrong_question_but_too_few(write_month: Callable[..., Month]) -> None:
    month = write_month()
    assert list(check_questions(month)) == []
    problems = find_problems(month)
    assert sum("fewer than" in problem for problem in problems) == len(GROUPS) + 3


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        ({"expect": ["95"]}, False),
        ({"not": ["85"]}, False),
        ({"expect": ["94 not 84"]}, False),
        ({"ask": "was it 94"}, False),
        ({"group": "sum", "expect": ["19.50"], "not": [], "compute": {"do": "sum", "column": "Price"}}, True),
        ({"group": "sum", "expect": ["19.60"], "not": [], "compute": {"do": "sum", "column": "Price"}}, False),
        ({"expect": ["flour"], "not": [], "compute": {"do": "max", "column": "Price", "give": "Item"}}, True),
        ({"expect": ["salt"], "not": [], "compute": {"do": "max", "column": "Price", "give": "Item"}}, False),
        ({"expect": ["2"], "not": [], "compute": {"do": "count", "where": {"Price": "<=4"}}}, True),
        ({"expect": ["3"], "not": [], "compute": {"do": "count", "where": {"Price": "<=4"}}}, False),
        ({"expect": ["1"], "not": [], "compute": {"do": "count", "file": "plan.md", "items": "open"}}, True),
        ({"expect": ["2"], "not": [], "compute": {"do": "count", "file": "plan.md", "items": "open"}}, False),
        ({"expect": ["178"], "not": [], "compute": {"do": "sum", "values": ["94", "84"]}}, True),
        ({"expect": ["179"], "not": [], "compute": {"do": "sum", "values": ["94", "85"]}}, False),
        ({"expect": ["date:2025-02-28"], "not": [], "compute": {"do": "date", "days": -4}}, True),
        ({"expect": ["date:2025-02-28"], "not": [], "compute": {"do": "date", "days": -5}}, False),
        ({"expect": ["date:2025-02-28"], "not": [], "compute": {"do": "date", "days": -4, "words": "Monday"}}, False),
    ],
)
def test_check_finds_a_question_that_its_sources_do_not_answer(
    write_month: Callable[..., Month], change: dict[str, Any], is_right: bool
) -> None:
    if computation := change.get("compute"):
        start = {"talk": "oven", "words": "last Friday"} if computation["do"] == "date" else {"file": "costs.csv"}
        change = {**change, "compute": start | computation, "source": ["oven", "costs.csv", "plan.md"]}
    month = write_month([{**QUESTIONS[0], **change}])
    assert (list(check_questions(month)) == []) is is_right


@pytest.mark.parametrize(("expected", "is_right"), [(["Pia", "Sam"], True), (["Pia"], False), (["Pia", "Jon"], False)])
def test_check_computes_a_list_below_a_heading(
    write_month: Callable[..., Month], expected: list[str], is_right: bool
) -> None:
    computation = {"do": "list", "file": "plan.md", "under": "Week 2", "where": {"Shift": "late"}, "give": "Who"}
    question = {"id": "l", "group": "list", "ask": "who works in the evening", "expect": expected, "source": "plan.md"}
    assert (list(check_questions(write_month([{**question, "compute": computation}]))) == []) is is_right


def test_check_finds_what_is_not_absent_and_copied_texts(write_month: Callable[..., Month]) -> None:
    month = write_month([{**QUESTIONS[3], "absent": ["locker"]}])
    assert len(list(check_questions(month))) == 1
    copied = write_month(notes={"kiln.md": "I paid nine thousand kroner for it, and it already warms the room."})
    assert list(find_copied_texts(month)) == []
    assert len(list(find_copied_texts(copied))) == 1


def test_months_of_the_repository_verify_themselves() -> None:
    for number, name in enumerate(SHIPPED_MONTHS, 1):
        if (MONTHS / name).exists():
            assert find_problems(read_month(number=number)) == []


def test_command_checks_a_folder_and_refuses_unknown_groups(write_month: Callable[..., Month], tmp_path: Path) -> None:
    write_month()
    checked = bench("month", "small", "--check", settings={}, cwd=tmp_path)
    assert checked.returncode == 1
    assert len(checked.stdout.splitlines()) == len(GROUPS) + 3
    assert bench("month", "small", "--groups", "sum,nonsense", settings={}, cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    "question",
    [
        {**QUESTIONS[0], "source": "nowhere"},
        {**QUESTIONS[0], "expect": [94]},
        {**QUESTIONS[0], "expect": ["date:4 March"]},
        {**QUESTIONS[1], "source": "plan.md"},
        {**QUESTIONS[2], "after": []},
        {**QUESTIONS[3], "absent": []},
    ],
)
def test_month_with_a_malformed_question_is_refused(
    write_month: Callable[..., Month], question: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError):
        write_month([question])
