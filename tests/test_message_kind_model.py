"""The trained model tells questions and small talk from statements, in weeks that it has not seen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from bench.quality.week.data import read_week

from rem.message_kind_model import MAX_WORDS, estimate_kind
from rem.message_kinds import classify_message, is_reminder
from rem.models.message import MessageKind

_WEEKS = sorted((Path(__file__).parents[1] / "training" / "weeks" / "held_out").glob("*.yaml"))


def _count_kinds() -> Counter[tuple[MessageKind, MessageKind]]:
    counts: Counter[tuple[MessageKind, MessageKind]] = Counter()
    for path in _WEEKS:
        week = read_week(path)
        counts.update((MessageKind.QUESTION, classify_message(item.ask)) for item in week.questions)
        messages = (message for session in week.sessions for message in session.messages)
        counts.update((message.kind, classify_message(message.text)) for message in messages)
    return counts


def test_messages_of_unseen_weeks_get_their_kind() -> None:
    counts = _count_kinds()
    totals = Counter({kind: sum(n for (given, _), n in counts.items() if given is kind) for kind in MessageKind})
    right = {kind: counts[kind, kind] / totals[kind] for kind in totals if totals[kind]}
    assert len(_WEEKS) == 3
    assert right[MessageKind.STATEMENT] == 1, "a statement that is taken for something else is not remembered"
    assert right[MessageKind.QUESTION] >= 0.95
    assert right[MessageKind.COMMAND] >= 0.8
    assert right[MessageKind.SMALL_TALK] >= 0.45


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("serial number of the coffee machine", MessageKind.QUESTION),
        ("why send the pump back", MessageKind.QUESTION),
        ("right im off to bed", MessageKind.SMALL_TALK),
        ("I love hiking", MessageKind.STATEMENT),
        ("the wifi password at the cabin is bluefin", MessageKind.STATEMENT),
    ],
)
def test_kind_of_a_text_without_signs(text: str, kind: MessageKind) -> None:
    assert estimate_kind(text)[0] is kind
    assert classify_message(text) is kind


@pytest.mark.parametrize(
    "text", ["", "???", "Wachtwoord voor het huisje", "Der Schlüssel liegt unter dem Topf", "how " * (MAX_WORDS + 1)]
)
def test_text_without_known_words_and_long_text_is_a_statement(text: str) -> None:
    assert estimate_kind(text) == (MessageKind.STATEMENT, 1.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Remind me to call Lone", True),
        ("ok please remind me tomorrow to swap the lamp", True),
        ("Remind me what my locker number is", False),
        ("That reminds me of Lone", False),
    ],
)
def test_is_reminder(text: str, expected: bool) -> None:
    assert is_reminder(text) is expected
