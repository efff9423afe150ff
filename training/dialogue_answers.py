"""Read the answers to the questions of written conversations (training/dialogues/answers), and check them.

    python -m training.dialogue_answers training/dialogues/answers/*.txt

`answers/a01.txt` belongs to `a01.txt`. A line names a question by its position in that file, from 1, then a message
that answers it, and the shortest piece of this message that does:

    1 | 1.1 | a red kayak

A question may have several pieces, of one message or of several. Questions without an answer have none.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

from training.dialogues import Dialogue, read_dialogue

_ANSWER = re.compile(r"(\d+) \| (\d+\.\d+) \| (\S(?:.*\S)?)\Z")


@dataclass(frozen=True)
class Answer:
    """A piece of a message that answers a question: the question's position from 1, the message's number, the piece."""

    question: int
    message: str
    piece: str


def read_answers(path: Path) -> list[Answer]:
    """Read a file of answers and check them against its conversation. Raise ValueError with the line of a mistake."""
    dialogue = read_dialogue(path.parent.parent / path.name)
    answers: list[Answer] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            answer = _read_line(line.strip())
            _check(dialogue, answers, answer)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}: {line[:80]}") from error
        answers.append(answer)
    return answers


def _read_line(line: str) -> Answer:
    match = _ANSWER.match(line)
    if not match:
        raise ValueError("must be QUESTION | MESSAGE | PIECE")
    return Answer(int(match[1]), match[2], match[3])


def _check(dialogue: Dialogue, before: list[Answer], answer: Answer) -> None:
    if not 1 <= answer.question <= len(dialogue.questions):
        raise ValueError(f"the questions are 1 to {len(dialogue.questions)}")
    question = dialogue.questions[answer.question - 1]
    if question.kind == "adversarial":
        raise ValueError("an adversarial question has no answer")
    if answer.message not in question.answers:
        raise ValueError(f"the question's messages are {' '.join(question.answers)}")
    texts = {message.number: message.text for session in dialogue.sessions for message in session}
    if answer.piece not in texts[answer.message] or "[photo:" in answer.piece:
        raise ValueError("the piece must be in the message's words, or in its photo's")
    if answer in before or (before and answer.question < before[-1].question):
        raise ValueError("the questions must keep their order, and a piece is given once")


def main() -> None:
    """Check files, and print how many questions they answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+", help="files of answers")
    for path in parser.parse_args().paths:
        answers = read_answers(path)
        print(f"{path.stem}: {len(answers)} pieces for {len({answer.question for answer in answers})} questions")


if __name__ == "__main__":
    main()
