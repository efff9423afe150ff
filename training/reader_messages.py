"""Make messages with what answers them and whether they continue the one before, for training/reader_data.py."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from bench.quality.week.data import Week, read_week

from rem.models.message import MessageKind
from rem.search.reader import MessageType

FOLDER = Path(__file__).parent
CASES_PER_TYPE = 900
FOLLOW_UPS = 1200
SHORT_MESSAGE_COPIES = 3
SHARE_WITH_PREVIOUS = 0.5
SHARE_TYPO, SHARE_LOWER = 0.2, 0.4
_SLOT = re.compile(r"\{(\w+)\}")
_YES_NO = re.compile(r"(?:is|are|was|were|do|does|did|has|have|can|will|am|should)(?:n't)? (?!you )", re.IGNORECASE)
_UNCERTAIN = re.compile(
    r"\b(?:how many|how often|all|every|which|list|total|most|least|\w+est|who are|first|last)\b|s\?$", re.I
)
"""Questions of the weeks whose type is not known without their answer."""
_NOTE_REQUEST = re.compile(r"(?:please )?(?:note|remember|write down|jot)\b", re.IGNORECASE)
_NAME = re.compile(r"(?<=[a-z,] )([A-Z][a-zà-ÿ]{2,})('s|’s)?\b")
_KINDS = {
    MessageKind.STATEMENT: MessageType.STATEMENT,
    MessageKind.SMALL_TALK: MessageType.SMALL_TALK,
    MessageKind.COMMAND: MessageType.COMMAND,
}

Message = dict[str, Any]


@cache
def read_content() -> dict[str, Any]:
    """Return what training/reader_messages.yaml holds."""
    content: dict[str, Any] = yaml.safe_load((FOLDER / "reader_messages.yaml").read_text(encoding="utf-8"))
    return content


def make_messages(weeks: Sequence[Path], generator: random.Random) -> Iterator[Message]:
    """Yield the messages of the frames and of weeks, as people type them."""
    read = [read_week(path) for path in weeks]
    asked = [question.ask for week in read for question in week.questions]
    for message in (*_of_frames(generator), *_of_weeks(read), *_of_short_messages()):
        previous = generator.choice(asked) if generator.random() < SHARE_WITH_PREVIOUS else None
        yield message | {"text": type_badly(message["text"], generator), "previous": previous}
    for message in (*_of_follow_ups(asked, generator), *_of_same_name(read, generator)):
        yield message | {"text": type_badly(message["text"], generator)}


def read_held_out() -> tuple[list[tuple[str, str]], list[tuple[str, str, bool]]]:
    """Return messages with their types, and pairs of messages with whether the second one continues the first one."""
    held_out = read_content()["held_out"]
    typed = [(text, str(kind)) for kind in MessageType for text in held_out[kind]]
    return typed, [(first, second, continues) for first, second, continues in held_out["follow_ups"]]


def type_badly(text: str, generator: random.Random) -> str:
    """Return a text as somebody may have typed it: in lower case, without its last sign, with a wrong letter."""
    if generator.random() < SHARE_LOWER:
        text = text.lower().replace("'", "" if generator.random() < 0.5 else "'")
    else:
        text = text[:1].upper() + text[1:]
    if generator.random() < SHARE_LOWER:
        text = text.rstrip("?.! ")
    if generator.random() < SHARE_TYPO and len(text) > 8:
        place = generator.randrange(1, len(text) - 2)
        swapped = text[place + 1] + text[place]
        text = text[:place] + generator.choice((swapped, text[place + 1], text[place] * 2)) + text[place + 2 :]
    return text


def _fill(frame: str, generator: random.Random) -> str:
    slots = read_content()["slots"]
    return _SLOT.sub(lambda slot: str(generator.choice(slots[slot[1]])), frame)


def _of_frames(generator: random.Random) -> Iterator[Message]:
    for kind, frames in read_content()["types"].items():
        for number in range(CASES_PER_TYPE):
            text = _fill(frames[number % len(frames)], generator)
            yield {"text": text, "type": kind, "continues": False if _stands_alone(text) else None}


def _stands_alone(text: str) -> bool:
    """Return whether a message made of a frame says what it is about."""
    return len(text.split()) > 4 and not text.startswith(("and ", "it ", "is now", "that", "sorry", "actually"))


def _of_weeks(weeks: Sequence[Week]) -> Iterator[Message]:
    """Yield the messages of weeks, and the questions whose type is known."""
    for week in weeks:
        for session in week.sessions:
            for message in session.messages:
                kind = _KINDS.get(message.kind)
                if kind is not None and not _NOTE_REQUEST.match(message.text):
                    yield {"text": message.text, "type": str(kind), "continues": None}
        for question in week.questions:
            if _YES_NO.match(question.ask):
                yield {"text": question.ask, "type": "yes_no", "continues": None}
            elif not _UNCERTAIN.search(question.ask):
                yield {"text": question.ask, "type": "fact", "continues": None}


def _of_short_messages() -> Iterator[Message]:
    messages = yaml.safe_load((FOLDER / "short_messages.yaml").read_text(encoding="utf-8"))["train"]
    for kind in (MessageType.STATEMENT, MessageType.SMALL_TALK):
        for text in messages.get(str(kind), ()):
            yield from [{"text": text, "type": str(kind), "continues": None}] * SHORT_MESSAGE_COPIES


def _of_follow_ups(asked: Sequence[str], generator: random.Random) -> Iterator[Message]:
    """Yield messages that continue a question, and others that do not."""
    frames = read_content()["follow_ups"]
    for number in range(FOLLOW_UPS):
        text = _fill(frames[number % len(frames)], generator)
        first, second = generator.sample(asked, 2)
        yield {"text": text, "previous": first, "type": None, "continues": True}
        yield {"text": second, "previous": first, "type": None, "continues": False}


def _of_same_name(weeks: Sequence[Week], generator: random.Random) -> Iterator[Message]:
    """Yield two questions or statements about one name, the second one also with a pronoun in place of the name."""
    for week in weeks:
        for texts in ([q.ask for q in week.questions], week.list_texts(MessageKind.STATEMENT)):
            named: dict[str, list[str]] = {}
            for text in texts:
                for match in _NAME.finditer(text):
                    named.setdefault(match[1], []).append(text)
            for name, found in sorted(named.items()):
                if len(found) < 2:
                    continue
                first, second = generator.sample(found, 2)
                pronouns = generator.choice((("he", "his"), ("she", "her"), ("they", "their"), ("it", "its")))
                changed = re.sub(rf"\b{re.escape(name)}(?:'s|’s)", pronouns[1], second)
                changed = re.sub(rf"\b{re.escape(name)}\b", pronouns[0], changed)
                if not _NAME.search(changed):
                    yield {"text": changed, "previous": first, "type": None, "continues": True}
                    yield {"text": second, "previous": first, "type": None, "continues": False}
