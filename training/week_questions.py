"""Read the questions that are added to the weeks for the reader, and check them.

    python -m training.week_questions training/weeks/more/*.yaml

The format is described in training/weeks/more/README.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import yaml
from bench.quality.week.data import Week, read_week, simplify
from pydantic import BaseModel, ConfigDict, Field


class MoreQuestion(BaseModel):
    """A question about a week that is asked after another, in two hops, with yes or no, or without an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    group: Literal["follow_up", "two_hops", "yes_no", "unanswerable"]
    ask: str
    after: str = ""
    via: list[str] = Field(default_factory=list)
    source: str = ""
    answer: list[str] = Field(default_factory=list)
    absent: list[str] = Field(default_factory=list)

    @property
    def whole(self) -> str:
        """The question with what makes it understood: the one before it, or what its description means."""
        return " ".join([*filter(None, [self.after]), *self.via[:1], self.ask])

    def is_answered_by(self, text: str) -> bool:
        """Return whether a text has one of the answers."""
        return any(simplify(piece) in simplify(text) for piece in self.answer)


def read_week_questions(path: Path) -> list[MoreQuestion]:
    """Return the questions of a file. Raise ValueError with all that is wrong in it."""
    week = read_week(path.parent.parent / path.name)
    found = [MoreQuestion.model_validate(item) for item in yaml.safe_load(path.read_text(encoding="utf-8"))]
    problems = [f"{path.name}, {item.ask}: {text}" for item in found for text in _check(item, week)]
    if problems:
        raise ValueError("\n".join(problems))
    return found


def _check(question: MoreQuestion, week: Week) -> Iterator[str]:
    texts = {note.file: note.text for note in week.notes}
    texts |= {session.id: "\n".join(message.text for message in session.messages) for session in week.sessions}
    every = simplify("\n".join(texts.values()))
    if question.group == "unanswerable":
        if not question.absent:
            yield "give the words that stand nowhere in `absent`"
        yield from (f"{word} occurs in the week" for word in question.absent if simplify(word) in every)
        return
    if question.source not in texts:
        yield f"there is no note or session {question.source}"
    elif not question.answer:
        yield "has no answer"
    else:
        text = simplify(texts[question.source])
        yield from (f"{piece} is not in {question.source}" for piece in question.answer if simplify(piece) not in text)
    if question.group == "follow_up" and not question.after:
        yield "a follow-up needs the question before it in `after`"
    if question.group == "two_hops":
        if not question.via:
            yield "say in `via` what resolves the description"
        yield from (f"{piece} stands nowhere" for piece in question.via if simplify(piece) not in every)


def main() -> None:
    """Check files, and say how many questions of each group they have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    groups: Counter[str] = Counter()
    problems = []
    for path in parser.parse_args().files:
        try:
            groups.update(question.group for question in read_week_questions(path))
        except ValueError as error:
            problems.append(str(error))
    print(f"{groups.total()} questions: {dict(groups)}")
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
