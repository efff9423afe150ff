"""The commands of `rem sessions`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from rem.app import Rem
from tests.rem_command import output
from tests.rem_command import rem as run
from tests.sessions.sample_messages import assistant_message, tool_call, user_message
from tests.sessions.test_sqlite_import import memory_file
from tests.test_docs import DOCS, read_commands

_TIME = "2025-03-01 10:00:00"
Command = Callable[..., str]


@pytest.fixture
def command(dsn: str) -> Command:
    """Return a function that runs `rem sessions …` for Alice."""
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    return lambda *words, user="alice@example.com": output("sessions", *words, "--user", user, settings=settings)


@pytest.fixture
async def stored_session(rem: Rem) -> UUID:
    """Store a session of Alice with three messages, and return its id."""
    session_id = uuid4()
    await rem.for_user("alice@example.com").sessions.append(
        session_id,
        [
            user_message("Which cheese is best?"),
            tool_call("search", "c1", {"q": "cheese"}),
            assistant_message("Gouda, of course."),
        ],
        create_session=True,
    )
    return session_id


async def test_sessions_are_listed_and_shown(command: Command, stored_session: UUID, rem: Rem) -> None:
    assert re.search(rf"^{stored_session}  20\d\d-.* 3  Which cheese is best\?$", command("list"), re.MULTILINE)
    (listed,) = json.loads(command("list", "--json"))
    assert (listed["id"], listed["title"], listed["message_count"]) == (str(stored_session), "Which cheese is best?", 3)
    shown = command("show", str(stored_session))
    assert "[0] user" in shown
    assert "[1] tool search" in shown
    assert 'called with {"q":"cheese"}' in shown
    assert "Gouda, of course." in shown
    assert len(json.loads(command("show", str(stored_session), "--json"))["messages"]) == 3
    assert command("list", "--shared") == ""
    await rem.for_user("alice@example.com").sessions.share_session(stored_session, "bob@example.com")
    (shared,) = json.loads(command("list", "--shared", "--json", user="bob@example.com"))
    assert shared["id"] == str(stored_session)


async def test_renamed_session_is_found_by_its_name(command: Command, stored_session: UUID) -> None:
    assert "(key cheese-talk)" in command("rename", str(stored_session), "Cheese talk")
    assert "Gouda" in command("show", "cheese talk")
    found = command("search", "gouda", "--session", "Cheese Talk")
    assert f"session-{stored_session}-msg-2  {datetime.now(UTC):%Y-%m-%d}  assistant: Gouda, of course." in found
    (message,) = json.loads(command("search", "gouda", "--json"))
    assert message["content"] == "Gouda, of course."


async def test_sessions_are_exported_and_imported(command: Command, stored_session: UUID, tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl"
    command("export", "-o", str(path))
    assert command("export", str(stored_session)) == path.read_text()
    assert command("import", str(path)) == "Sessions: 1 unchanged. Added 0 messages.\n"
    report = json.loads(command("import", str(path), "--json", user="bob@example.com"))
    assert (report["counts"], report["messages"]) == ({"imported": 1}, 3)
    assert "Gouda" in command("search", "gouda", user="bob@example.com")


async def test_sessions_are_cleared_deleted_and_pruned(
    command: Command, stored_session: UUID, rem: Rem, dsn: str
) -> None:
    assert command("clear", str(stored_session), "--yes") == "Deleted 3 messages.\n"
    assert f"restore sessions {stored_session} --user alice@example.com` restores it" in command(
        "delete", str(stored_session)
    )
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    output("restore", "sessions", str(stored_session), "--user", "alice@example.com", settings=settings)
    assert command("prune", "--days", "30", "--yes") == "Deleted 0 sessions.\n"
    assert json.loads(command("prune", "--days", "0", "--yes", "--json")) == {"deleted": 1}
    await rem.for_user("alice@example.com").sessions.restore_session(stored_session)
    assert command("delete", str(stored_session), "--erase", "--yes") == f"Erased {stored_session}.\n"


async def test_import_recognizes_an_sqlite_file(command: Command, tmp_path: Path, dsn: str) -> None:
    path = memory_file(
        tmp_path / "memory.db",
        [("one", _TIME, _TIME, None, None), ("two", _TIME, _TIME, None, None)],
        [("one", "user", "Hi", None, None, None, _TIME), ("two", "ghost", "Boo", None, None, None, _TIME)],
    )
    done = run(
        "sessions",
        "import",
        str(path),
        "--user",
        "alice@example.com",
        settings={"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"},
    )
    assert done.returncode == 1
    assert done.stdout == "Sessions: 1 failed, 1 imported. Added 1 message.\n"
    assert "session two: failed\n  message 2: the role 'ghost' is unknown" in done.stderr
    assert "[0] user" in command("show", "one"), "by the id that it had"
    assert "2 imported" not in command("import", str(path), "--skip-broken")


async def test_input_errors_are_explained(dsn: str, tmp_path: Path, stored_session: UUID) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    for words, code, text in (
        (("list",), 2, "This needs a user: add --user"),
        (("show", str(uuid4()), "--user", "a"), 3, "There is no session"),
        (("show", str(stored_session), "--user", "bob@example.com"), 3, "There is no session"),
        (("show", "nothing", "--user", "a"), 3, "There is no session nothing of this user"),
        (("delete", "nothing", "--user", "a"), 3, "There is no session nothing of this user"),
        (("export", "nothing", "--user", "a"), 3, "There is no session nothing of this user"),
        (("import", str(tmp_path / "none"), "--user", "a"), 2, "cannot be read: No such file"),
        (("import", str(tmp_path), "--user", "a"), 2, "cannot be read: Is a directory"),
        (("export", "-o", str(tmp_path / "no" / "where"), "--user", "a"), 2, "cannot be written"),
        (("clear", str(stored_session), "--user", "alice@example.com"), 1, "[y/N]:\nAborted"),
        (("rename", str(stored_session), str(uuid4()), "--user", "alice@example.com"), 2, "choose a name"),
    ):
        done = run("sessions", *words, settings=settings)
        assert (done.returncode, text in done.stderr) == (code, True), (words, done.stderr)
        assert "Traceback" not in done.stderr


async def test_prune_shows_the_sessions_before_it_asks(dsn: str, stored_session: UUID) -> None:
    words = ("sessions", "prune", "--days", "0", "--json", "--user", "alice@example.com")
    done = run(*words, settings={"POSTGRES__CONNECTION_STRING": dsn}, stdin="y\n")
    assert json.loads(done.stdout) == {"deleted": 1}
    assert re.match(rf"{stored_session}  20.*3 messages\nWould delete 1 session\.\nDelete all sessions", done.stderr)


def test_prune_rejects_an_invalid_number_of_days_before_it_asks(dsn: str) -> None:
    done = run(
        "sessions",
        "prune",
        "--days",
        "-1",
        "--user",
        "alice@example.com",
        settings={"POSTGRES__CONNECTION_STRING": dsn},
    )
    assert done.returncode != 0
    assert "The number of days must be from 0" in done.stderr
    assert "Delete all sessions" not in done.stdout + done.stderr


def test_system_prompt_is_set_shown_and_removed(dsn: str, command: Command) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}
    _asking, setting, showing, removing = read_commands(DOCS / "sessions.md", "prompt")
    assert output(*setting, settings=settings) == output(*showing, settings=settings) == "Answer in one sentence.\n"
    assert command("show", "trip to rome").startswith("trip to rome, ")
    assert "System prompt: Answer in one sentence." in command("show", "trip to rome")
    assert output(*removing, settings=settings) == output(*showing, settings=settings) == ""
    missing = run("sessions", "prompt", "no such trip", "--user", "alice@example.com", settings=settings)
    assert (missing.returncode, missing.stderr) == (3, "Error: There is no session no such trip of this user.\n")
    both = run("sessions", "prompt", "trip to rome", "x", "--remove", "--user", "alice@example.com", settings=settings)
    assert both.returncode == 2
