"""The command `rem ask`, with a language model and without one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.rem_command import REM, environment, output, rem
from tests.scripted_model import (
    Call,
    HangUp,
    Pause,
    Refuse,
    ScriptedModel,
    Step,
    has_result,
    last_text,
    scripted_model,
)


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as model:
        yield model


@pytest.fixture
def scripted(dsn: str, model: ScriptedModel) -> dict[str, str]:
    return {
        "POSTGRES__CONNECTION_STRING": dsn,
        "LLM__BASE_URL": model.url,
        "LLM__DEFAULT_MODEL": "openai:scripted",
        "LLM__MAX_RETRIES": "0",
    }


def test_session_continues_and_verbose_shows_tool_calls(scripted: dict[str, str], model: ScriptedModel) -> None:
    model.script = lambda body: (
        [f"You said {last_text(body)}"] if has_result(body) else [Call("search_rem", {"query": 'FUZZY "zoe"'})]
    )
    first = rem("--verbose", "ask", "I am Zoe", "--user", "zoe", settings=scripted)
    assert first.returncode == 0, first.stderr
    assert first.stdout == "You said I am Zoe\n"
    assert "rem: search_rem(query='FUZZY \"zoe\"')" in first.stderr
    session = first.stderr.split("--session ")[-1].strip().rstrip(")")
    named = rem("ask", "Hello again", "--user", "zoe", "--session", session, settings=scripted)
    assert (named.stdout, named.stderr) == ("You said Hello again\n", "")
    second = output("ask", "Who am I?", "--user", "zoe", "--session", session, "--json", settings=scripted)
    answer = json.loads(second)
    assert answer["text"] == "You said Who am I?"
    assert answer["session_id"] == session
    assert answer["tool_calls"][0]["name"] == "search_rem"
    assert "I am Zoe" in str(model.requests[-1]["messages"])


def test_statement_without_a_user_says_that_only_its_session_finds_it(dsn: str) -> None:
    here = {"POSTGRES__CONNECTION_STRING": dsn}
    told = rem("ask", "My bike is red.", settings=here)
    assert "No user is set, so only this session finds what you say here." in told.stderr
    assert "No user is set" not in rem("ask", "Which colour is my bike?", settings=here).stderr
    assert "No user is set" not in rem("ask", "My bike is red.", "--user", "zoe", settings=here).stderr


def test_answer_without_model_is_a_sentence_with_its_source(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    output("demo", settings=settings)
    answer = output("ask", "Who is Sarah Chen?", "--tenant", "demo", settings=settings)
    assert "(Sarah Chen" in answer
    assert "sarah-chen" not in answer


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["ask", "  "], 2, "empty"),
        (["ask", "x", "--agent", "nobody"], 3, "nobody"),
        (["ask", "x", "--model", "opnai:gpt"], 2, "opnai"),
        (["ask", "x", "--user", "anon:1"], 2, "anon:"),
    ],
)
def test_errors_are_one_paragraph(dsn: str, arguments: list[str], code: int, words: str) -> None:
    refused = rem(*arguments, settings={"POSTGRES__CONNECTION_STRING": dsn})
    assert refused.returncode == code
    assert refused.stderr.startswith("Error: ")
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([Refuse(500)], "Error: "),
        ([Pause(5), "late"], "did not answer in time"),
        (["The answer begins", HangUp()], "Error: "),
    ],
    ids=["500", "timeout", "cut"],
)
def test_model_failure_has_an_exit_code(
    scripted: dict[str, str], model: ScriptedModel, steps: list[Step], words: str
) -> None:
    model.script = lambda _body: steps
    failed = rem("ask", "Hi", settings={**scripted, "LLM__TIMEOUT_SECONDS": "1"})
    assert failed.returncode == 6
    assert words in failed.stderr
    assert failed.stdout == ("The answer begins\n" if isinstance(steps[0], str) else "")
    assert "Traceback" not in failed.stderr


def test_message_comes_from_standard_input(scripted: dict[str, str], model: ScriptedModel) -> None:
    model.script = lambda body: [f"**You** said {last_text(body)!r}"]
    for arguments in ((), ("-",)):
        done = rem("ask", *arguments, "--json", settings=scripted, stdin="two\nlines, ë 末\n")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["text"] == "**You** said 'two\\nlines, ë 末'"
    plain = rem("ask", settings=scripted, stdin="x")
    assert plain.stdout == "**You** said 'x'\n"
    assert "\x1b" not in plain.stdout + plain.stderr
    empty = rem("ask", settings=scripted, stdin="\n")
    assert (empty.returncode, "empty" in empty.stderr) == (2, True)
    broken = subprocess.run([str(REM), "ask"], env=environment(scripted), input=b"caf\xe9", capture_output=True)
    assert (broken.returncode, b"not UTF-8 text: byte 4" in broken.stderr) == (2, True)


def test_unsure_answer_has_an_exit_code(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    output("demo", settings=settings)
    demo = ("--tenant", "demo", "--min-confidence", "0.1")
    assert rem("ask", "Who is Sarah Chen?", *demo, settings=settings).returncode == 0
    for options in ((), ("--json",)):
        nothing = rem("ask", "What is the zyxwv of qqqq?", *demo, *options, settings=settings)
        assert nothing.returncode == 3, nothing.stdout
        assert "confidence is 0%, less than 10%" in nothing.stderr
