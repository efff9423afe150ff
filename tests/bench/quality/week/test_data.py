"""The week that comes with REM, and errors in a week of one's own."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.quality.week.data import DAYS, GROUPS, Week, WeekQuestion, read_week, simplify

from rem.errors import InvalidInputError
from rem.models.message import MessageKind
from tests.rem_command import REPOSITORY

MIN_NOTES, MIN_SESSIONS, MIN_QUESTIONS, MIN_GROUP_QUESTIONS = 45, 12, 110, 15
_PAGE = (REPOSITORY / "docs" / "benchmarks.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def week() -> Week:
    return read_week()


def test_second_week_is_of_another_person_and_large_enough(week: Week) -> None:
    second = read_week(number=2)
    assert second.user != week.user
    assert len(second.notes) >= 40
    assert len(second.sessions) >= 12
    assert len(second.questions) >= 100
    assert {question.group for question in second.questions} == set(GROUPS)
    assert not {
        message.text for session in second.sessions for message in session.messages if len(message.text) > 20
    } & {message.text for session in week.sessions for message in session.messages}


def _source_text(week: Week, source: str) -> str:
    """Return the text of a note, or what was stated in a session."""
    for note in week.notes:
        if note.file == source:
            return note.text
    session = next(session for session in week.sessions if session.id == source)
    return "\n".join(message.text for message in session.messages if message.kind == "statement")


def test_week_is_large_enough(week: Week) -> None:
    assert len(week.notes) >= MIN_NOTES
    assert len(week.sessions) >= MIN_SESSIONS
    assert {session.day for session in week.sessions} == set(range(1, DAYS + 1))
    assert len(week.questions) >= MIN_QUESTIONS
    groups = Counter(question.group for question in week.questions)
    assert set(groups) == set(GROUPS)
    assert min(groups.values()) >= MIN_GROUP_QUESTIONS
    kinds = Counter(message.kind for session in week.sessions for message in session.messages)
    assert len(kinds) == 4
    assert min(kinds.values()) >= 3


def test_every_answer_is_in_its_source(week: Week) -> None:
    for question in week.questions:
        assert question.is_answered_by(_source_text(week, question.source)), question.ask


def test_corrected_questions_have_an_outdated_value_that_was_told_before(week: Week) -> None:
    names = [session.id for session in week.sessions]
    corrected = [question for question in week.questions if question.group == "corrected"]
    for question in corrected:
        assert question.outdated, question.ask
        earlier = names[: names.index(question.source)]
        told = simplify("\n".join(_source_text(week, name) for name in earlier))
        assert any(simplify(value) in told for value in question.outdated), question.ask
        sentence = next(
            line for line in _source_text(week, question.source).splitlines() if question.is_answered_by(line)
        )
        assert not question.is_outdated_in(sentence), question.ask


def test_questions_do_not_give_their_answer_away(week: Week) -> None:
    statements = {simplify(text) for text in week.list_texts(MessageKind.STATEMENT)}
    for question in week.questions:
        assert simplify(question.ask) not in statements
        assert not question.is_answered_by(question.ask), question.ask


def test_people_are_named_in_their_source(week: Week) -> None:
    for person in week.people:
        assert person.name in _source_text(week, person.source), person.name


def test_questions_of_a_day_respect_the_session_that_outdates_them(week: Week) -> None:
    question = next(question for question in week.questions if question.until == "wed-lunch")
    assert question in week.list_known_questions(2)
    assert question not in week.list_known_questions(3)


@pytest.mark.parametrize(
    ("text", "is_answered", "is_outdated"),
    [
        ("The code is maple-31.", True, False),
        ("Not larch-12 any more: maple-31", True, True),
        ("It’s MAPLE-31, not larch-12.", True, False),
        ("larch-12", False, True),
        ("maple-310", False, False),
    ],
)
def test_answer_is_matched_as_whole_words_and_before_outdated_values(
    text: str, is_answered: bool, is_outdated: bool
) -> None:
    question = WeekQuestion.model_validate(
        {"ask": "The code?", "group": "corrected", "source": "x", "answer": ["Maple-31"], "not": ["larch-12"]}
    )
    assert (question.is_answered_by(text), question.is_outdated_in(text)) == (is_answered, is_outdated)


def test_example_of_the_docs_is_a_week(tmp_path: Path) -> None:
    example = re.search(r"<!-- example: week -->\n```yaml\n(.*?)```", _PAGE, re.DOTALL)
    assert example is not None
    path = tmp_path / "week.yaml"
    path.write_text(example[1], encoding="utf-8")
    week = read_week(path)
    assert [len(week.notes), len(week.sessions), len(week.questions), len(week.people)] == [2, 2, 3, 1]
    for name, field in WeekQuestion.model_fields.items():
        assert f"| `{field.alias or name}` |" in _PAGE


def _change(**changes: Any) -> dict[str, Any]:
    week = {
        "name": "x",
        "user": "x",
        "sessions": [{"id": "a", "day": 1, "at": "08:00", "messages": ["Hello there"]}],
        "questions": [{"ask": "Who?", "group": "people", "source": "a", "answer": ["there"]}],
    }
    return {**week, **changes}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (_change(questions=[]), "questions"),
        (_change(questions=[{"ask": "Who?", "group": "people", "source": "b", "answer": ["x"]}]), "file 'b'"),
        (_change(questions=[{"ask": "Who?", "group": "pets", "source": "a", "answer": ["x"]}]), "group"),
        (_change(people=[{"name": "Ada", "source": "b"}]), "'Ada': there is no session or file 'b'"),
        (_change(notes=[{"file": "../x.md", "text": "x"}]), "relative path of a .md file"),
        (_change(sessions=[{"id": "a", "day": 8, "at": "08:00", "messages": ["x"]}]), "day"),
        (_change(sessions=[{"id": "a", "day": 1, "at": "8 am", "messages": ["x"]}]), "at"),
        (_change(sessions=[{"id": "a", "day": 1, "at": "08:00", "messages": [{"shout": "x"}]}]), "must be a text"),
        (
            _change(sessions=[{"id": "a", "day": 1, "at": "08:00", "messages": [{"a": "x", "b": "y"}]}]),
            "must be a text",
        ),
        (["x"], "week.yaml"),
    ],
)
def test_error_in_a_week_is_explained(tmp_path: Path, value: Any, message: str) -> None:
    path = tmp_path / "week.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        read_week(path)


def test_unreadable_file_is_explained(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [", encoding="utf-8")
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("name: Zoë".encode("latin-1"))
    for path, message in (
        (broken, "is not YAML"),
        (latin, "is not UTF-8"),
        (tmp_path, "is a folder"),
        (tmp_path / "none.yaml", "There is no file"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            read_week(path)
