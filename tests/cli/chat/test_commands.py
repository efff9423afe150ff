"""Every command of `rem chat` in a real terminal: narrow, usual and wide; completion; no colour; odd input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from rem.cli.chat.commands import COMMANDS
from tests.cli.chat.conftest import connect
from tests.rem_command import output, rem
from tests.scripted_model import ScriptedModel
from tests.terminal import CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal

PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"
LISTS = ("/help", "/sessions", "/agent", "/model")
LONG = "The boat Albatross lies in the harbour of Piran, behind the old salt house, next to the Heron. " * 5

_WAITING = re.compile(r"\S waiting for the model \d+ s")


@pytest.mark.parametrize(("columns", "place"), [(40, "local"), (80, "local"), (200, "local"), (40, "remote with key")])
def test_every_command_fits_the_terminal(scripted: dict[str, str], tmp_path: Path, columns: int, place: str) -> None:
    output("demo", settings=scripted)
    steps = [
        (LONG, "message 1."),
        ("/help", "leaves."),
        ("/feedback 5 well done", "Your rating is stored."),
        ("/save boat talk", "Named this session"),
        ("/sessions", "(this one)"),
        ("/load boat talk", "Continuing boat talk"),
        ("/history", "message 1."),
        ("/search Albatross", "Albatross"),
        ("/query LOOKUP nothing-here", "No rows."),
        ("/memory", "There are no moments yet"),
        ("/memory where is the boat", "Albatross"),
        ("/profile", "There is no profile yet"),
        ("/agent", "* rem"),
        ("/agent rem", "You talk to rem now."),
        ("/model", "rem:local"),
        ("/model openai:scripted", "answers from now on"),
        (f"/export {tmp_path}/talk.md", "Wrote 2 messages"),
        ("/reasoning", "without reasoning"),
        ("/clear", "Starting over"),
        ("/forget", "Type yes:"),
        ("yes", "Deleted."),
        ("/new", "begins a new session"),
    ]
    used = {words[1:].split()[0] for words, _ in steps if words.startswith("/")}
    assert used | {"quit"} == set(COMMANDS)
    with (
        connect(scripted, place) as options,
        Terminal("chat", *options, settings=scripted, columns=columns) as terminal,
    ):
        terminal.wait_for(">")
        for words, expected in steps:
            terminal.type(words + ENTER)
            # On a slow machine, the note that the chat waits is drawn over the line before.
            lines = _WAITING.sub("", terminal.wait_for(expected)).splitlines()
            if words == LONG:
                # Until the prompt, the end of the answer is drawn several times, over itself.
                terminal.wait_for("\n>")
            if words in LISTS:
                # The first line is what was typed, the last one may be the next prompt.
                assert max(map(cell_len, lines[1:-1])) <= columns, lines
        terminal.type("/quit" + ENTER)
        assert terminal.wait_for_end() == 0
    assert "Traceback" not in terminal.text
    assert "Error" not in terminal.text


def test_commands_agents_and_keys_are_completed(scripted: dict[str, str]) -> None:
    output("demo", settings={**scripted, "REM_USER": ""})
    with Terminal("chat", "--tenant", "demo", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("/mem" + TAB)
        terminal.wait_for("ory")
        terminal.type(CTRL_C)
        terminal.wait_for(">")
        terminal.type("/agent query" + TAB)
        terminal.wait_for("-agent")
        terminal.type(CTRL_C)
        terminal.wait_for(">")
        terminal.type("/query LOOKUP sarah-c" + TAB)
        terminal.wait_for("hen")
        terminal.type(ENTER)
        terminal.wait_for("Fernhollow Analytics")


def test_sessions_are_completed_by_their_names(scripted: dict[str, str]) -> None:
    output("ask", "Which boats?", "--session", "boat trip", settings=scripted)
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("/load boat" + TAB)
        terminal.wait_for("trip")
        terminal.type(ENTER)
        terminal.wait_for("Continuing boat trip, 2 messages.")
        terminal.wait_for("Which boats?")


def test_unknown_model_is_refused_at_once(scripted: dict[str, str]) -> None:
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("/model nobody:x" + ENTER)
        terminal.wait_for("There is no provider 'nobody'")
        terminal.wait_for(">")
        terminal.type("hello" + ENTER)
        terminal.wait_for("You said 'hello', message 1.")


def test_memory_answers_without_a_model_and_reads_its_commands(scripted: dict[str, str]) -> None:
    with Terminal("chat", "--model", "rem:local", settings=scripted, columns=120) as terminal:
        terminal.wait_for(">")
        terminal.type("/remember My bike is red." + ENTER)
        terminal.wait_for("Noted: “My bike is red.”")
        terminal.wait_for(">")
        terminal.type("What colour is my bike?" + ENTER)
        terminal.wait_for("My bike is red. (you")


def test_odd_input_reaches_the_model_whole(scripted: dict[str, str], model: ScriptedModel) -> None:
    pasted = "line one\nline two\n" + "x" * 2_000 + "\n末尾 👩‍👩‍👧 ë"
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type(PASTE_START + pasted + PASTE_END)
        terminal.wait_for("ë")
        terminal.type(ENTER)
        terminal.wait_for("message 1.", 40)
        terminal.type("/home/anna is a path" + ENTER)
        terminal.wait_for("message 2.")
        terminal.resize(100, 30)
        terminal.type("one\\" + ENTER + "two" + ENTER)
        terminal.wait_for("message 3.")
        terminal.wait_for(">")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
    sent = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "user"]
    assert sent == [pasted, "/home/anna is a path", "one\ntwo"]


@pytest.mark.parametrize("settings", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_chat_works_without_colour(scripted: dict[str, str], settings: dict[str, str]) -> None:
    with Terminal("chat", settings={**scripted, **settings}) as terminal:
        terminal.wait_for(">")
        terminal.type("list my boats" + ENTER)
        terminal.wait_for("That is all.")
        terminal.type("fail please" + ENTER)
        terminal.wait_for("Error:")
        terminal.type("/quit" + ENTER)
        assert terminal.wait_for_end() == 0
        assert not re.search(r"\x1b\[[0-9;]*(?:3[0-7]|9[0-7]|38;5)", terminal.raw)


@pytest.mark.parametrize("place", ["local", "remote"])
def test_up_brings_back_messages_of_earlier_sessions(scripted: dict[str, str], place: str) -> None:
    rem("chat", settings=scripted, stdin="The oars are in the shed.\n")
    with connect(scripted, place) as options, Terminal("chat", *options, settings=scripted) as terminal:
        terminal.wait_for(">")
        for _ in range(100):
            # They are loaded while the user types.
            terminal.type(UP)
            try:
                terminal.wait_for("The oars are in the shed.", seconds=0.5)
                break
            except AssertionError:
                continue
        terminal.type(ENTER)
        terminal.wait_for("You said 'The oars are in the shed.', message 1.")


def test_chat_without_a_user_says_who_finds_it_later(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    assert "rem config set user" in rem("chat", settings=settings, stdin="My bike is red\n").stderr
    assert rem("chat", "--user", "zoe@example.com", settings=settings, stdin="My bike is red\n").stderr == ""


def test_pipe_gets_answers_on_stdout_and_errors_on_stderr(scripted: dict[str, str]) -> None:
    done = rem("chat", settings=scripted, stdin="hello\nfail please\n/nothing\nlist\n")
    assert done.returncode == 1
    assert done.stdout.startswith("You said 'hello', message 1.\n")
    assert "**Albatross**" in done.stdout
    assert "Error" not in done.stdout
    assert done.stderr.count("Error: ") == 2
    assert "\x1b" not in done.stdout + done.stderr
