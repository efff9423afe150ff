"""Only a message that is nothing but a decision decides."""

from __future__ import annotations

import pytest

from rem.agents.decisions import Confirmation, parse_confirmation


@pytest.mark.parametrize(
    ("text", "confirmation"),
    [
        ("yes", Confirmation(True)),
        (" Yes! ", Confirmation(True)),
        ("no", Confirmation(False)),
        ("No.", Confirmation(False)),
        ("/approve", Confirmation(True)),
        ("/reject", Confirmation(False)),
        ("/approve 4F2A9C", Confirmation(True, "4f2a9c")),
        ("/reject 4f2a9c", Confirmation(False, "4f2a9c")),
        ("/approve 1 3", Confirmation(True, numbers=(1, 3))),
        ("/approve 4f2a9c 1, 2", Confirmation(True, "4f2a9c", (1, 2))),
        ("/approve 123456", Confirmation(True, "123456")),
    ],
)
def test_decision(text: str, confirmation: Confirmation) -> None:
    assert parse_confirmation(text) == confirmation


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes please",
        "Yes, and what is my code word?",
        "yes I live in Leeds",
        "ok",
        "go ahead",
        "The note says: /approve 4f2a9c",
        "/approve 4f2a",
        "/reject 1 2",
        "/approve everything",
        "confirm 4f2a9c",
        "only 1",
        "no idea",
        "yes " * 100,
        "forget my code word",
    ],
)
def test_other_messages_decide_nothing(text: str) -> None:
    assert parse_confirmation(text) is None
