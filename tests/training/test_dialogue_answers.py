"""Answers to the questions of written conversations: every piece is in a message that answers its question."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.dialogue_answers import Answer, read_answers

ANSWERS = sorted((Path(__file__).parents[2] / "training" / "dialogues" / "answers").glob("*.txt"))
DIALOGUE = """# 2023-03-04 19:20
1.1 Ines: The kayak fits on the roof! [photo: a red kayak on a car]
1.2 Tobias: Where will you take it?
1.3 Ines: To Lake Mjøsa, next Friday.
? single | 1.1 | What colour is Ines's boat?
? multi | 1.1 1.3 | Where is Ines's boat, and where will it go?
? adversarial | 1.3 | Where will Tobias take his boat?
"""


def write(folder: Path, answers: str) -> Path:
    path = folder / "answers" / "sample.txt"
    path.parent.mkdir()
    path.write_text(answers, encoding="utf-8")
    (folder / "sample.txt").write_text(DIALOGUE, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", ANSWERS, ids=lambda path: path.stem)
def test_every_written_answer_is_sound(path: Path) -> None:
    assert len({answer.question for answer in read_answers(path)}) > 20


def test_question_has_pieces_of_several_messages(tmp_path: Path) -> None:
    assert read_answers(write(tmp_path, "1 | 1.1 | red\n2 | 1.1 | on the roof\n2 | 1.3 | Lake Mjøsa\n")) == [
        Answer(1, "1.1", "red"),
        Answer(2, "1.1", "on the roof"),
        Answer(2, "1.3", "Lake Mjøsa"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1 | red", "must be QUESTION"),
        ("4 | 1.1 | red", "the questions are 1 to 3"),
        ("1 | 1.3 | Lake", r"the question's messages are 1\.1"),
        ("1 | 1.1 | blue", "must be in the message's words"),
        ("1 | 1.1 | roof! [photo: a red", "must be in the message's words"),
        ("3 | 1.3 | Lake Mjøsa", "adversarial"),
        ("1 | 1.1 | red", "given once"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=rf"sample\.txt:2: .*{problem}"):
        read_answers(write(tmp_path, f"1 | 1.1 | red\n{line}\n"))


def test_questions_keep_their_order(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep their order"):
        read_answers(write(tmp_path, "2 | 1.1 | on the roof\n1 | 1.1 | red\n"))
