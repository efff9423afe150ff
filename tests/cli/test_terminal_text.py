"""No stored text controls the terminal of the person who reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

import rem.cli as commands
from rem.app import Rem
from rem.cli.terminal_text import escape_control_characters
from rem.models import Role
from rem.sessions.message import NewMessage
from tests.terminal import Terminal

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
"""Set the title of the window, clear the screen, colour the text, and turn its direction."""
USER = "alice@example.com"
COMMANDS = (
    ("sessions", "list"),
    ("sessions", "show", "attack"),
    ("sessions", "search", "treasure", "--limit", "1"),
    ("lookup", "attack"),
    ("lookup", "attack", "--json"),
    ("query", "SELECT content FROM messages"),
    ("forget", "treasure", "--dry-run"),
)


def test_control_characters_are_shown() -> None:
    text = escape_control_characters(f"a\tb\r\nc{ATTACK}")
    assert text == r"a" "\t" "b\n" r"c\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_stored_text_does_not_control_the_terminal(command: tuple[str, ...], rem: Rem, dsn: str) -> None:
    await rem.for_user(USER).sessions.create_session(description=f"A treasure {ATTACK}")
    session = await rem.for_user(USER).sessions.create_session(name="attack", description=f"A treasure {ATTACK}")
    message = NewMessage(role=Role.USER, content=f"The treasure is here {ATTACK} on the island.")
    await rem.for_user(USER).sessions.append(session.id, [message])
    with Terminal(*command, "--user", USER, settings={"POSTGRES__CONNECTION_STRING": dsn}) as terminal:
        assert terminal.wait_for_end() == 0, terminal.text
    for part in ("\x1b]0", "\x1b[2J", "\x07", "\x9b", "\u202e"):
        assert part not in terminal.printed
    assert r"\x1b[2J" in terminal.printed or r"\u001b[2J" in terminal.printed


def test_commands_print_through_the_functions_that_escape() -> None:
    folder = Path(commands.__file__).parent
    found = [path.name for path in folder.rglob("*.py") if "typer.echo(" in path.read_text()]
    assert found == ["terminal_text.py"]
