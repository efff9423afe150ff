"""`rem remember`, `rem correct`, `rem forget` by words, and the default user."""

from __future__ import annotations

import asyncio
import json

import pytest

from rem import Rem
from rem.forget.change_requests import ChangeRequest
from tests.rem_command import output, rem

_USER = "zoe@example.com"


@pytest.fixture
def env(dsn: str) -> dict[str, str]:
    return {"POSTGRES__CONNECTION_STRING": dsn, "REM_USER": _USER, "EMBEDDING__PROVIDER": "none"}


def test_question_is_stored_with_a_hint(env: dict[str, str]) -> None:
    asked = rem("remember", "Where is the boat?", settings=env)
    assert asked.stdout.strip().endswith("where-is-the-boat")
    assert "`rem ask` answers questions" in asked.stderr
    assert "reads like a question" not in rem("remember", "The boat is in Kiel.", settings=env).stderr


def test_statements_are_stored_corrected_and_forgotten(env: dict[str, str]) -> None:
    key = output("remember", "My flight is SK1425.", settings=env).strip()
    assert key.endswith("-my-flight-is-sk1425")
    piped = rem("remember", "-", "--json", "--tag", "boat", settings=env, stdin="The boat sails on Friday.\n")
    assert json.loads(piped.stdout)["text"] == "The boat sails on Friday."
    shown = output("correct", "my flight", "--to", "My flight is SK1427.", "--dry-run", settings=env)
    assert "“My flight is SK1425.” (the text changes)" in shown
    assert "SK1425" in output("lookup", key, settings=env)
    done = output("correct", "my flight", "--to", "My flight is SK1427.", "--yes", settings=env)
    assert "Corrected: noted under" in done
    assert "sk1427" in done
    topic = "when the boat sails"
    kept = rem("forget", topic, "--yes", settings=env)
    assert "add --mentions" in kept.stderr
    aborted = rem("forget", topic, settings=env, stdin="n\n")
    assert aborted.returncode == 1
    report = json.loads(output("forget", topic, "--yes", "--mentions", "--json", settings=env))
    assert report["report"]["erased"] == {"resources": 1}
    assert "nothing to forget" in output("forget", topic, settings=env)


def test_one_of_several_matching_texts_is_chosen_by_its_number(env: dict[str, str]) -> None:
    for text in ("My flight to Oslo is SK1425.", "My flight to Rome is LH230.", "My flight to Cork is EI811."):
        output("remember", text, settings=env)
    command = ("correct", "my flight", "--to", "My flight to Rome is LH232.")
    shown = output(*command, "--dry-run", settings=env)
    number = next(line.split(".")[0].strip() for line in shown.splitlines() if "LH230" in line)
    refused = rem(*command, settings=env, stdin="7\nn\n")
    assert refused.returncode == 1
    assert "numbers from 1 to 3" in refused.stderr
    done = rem(*command, settings=env, stdin=f"{number}\n")
    assert "1 text changed" in done.stdout
    texts = output("query", 'SEARCH "flight"', settings=env)
    assert all(word in texts for word in ("SK1425", "EI811", "LH232"))
    assert "LH230" not in texts
    again = output(
        "correct", "flight to Cork", "--to", "My flight to Cork is EI813.", "--only", "1", "--yes", settings=env
    )
    assert "1 text changed" in again


def test_default_user_and_shared_rows(env: dict[str, str]) -> None:
    output("remember", "My sign is Leo.", settings=env)
    search = ("query", 'SEARCH "sign"', "--json")
    assert json.loads(output(*search, settings=env))["count"] == 1
    assert json.loads(output(*search, "--user", "-", settings=env))["count"] == 0
    assert json.loads(output(*search, "--user", "bob@example.com", settings=env))["count"] == 0
    without = {name: value for name, value in env.items() if name != "REM_USER"}
    assert json.loads(output(*search, "--user", _USER, settings=without))["count"] == 1
    for command in (("remember", "x"), ("sessions", "list")):
        refused = rem(*command, settings=without)
        assert refused.returncode == 2
        assert "REM_USER" in refused.stderr
        assert "rem config set user" in refused.stderr
    assert f"default user {_USER}" in rem("doctor", settings=env).stdout
    assert output("dreaming", "full", "--all", settings=env)


def test_a_person_confirms_or_rejects_what_an_agent_proposed(env: dict[str, str], dsn: str) -> None:
    from rem.settings import Settings

    async def propose() -> ChangeRequest:
        async with Rem.open(Settings.model_validate({"postgres": {"connection_string": dsn}})) as opened:
            return await opened.for_user(_USER).changes.request_forget("my sign")

    output("remember", "My sign is Leo.", settings=env)
    first, second = asyncio.run(propose()), asyncio.run(propose())
    assert "nothing was changed" in output("forget", "--reject", first.code, settings=env)
    foreign = rem("forget", "--confirm", second.code, "--user", "bob@example.com", "--yes", settings=env)
    assert (foreign.returncode, "Nothing waits" in foreign.stderr) == (3, True)
    confirmed = rem("forget", "--confirm", second.code, settings=env, stdin="y\n")
    assert "“My sign is Leo.”" in confirmed.stdout
    assert "Forgotten: 1 text erased for good" in confirmed.stdout
    again = rem("forget", "--confirm", second.code, "--yes", settings=env)
    assert again.returncode == 3
    assert rem("forget", "x", "--confirm", second.code, settings=env).returncode == 2
