"""Read written conversations (training/dialogues, training/assistant_chats), check them, and convert them.

    python -m training.dialogues --check training/dialogues/*.txt
    python -m training.dialogues OUT.json training/dialogues/*.txt
    python -m training.dialogues OUT.jsonl training/assistant_chats/*.txt

A file has sessions, each with its time, and numbered messages, then questions with the numbers of the messages that
answer them:

    # 2023-03-04 19:20
    1.1 Ines: The kayak finally fits on the roof! [photo: a red kayak on a car]
    1.2 Tobias: About time. Where will you take it?

    ? single | 1.1 | What colour is Ines's boat?

Conversations of two people become a file of LoCoMo's format. Chats of `User` and `Assistant` become JSON lines.
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

KINDS = {"multi": 1, "temporal": 2, "open": 3, "single": 4, "adversarial": 5}
"""Kinds of questions, with the numbers of LoCoMo's categories."""
_SESSION = re.compile(r"# (\d{4}-\d\d-\d\d \d\d:\d\d)\s*\Z")
_MESSAGE = re.compile(r"(\d+)\.(\d+) ([^:]{1,30}): (.+)\Z")
_QUESTION = re.compile(r"\? (\w+) \| ([\d. ]+?) \| (.+)\Z")
_PHOTO = re.compile(r"\s*\[photo: ([^\]]+)\]\s*")


@dataclass(frozen=True)
class Message:
    """A message: its number such as `2.7`, who wrote it, and its text."""

    number: str
    speaker: str
    text: str


@dataclass(frozen=True)
class Question:
    """A question, and the numbers of the messages that answer it."""

    kind: str
    answers: tuple[str, ...]
    text: str


@dataclass
class Dialogue:
    """A conversation over several sessions."""

    name: str
    times: list[datetime] = field(default_factory=list)
    sessions: list[list[Message]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    @property
    def speakers(self) -> list[str]:
        """Who speaks, in the order of their first messages."""
        return list(dict.fromkeys(message.speaker for session in self.sessions for message in session))


def read_dialogue(path: Path) -> Dialogue:
    """Read one file. Raise ValueError with the line of the first mistake."""
    dialogue = Dialogue(path.stem)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            _read_line(dialogue, line.strip())
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}: {line[:80]}") from error
    if len(dialogue.speakers) != 2 or not dialogue.questions:
        raise ValueError(f"{path}: needs two speakers and some questions, has {dialogue.speakers}")
    return dialogue


def _read_line(dialogue: Dialogue, line: str) -> None:
    if not line:
        return
    if match := _SESSION.match(line):
        dialogue.times.append(datetime.strptime(match[1], "%Y-%m-%d %H:%M"))
        dialogue.sessions.append([])
    elif match := _MESSAGE.match(line):
        if not dialogue.sessions:
            raise ValueError("no session before the first message")
        expected = f"{len(dialogue.sessions)}.{len(dialogue.sessions[-1]) + 1}"
        if f"{match[1]}.{match[2]}" != expected:
            raise ValueError(f"the next number is {expected}")
        dialogue.sessions[-1].append(Message(expected, match[3], match[4]))
    elif match := _QUESTION.match(line):
        known = {message.number for session in dialogue.sessions for message in session}
        answers = tuple(match[2].split())
        if match[1] not in KINDS or not known.issuperset(answers):
            raise ValueError(f"the kind must be one of {', '.join(KINDS)}, and the messages must exist")
        dialogue.questions.append(Question(match[1], answers, match[3]))
    else:
        raise ValueError("is no session, message or question")


def to_locomo(dialogue: Dialogue) -> dict[str, Any]:
    """Return a conversation of two people in LoCoMo's format."""
    speakers = dialogue.speakers
    conversation: dict[str, Any] = {"speaker_a": speakers[0], "speaker_b": speakers[1]}
    for index, (at, messages) in enumerate(zip(dialogue.times, dialogue.sessions, strict=True), start=1):
        conversation[f"session_{index}_date_time"] = at.strftime("%I:%M %p on %d %B, %Y")
        conversation[f"session_{index}"] = [_to_turn(message) for message in messages]
    asked = [
        {"question": q.text, "category": KINDS[q.kind], "evidence": list(map(_to_turn_id, q.answers))}
        for q in dialogue.questions
    ]
    return {"sample_id": dialogue.name, "conversation": conversation, "qa": asked}


def _to_turn_id(number: str) -> str:
    return "D" + number.replace(".", ":")


def _to_turn(message: Message) -> dict[str, Any]:
    photo = _PHOTO.search(message.text)
    turn: dict[str, Any] = {"speaker": message.speaker, "dia_id": _to_turn_id(message.number)}
    turn["text"] = _PHOTO.sub(" ", message.text).strip() or "Look!"
    return turn | {"blip_caption": photo[1]} if photo else turn


def to_memory(dialogue: Dialogue) -> dict[str, Any]:
    """Return a chat with an assistant as a line of training/ranking_data.py's format."""
    name = dialogue.name
    sessions = [
        [{"id": f"{name}-{m.number}", "role": m.speaker.lower(), "text": m.text} for m in messages]
        for messages in dialogue.sessions
    ]
    asked = [{"question": q.text, "gold": [f"{name}-{n}" for n in q.answers]} for q in dialogue.questions]
    return {"sessions": sessions, "notes": [], "questions": asked}


def main() -> None:
    """Check files, or convert them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check: all paths are files to read")
    parser.add_argument("paths", type=Path, nargs="+", help="the file to write, and those to read")
    options = parser.parse_args()
    out, *paths = options.paths
    dialogues = [read_dialogue(path) for path in (options.paths if options.check else paths)]
    for dialogue in dialogues:
        count = sum(map(len, dialogue.sessions))
        print(
            f"{dialogue.name}: {len(dialogue.sessions)} sessions, {count} messages, {len(dialogue.questions)} questions"
        )
    if options.check:
        return
    if out.suffix == ".jsonl":
        out.write_text("".join(json.dumps(to_memory(dialogue)) + "\n" for dialogue in dialogues), encoding="utf-8")
    else:
        out.write_text(json.dumps([to_locomo(dialogue) for dialogue in dialogues], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
