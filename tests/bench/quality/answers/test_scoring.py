"""Verdicts of judges, F1, prompts, and the history that a reader gets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from bench.quality.answers.history import write_history
from bench.quality.answers.prompts import load_prompts
from bench.quality.answers.scoring import list_f1, parse_verdict, says_unknown, split_words, token_f1
from bench.quality.dataset import Case, DatasetMessage, DatasetSession

from rem.errors import InvalidInputError
from rem.models import Role


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("yes", True),
        ("No.", False),
        ("**Yes**, it names the boat.", True),
        ('{"reason": "no doubt", "label": "CORRECT"}', True),
        ("label: WRONG", False),
        ("Incorrect", False),
        ("I cannot decide.", None),
        ("", None),
    ],
)
def test_verdict_is_read_from_the_usual_forms(text: str, verdict: bool | None) -> None:
    assert parse_verdict(text) is verdict


def test_f1_counts_common_words() -> None:
    assert split_words("The cost: 1,000 euros, and a tip!") == ["cost", "1000", "euros", "tip"]
    assert token_f1(["blue", "boat"], ["boat"]) == pytest.approx(2 / 3)
    assert token_f1([], ["boat"]) == 0.0
    assert list_f1([["boat"], ["car"]], [["car"], ["bike"]]) == 0.5
    assert says_unknown("No information available.")
    assert not says_unknown("On 3 May.")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("judge.txt", "Is {response} right?", r"needs \{question\}"),
        ("judge.yaml", "temporal: '{question} {response}'", "no prompt `default`"),
        ("judge.yaml", "default: [1]", "must have a prompt for each kind"),
        ("judge.yaml", "default: '{question}'", r"default: the prompt needs \{response\}"),
    ],
)
def test_wrong_prompt_file_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        load_prompts("longmemeval", judge_file=path)


def test_prompts_of_the_user_replace_those_of_rem(tmp_path: Path) -> None:
    reader, judge = tmp_path / "reader.txt", tmp_path / "judge.yaml"
    reader.write_text('{history}\nQ: {question} {"json": "stays"}')
    judge.write_text("default: '{question}|{answer}|{response}'\nunanswerable: 'none|{question}|{response}'")
    own = load_prompts("longmemeval")
    theirs = load_prompts("longmemeval", reader, judge)
    assert own.fingerprint != theirs.fingerprint
    filled = theirs.make_reader_prompt(history="{question}", question="Why?", date="today")
    assert filled == '{question}\nQ: Why? {"json": "stays"}'
    assert theirs.make_judge_prompt("x", question="a", answer="b", response="c") == "a|b|c"
    assert theirs.make_judge_prompt("unanswerable", question="a", answer="b", response="c") == "none|a|c"
    assert "difference of one" in own.make_judge_prompt("temporal-reasoning", question="q", answer="a", response="r")


def test_history_is_in_the_order_of_time_and_fits(tmp_path: Path) -> None:
    sessions = tuple(
        DatasetSession(
            f"s{day}",
            datetime(2023, 5, day, tzinfo=UTC),
            (DatasetMessage(None, 0, Role.USER, f"On day {day} it rained.", None),),
        )
        for day in (1, 2, 3)
    )
    case = Case("zoe", (), sessions)
    text, tokens = write_history(case, ["s3", "s1", "unknown"], 1000)
    assert text.index("day 1") < text.index("day 3")
    assert "[Monday, 01 May 2023" in text
    assert "day 2" not in text
    shorter, fewer = write_history(case, ["s3", "s1"], tokens - 1)
    assert "day 3" in shorter
    assert "day 1" not in shorter
    assert fewer < tokens
