"""`rem admin` and `rem audit`: manage users, and read who did what."""

from __future__ import annotations

import json

import pytest

from rem.app import Rem
from rem.models import Resource
from tests.rem_command import output
from tests.rem_command import rem as rem_command

ALICE = "alice@example.com"


@pytest.fixture
def environment(dsn: str) -> dict[str, str]:
    """Settings of commands with an audit log."""
    return {"POSTGRES__CONNECTION_STRING": dsn, "AUDIT__ENABLED": "true", "EMBEDDING__PROVIDER": "none"}


async def test_user_is_added_changed_and_erased(rem: Rem, environment: dict[str, str]) -> None:
    await rem.for_user(ALICE).store.upsert(Resource(name="Plan", content="x"))
    changed = output("admin", "set-user", ALICE, "--role", "admin", "--tier", "pro", "--disable", settings=environment)
    assert changed == f"{ALICE}: role admin, tier pro, disabled\n"
    (user,) = json.loads(output("admin", "users", "--json", settings=environment))
    assert (user["email"], user["role"], user["disabled_at"] is None) == (ALICE, "admin", False)
    assert "Deleted" in output("delete", "plan", "--user", ALICE, settings=environment)
    output("erase-user", ALICE, "--yes", settings=environment)
    entries = json.loads(output("audit", "log", "--json", settings=environment))
    assert [(entry["action"], entry["operation"], entry["via"]) for entry in entries] == [
        ("delete", "rem erase-user", "cli"),
        ("delete", "rem delete", "cli"),
        ("admin", "rem admin set-user", "cli"),
    ]
    assert entries[0]["subject"] == entries[2]["subject"]
    assert entries[0]["subject"].startswith("erased:")
    assert "The tenant default has no users." in output("admin", "users", settings=environment)


async def test_log_names_some_rows_and_json_all(rem: Rem, environment: dict[str, str]) -> None:
    await rem.for_user(ALICE).store.upsert_many([Resource(name=f"Plan {number}", content="x") for number in range(5)])
    output("delete", *(f"plan-{number}" for number in range(5)), "--user", ALICE, settings=environment)
    shown = output("audit", "log", settings=environment)
    assert shown.count("resources/") == 3
    assert "and 2 more" in shown
    (entry,) = json.loads(output("audit", "log", "--json", settings=environment))
    assert len(entry["targets"]) == 5


def test_bad_input_is_explained(environment: dict[str, str]) -> None:
    nothing = rem_command("admin", "set-user", ALICE, settings=environment)
    assert (nothing.returncode, "Nothing to change" in nothing.stderr) == (2, True)
    row = rem_command("audit", "log", "--row", "plan", settings=environment)
    assert (row.returncode, "is not the id of a row" in row.stderr) == (2, True)
