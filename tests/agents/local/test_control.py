"""Plain words that ask to remember, forget or correct something."""

from __future__ import annotations

from typing import Any

import pytest

from rem.agents.local.control import Command, parse_command


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("Forget my code word.", "forget", {"what": "my code word"}),
        ("Delete what I said about Marta", "forget", {"what": "what I said about Marta"}),
        ("Can you please forget my address?", "forget", {"what": "my address"}),
        ("Please erase the note about the boat.", "forget", {"what": "the note about the boat"}),
        ("Correct: my flight is SK1427", "correct", {"what": "my flight", "to": "my flight is SK1427"}),
        ("Correction: I live in Aarhus", "correct", {"what": "I live", "to": "I live in Aarhus"}),
        ("Change my flight to SK1427", "correct", {"what": "my flight", "to": "My flight is SK1427"}),
        ("Change my flight to: SK1427", "correct", {"what": "my flight", "to": "My flight is SK1427"}),
        (
            "correct the boat to: the boat is in Laboe",
            "correct",
            {"what": "the boat", "to": "the boat is in Laboe"},
        ),
        ("Remember that Marta likes tea.", "remember", {"text": "Marta likes tea."}),
        ("Please note: the gate code is 4711", "remember", {"text": "the gate code is 4711"}),
        ("Don't forget that my flight is SK1427", "remember", {"text": "my flight is SK1427"}),
        ("Could you remember that I am vegan?", "remember", {"text": "I am vegan"}),
    ],
)
def test_commands(text: str, tool: str, arguments: dict[str, Any]) -> None:
    assert parse_command(text) == Command(tool, arguments)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Forget it.",
        "forget about that",
        "I will never forget Marta.",
        "Did I forget my keys?",
        "Do you remember my code word?",
        "Remember my code word?",
        "What did I ask you to forget?",
        "Forget to call Marta and you are in trouble. What then?",
        "Remember that I am vegan. What can I cook?",
        "Correct!",
        "x" * 3000,
    ],
)
def test_other_messages(text: str) -> None:
    assert parse_command(text) is None
