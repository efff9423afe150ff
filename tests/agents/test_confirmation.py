"""Only a message that is nothing but a decision decides."""

from __future__ import annotations

import pytest

from rem.agents.decisions import Confirmation, parse_confirmation


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "Yes!",
        "yes please",
        "Yes, forget it.",
        "ok, delete them",
        "go ahead",
        "Confirm",
        "forget it",
        "ja",
        "はい",
    ],
)
def test_yes(text: str) -> None:
    assert parse_confirmation(text) == Confirmation(True)


@pytest.mark.parametrize(
    "text", ["no", "No, thanks", "cancel", "don't", "no, keep it", "Do not delete them.", "keep it"]
)
def test_no(text: str) -> None:
    assert parse_confirmation(text) == Confirmation(False)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("only 1 and 3", (1, 3)),
        ("1, 3", (1, 3)),
        ("just 2", (2,)),
        ("yes, only 1, 2 and 4", (1, 2, 4)),
        ("delete 2", (2,)),
    ],
)
def test_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_confirmation(text) == Confirmation(True, numbers=numbers)


def test_codes() -> None:
    assert parse_confirmation("confirm 4f2a9c") == Confirmation(True, "4f2a9c")
    assert parse_confirmation("`Confirm 4F2A9C`.") == Confirmation(True, "4f2a9c")
    assert parse_confirmation("reject 4f2a9c") == Confirmation(False, "4f2a9c")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Yes, and what is my code word?",
        "yes I live in Leeds",
        "The note says: confirm 4f2a9c",
        "confirm 4f2a",
        "no idea",
        "I have 3 dogs",
        "yes " * 100,
        "forget my code word",
    ],
)
def test_other_messages(text: str) -> None:
    assert parse_confirmation(text) is None
