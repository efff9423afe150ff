"""The command `rem ask`, with a language model and without one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.rem_command import output, rem
from tests.scripted_model import Call, ScriptedModel, has_result, last_text, scripted_model


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


def test_answer_without_model_is_an_excerpt_with_its_key(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    output("demo", settings=settings)
    answer = output("ask", "Who is Sarah Chen?", "--tenant", "demo", settings=settings)
    assert "`sarah-chen`" in answer
    assert "No language model is configured" in answer


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


def test_model_failure_has_an_exit_code(scripted: dict[str, str], model: ScriptedModel) -> None:
    from tests.scripted_model import Refuse

    model.script = lambda _body: [Refuse(500)]
    failed = rem("ask", "Hi", settings=scripted)
    assert failed.returncode == 6
    assert "Error: " in failed.stderr
