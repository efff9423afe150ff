"""An agent asks for consent: the user approves, rejects or edits in place, in `rem chat` and `rem ask`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.conftest import connect
from tests.rem_command import output
from tests.scripted_model import Call, ScriptedModel, Step, has_result
from tests.terminal import CTRL_C, ENTER, Terminal

CAREFUL = """
type: object
description: You keep notes.
json_schema_extra:
  kind: agent
  name: careful
  consent: [irreversible, reversible_with_delay]
  tools:
    - name: remember
"""


@pytest.fixture
def careful(scripted: dict[str, str], model: ScriptedModel, tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "careful.yaml"
    path.write_text(CAREFUL)
    output("agents", "save", str(path), settings=scripted)

    def script(body: dict[str, Any]) -> Sequence[Step]:
        if has_result(body):
            return [f"Result: {json.dumps(body['messages'][-1]['content'])}"]
        return [Call("remember", {"text": "My flight is SK1."})]

    model.script = script
    return scripted


def _find_flights(settings: dict[str, str]) -> list[str]:
    rows = json.loads(output("query", "SELECT content FROM resources", "--json", settings=settings))["results"]
    return [row["content"] for row in rows if "flight" in row["content"]]


@pytest.mark.parametrize("place", ["local", "remote with key"])
def test_user_approves_rejects_and_edits_in_the_chat(careful: dict[str, str], place: str) -> None:
    with (
        connect(careful, place) as options,
        Terminal("chat", "-a", "careful", *options, settings=careful, columns=60) as terminal,
    ):
        terminal.wait_for(">")
        terminal.type("note my flight" + ENTER)
        terminal.wait_for("Choose 1 to 3")
        terminal.type(CTRL_C)
        terminal.wait_for("Stopped.")
        terminal.wait_for(">")
        terminal.type("note my flight" + ENTER)
        terminal.wait_for("3. Edit")
        terminal.wait_for("Choose 1 to 3")
        terminal.type("2" + ENTER)
        terminal.wait_for("Reason")
        terminal.type("not this one" + ENTER)
        assert "not this one" in terminal.wait_for(">") + terminal.text
        assert _find_flights(careful) == []
        terminal.type("note my flight" + ENTER)
        terminal.wait_for("Choose 1 to 3")
        terminal.type("edit" + ENTER)
        terminal.wait_for("1. Approve with these arguments")
        terminal.type("1" + ENTER)
        terminal.wait_for('{ "text": "My flight is SK1." }')
        terminal.type("x" + ENTER)
        terminal.wait_for("is not JSON")
        terminal.wait_for("Choose 1 to 3")
        terminal.type("3" + ENTER + "1" + ENTER)
        terminal.wait_for('{ "text": "My flight is SK1." }')
        terminal.type("\x7f" * len('SK1." }') + 'SK9."}' + ENTER)
        terminal.wait_for("Result:")
        assert _find_flights(careful) == ["My flight is SK9."]
        terminal.type("note my flight" + ENTER)
        terminal.wait_for("Choose 1 to 3")
        terminal.type("approve" + ENTER)
        terminal.wait_for("Result:")
        terminal.type("/quit" + ENTER)
        assert terminal.wait_for_end() == 0
    assert sorted(_find_flights(careful)) == ["My flight is SK1.", "My flight is SK9."]


@pytest.mark.parametrize(
    ("keys", "flights"),
    [
        (["y"], ["My flight is SK1."]),
        (["n"], []),
        (["later"], []),
        (["e", '{"text": "My flight is SK7."}', "y"], ["My flight is SK7."]),
        (["e", "no json", "e", '{"text": "My flight is SK8."}', "y"], ["My flight is SK8."]),
    ],
    ids=["yes", "no", "later", "edit", "edit again"],
)
def test_rem_ask_asks_the_person_at_the_terminal(careful: dict[str, str], keys: list[str], flights: list[str]) -> None:
    with Terminal("ask", "note my flight", "-a", "careful", settings=careful) as terminal:
        for key in keys:
            terminal.wait_for("Arguments, as JSON" if key[0] in "{" or " " in key else "Approve?")
            terminal.type(key + ENTER)
        assert terminal.wait_for_end() == 0
    assert _find_flights(careful) == flights
    pending = json.loads(output("approvals", "list", "--json", settings=careful))
    assert len(pending) == (1 if keys == ["later"] else 0)


def test_words_at_a_card_are_a_message(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "REM_USER": "zoe@example.com"}
    with Terminal("chat", settings=settings) as terminal:
        terminal.wait_for(">")
        terminal.type("My locker is number 214." + ENTER)
        terminal.wait_for("Noted")
        terminal.type("Forget my locker number" + ENTER)
        terminal.wait_for("no to keep everything")
        terminal.wait_for("Choose 1 to")
        terminal.type("no" + ENTER)
        terminal.wait_for("nothing was changed")
        terminal.type("Forget my locker number" + ENTER)
        terminal.wait_for("Choose 1 to")
        terminal.type("/memory locker" + ENTER)
        terminal.wait_for("My locker is number 214.")
        terminal.type("Forget my locker number" + ENTER)
        terminal.wait_for("Choose 1 to")
        terminal.type("yes" + ENTER)
        terminal.wait_for("Forgotten: 1 text")
        terminal.type("/quit" + ENTER)
        assert terminal.wait_for_end() == 0
