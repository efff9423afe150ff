"""`rem chat` in a real terminal, with a scripted model: streaming, commands, Ctrl-C, cards, errors, narrow screens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.api.chat.test_streaming import AGENT
from tests.cli.chat.conftest import ZOE, connect
from tests.rem_command import REPOSITORY, output, rem
from tests.scripted_model import Call, ScriptedModel, has_result, last_text
from tests.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal


def test_chat_streams_calls_tools_and_continues(scripted: dict[str, str], model: ScriptedModel) -> None:
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for("/help lists the commands")
        terminal.wait_for(">")
        terminal.type("Use a tool" + ENTER)
        terminal.wait_for("· rem: search_rem(query='FUZZY \"zoe\"')")
        terminal.wait_for("You said 'Use a tool', message 1.")
        terminal.type("two" + ALT_ENTER + "lines" + ENTER)
        terminal.wait_for(r"You said 'two\nlines', message 2.")
        terminal.type(UP)
        terminal.wait_for("lines")
        terminal.type(CTRL_C)
        terminal.wait_for("Ctrl-D or /quit")
        terminal.wait_for(">")
        terminal.type(CTRL_D)
        assert terminal.wait_for_end() == 0
        session = re.search(r"--session ([0-9a-f-]{36})", terminal.text)
    assert session is not None
    with Terminal("chat", "--session", session.group(1), settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("again" + ENTER)
        terminal.wait_for("You said 'again', message 3.")


def test_ctrl_c_stops_the_answer_and_keeps_the_session(scripted: dict[str, str], model: ScriptedModel) -> None:
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("Answer slowly" + ENTER)
        terminal.wait_for("One word")
        terminal.type("xyzzy" + CTRL_C)
        # Keys that are pressed during the answer do not appear in it.
        drawn = terminal.wait_for("Stopped. What was said so far is stored.")
        assert "^C" not in drawn
        assert "xyzzy" not in drawn
        terminal.type("hello" + ENTER)
        terminal.wait_for("You said 'hello', message 2.")
        terminal.type("/history" + ENTER)
        terminal.wait_for("One word")
        terminal.type("/quit" + ENTER)
        assert terminal.wait_for_end() == 0


def test_clear_hides_messages_from_the_model_and_keeps_them(scripted: dict[str, str], model: ScriptedModel) -> None:
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("first" + ENTER)
        terminal.wait_for("You said 'first', message 1.")
        terminal.type("/clear" + ENTER)
        terminal.wait_for("the 2 messages so far stay stored")
        terminal.type("second" + ENTER)
        terminal.wait_for("You said 'second', message 1.")
        assert "You said 'first'" not in json.dumps(model.requests[-1]["messages"])
        terminal.type("/history" + ENTER)
        terminal.wait_for("You said 'first', message 1.")
        terminal.type("/forget" + ENTER)
        terminal.wait_for("Delete this session with its 4 messages? Type yes:")
        terminal.type("no" + ENTER)
        terminal.wait_for("Nothing was deleted.")
        terminal.type("/forget" + ENTER)
        terminal.wait_for("Type yes:")
        terminal.type("yes" + ENTER)
        terminal.wait_for("Deleted.")
        terminal.type("/sessions" + ENTER)
        terminal.wait_for("You have no sessions yet.")


def test_markdown_is_rendered_and_fits_a_narrow_terminal(scripted: dict[str, str]) -> None:
    with Terminal("chat", settings=scripted, columns=40) as terminal:
        terminal.wait_for(">")
        terminal.type("list my boats" + ENTER)
        terminal.wait_for("That is all.")
        terminal.type("/help" + ENTER)
        terminal.wait_for("/sessions")
        lines = terminal.wait_for("leaves.").splitlines()
        shown = terminal.text
    assert "**" not in shown
    assert "• Albatross" in shown
    assert "sail" in shown
    assert len(lines) > 20
    assert max(map(len, lines[1:])) <= 40


def test_failed_answer_and_unknown_command_are_explained(scripted: dict[str, str]) -> None:
    with Terminal("chat", settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("fail please" + ENTER)
        terminal.wait_for("Error:")
        terminal.type("/sesions" + ENTER)
        terminal.wait_for("There is no command /sesions. Did you mean sessions?")
        terminal.type("/load nowhere" + ENTER)
        terminal.wait_for("There is no session 'nowhere'")
        terminal.type("/feedback up" + ENTER)
        terminal.wait_for("Error:")
        terminal.type("/agent" + TAB)
        terminal.type(" nobody" + ENTER)
        terminal.wait_for("There is no agent 'nobody'.")
        terminal.type("/quit" + ENTER)
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize("place", ["local", "remote"])
def test_commands_of_the_memory(scripted: dict[str, str], tmp_path: Path, place: str) -> None:
    lines = [
        "My boat is called Albatross.",
        "/search Albatross",
        "/query LOOKUP nothing-here",
        "/memory",
        "/profile",
        "/agent rem",
        "/model",
        "/feedback 5 well done",
        "/save boat talk",
        "/load boat talk",
        f"/export {tmp_path}/talk.md",
        f"/export {tmp_path}/talk.json",
        "/reasoning",
        "/new",
        "/sessions",
    ]
    with connect(scripted, place) as options:
        done = rem("chat", *options, settings=scripted, stdin="\n".join(lines))
        again = rem(
            "chat", "--session", "boat talk", *options, settings=scripted, stdin=f"/export {tmp_path}/talk.md\n"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in (
        "Albatross",
        "No rows.",
        "Your rating is stored.",
        "Named this session 'boat talk'",
        "Continuing boat",
    ):
        assert text in done.stdout
    assert "My boat is called Albatross." in (tmp_path / "talk.md").read_text()
    assert [row["role"] for row in json.loads((tmp_path / "talk.json").read_text())] == ["user", "assistant"]
    assert (tmp_path / "talk.md").stat().st_mode & 0o77 == 0
    assert again.returncode == 1
    assert "exists: choose another name" in again.stderr


@pytest.mark.parametrize("place", ["local", "remote"])
def test_card_is_answered_in_place(scripted: dict[str, str], model: ScriptedModel, place: str, tmp_path: Path) -> None:
    agent = tmp_path / "asker.yaml"
    agent.write_text(AGENT.format(name="asker", prompt="Answer.", tools="    - name: action"))
    output("agents", "save", str(agent), settings=scripted)
    card = {
        "id": "pick",
        "prompt": "Which boat do you mean?",
        "actions": [
            {"type": "Action.Submit", "id": "albatross", "title": "Albatross"},
            {"type": "Action.Submit", "id": "none", "title": "None of them", "style": "secondary"},
        ],
        "inputs": [{"type": "Input.Text", "id": "why", "label": "Why"}],
    }
    model.script = lambda body: (
        [f"You said {last_text(body)!r}."]
        if has_result(body) or "Albatross" in last_text(body)
        else [Call("action", {"type": "elicit", "payload": {"card": card}})]
    )
    with connect(scripted, place) as options, Terminal("chat", "-a", "asker", *options, settings=scripted) as terminal:
        terminal.wait_for(">")
        terminal.type("Where is it?" + ENTER)
        terminal.wait_for("Which boat do you mean?")
        terminal.wait_for("1. Albatross")
        terminal.wait_for("Choose 1 to 2")
        terminal.type("7" + ENTER)
        terminal.wait_for("That is none of them.")
        terminal.type("1" + ENTER)
        terminal.wait_for("Why")
        terminal.type("it is mine" + ENTER)
        terminal.wait_for("it is mine'.")
    submitted = last_text(model.requests[-1])
    assert submitted == "Albatross\nWhy: it is mine"


def test_rem_ask_asks_a_server(scripted: dict[str, str]) -> None:
    with connect(scripted, "remote with key") as options:
        question = ("ask", "use a tool", "--session", "harbour", *options)
        assert output(*question, settings=scripted) == "You said 'use a tool', message 1.\n"
        again = json.loads(output(*question, "--json", settings=scripted))
        assert again["text"] == "You said 'use a tool', message 2."
        assert [call["name"] for call in again["tool_calls"]] == ["search_rem"]
        assert again["model"] == "openai:scripted"
        failed = rem("ask", "fail please", *options, settings=scripted)
        assert (failed.returncode, failed.stdout.strip()) == (6, "")
        assert "the provider is down" in failed.stderr
        unknown = rem("ask", "hello", "--agent", "nobody", *options, settings=scripted)
        assert unknown.returncode == 3
        # The variables of the server count as well, so that no question goes to another memory.
        server = {"REM_URL": options[1], "REM_API_KEY": "wrong"}
        refused = rem("ask", "hello", settings={**scripted, **server})
        assert refused.returncode == 1
        assert "--api-key" in refused.stderr


def test_example_of_the_guide_runs(dsn: str) -> None:
    (example,) = re.findall(
        r"```bash\n(printf .*?)```", (REPOSITORY / "docs" / "terminal-chat.md").read_text(), re.DOTALL
    )
    lines = re.findall(r"'(.*)'", example)[0].replace("\\n", "\n")
    done = rem("chat", "--user", ZOE, settings={"POSTGRES__CONNECTION_STRING": dsn}, stdin=lines)
    assert done.returncode == 0, done.stderr
    assert "My locker is number 214." in done.stdout.partition("What")[0]
    assert done.stdout.count("214") >= 2
