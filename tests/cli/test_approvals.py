"""`rem approvals`: a person lists, shows, approves, edits and rejects in a terminal."""

from __future__ import annotations

import asyncio
import json

import pytest

from rem.app import Rem
from rem.approvals.approvals import Origin, Proposal
from rem.models import Approval
from tests.conftest import settings_for
from tests.rem_command import output, rem
from tests.terminal import Terminal

_USER = "alice@example.com"


@pytest.fixture
def env(dsn: str) -> dict[str, str]:
    return {"POSTGRES__CONNECTION_STRING": dsn, "REM_USER": _USER}


def ask(dsn: str, text: str) -> Approval:
    """Store a request, as an MCP client makes it."""

    async def request() -> Approval:
        async with Rem.open(settings_for(dsn)) as opened:
            proposal = Proposal("remember", {"text": text}, "Keep a statement.", "Keep it?")
            return await opened.for_user(_USER).approvals.request(proposal, Origin())

    return asyncio.run(request())


def test_list_show_approve_and_reject(env: dict[str, str], dsn: str) -> None:
    assert "Nothing waits" in output("approvals", "list", settings=env)
    first, second, third = (ask(dsn, f"My flight is {number}.") for number in ("SK1", "SK2", "SK3"))
    listed = output("approvals", "list", settings=env).splitlines()
    assert [line.split()[0] for line in listed] == [third.code, second.code, first.code]
    assert "remember: Keep a statement." in listed[0]
    assert "- text: My flight is SK1." in output("approvals", "show", first.code, settings=env)
    aborted = rem("approvals", "approve", first.code, settings=env, stdin="n\n")
    assert aborted.returncode == 1
    approved = rem("approvals", "approve", first.code, settings=env, stdin="y\n")
    assert (approved.returncode, "Done: remember." in approved.stdout) == (0, True), approved.stderr
    again = rem("approvals", "approve", str(first.id), "--yes", settings=env)
    assert (again.returncode != 0, "only once" in again.stderr) == (True, True)
    wrong = rem("approvals", "approve", second.code, "--yes", "--parameters", '{"text": 7}', settings=env)
    assert (wrong.returncode, "text:" in wrong.stderr) == (2, True)
    edited = ("--parameters", '{"text": "My flight is SK9."}', "--json")
    decided = json.loads(output("approvals", "approve", second.code, "--yes", *edited, settings=env))
    assert (decided["status"], decided["execution"]) == ("approved", "done")
    assert "nothing was changed" in output("approvals", "reject", third.code, "--reason", "No.", settings=env)
    rows = json.loads(output("approvals", "list", "--all", "--json", settings=env))
    assert [row["status"] for row in rows] == ["rejected", "approved", "approved"]
    found = output("query", 'SEARCH "flight"', settings=env)
    assert "SK9" in found
    assert "SK2" not in found


def test_another_user_finds_nothing(env: dict[str, str], dsn: str) -> None:
    approval = ask(dsn, "My flight is SK1.")
    bob = ("--user", "bob@example.com")
    assert "Nothing waits" in output("approvals", "list", *bob, settings=env)
    for arguments in (("show", str(approval.id)), ("approve", approval.code, "--yes"), ("reject", str(approval.id))):
        refused = rem("approvals", *arguments, *bob, settings=env)
        assert (refused.returncode, "Traceback" in refused.stderr) == (3, False), refused.stderr
    assert approval.code in output("approvals", "list", settings=env)


def test_long_request_is_wrapped_in_a_terminal(env: dict[str, str], dsn: str) -> None:
    request = ask(dsn, "My flight leaves at noon. " * 10)
    with Terminal("approvals", "show", request.code, settings=env, columns=60) as terminal:
        terminal.wait_for("Status: pending")
        assert all(len(line) <= 60 for line in terminal.text.splitlines())
