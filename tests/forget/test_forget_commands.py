"""The commands `rem expire`, `rem forget`, `rem erase-user` and `rem sweep`, as the docs show them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from rem.app import Rem
from rem.models import Message, Ontology, Resource, Role, User
from rem.sessions.message import NewMessage
from tests.cases import cases
from tests.rem_command import REPOSITORY, output, run_python
from tests.rem_command import rem as run_rem

_DOCS = (REPOSITORY / "docs" / "forgetting.md").read_text(encoding="utf-8")
_EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```\w+\n(.*?)```", _DOCS, re.DOTALL))
_ALICE = ("--user", "alice@example.com")


@pytest.fixture
def database(dsn: str) -> dict[str, str]:
    return {"POSTGRES__CONNECTION_STRING": dsn}


@pytest.fixture
async def known(rem: Rem) -> None:
    store, memory = rem.for_user("alice@example.com").store, rem.for_user("alice@example.com").sessions
    await store.upsert(Resource(name="Parking spot", content="B12, says Sarah."))
    await store.upsert(Ontology(name="Sarah Chen", extracted_data={"aliases": ["Sarah"]}))
    await store.upsert(User(name="Alice", email="alice@example.com", interests=["Sarah Chen"]))
    session = await memory.create_session(name="Trip to Rome")
    await memory.append(session.id, [NewMessage(role=Role.USER, content="Sarah came along.")])
    await rem.for_user("bob@example.com").store.upsert(Resource(name="friend", content="alice@example.com"))


def test_docs_commands_work_from_top_to_bottom_on_an_empty_database(database: dict[str, str]) -> None:
    commands = [command for example in ("expire", "forget", "erase") for command in _EXAMPLES[example].splitlines()]
    assert len(commands) >= 11
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "rem"
        assert output(*words[1:], settings=database)


async def test_docs_program_prints_its_comments(database: dict[str, str], rem: Rem) -> None:
    program = _EXAMPLES["library"]
    done = run_python(program, settings=database)
    assert done.returncode == 0, done.stderr
    expected = [line.split("# ", 1)[1] for line in program.splitlines() if "print(" in line]
    assert done.stdout.splitlines() == expected


async def test_expire_command_sets_row_and_session_expiry(known: None, rem: Rem, database: dict[str, str]) -> None:
    shown = output("expire", "parking-spot", "--at", "2030-12-01", *_ALICE, settings=database)
    assert shown == "resources/parking-spot expires at 2030-12-01 00:00:00 (UTC).\n"
    rows = json.loads(output("expire", "parking-spot", "--in", "1s", "--json", *_ALICE, settings=database))
    assert [row["row"] for row in rows] == ["resources/parking-spot"]
    output("sessions", "expire", "Trip to Rome", "--at", "2001-01-01", *_ALICE, settings=database)
    swept = json.loads(output("sweep", "--json", settings=database))
    assert swept["erased"]["sessions"] == swept["erased"]["messages"] == 1
    store = rem.for_user("alice@example.com").store
    assert await store.count(Message, with_deleted=True) == 0


@cases(
    ("arguments", "says"),
    [
        (["expire", "parking-spot", *_ALICE], "exactly one of"),
        (["expire", "parking-spot", "--in", "soon", *_ALICE], "not a duration"),
        (["expire", "no-such-thing", "--never", *_ALICE], "Nothing is stored under no-such-thing"),
        (["sessions", "expire", "Trip to Rome", "--in", "1d"], "This needs a user: add --user"),
        (["sessions", "expire", "Trip to Paris", "--in", "1d", *_ALICE], "There is no session"),
        (["forget", "  ", *_ALICE], "Give a name or a key"),
        (["erase-user", " "], "A user id has 1 to 255 characters"),
    ],
)
async def test_invalid_arguments_explain_the_fix(
    known: None, database: dict[str, str], arguments: list[str], says: str
) -> None:
    done = run_rem(*arguments, settings=database)
    assert (done.returncode in (2, 3), says in done.stderr) == (True, True), done.stderr


async def test_forget_shows_plan_and_needs_confirmation(known: None, rem: Rem, database: dict[str, str]) -> None:
    done = run_rem("forget", "Sarah Chen", *_ALICE, settings=database, stdin="n\n")
    assert done.returncode == 1
    assert "Known as: Sarah Chen, Sarah" in done.stdout
    assert "To erase: 1 ontology" in done.stdout
    assert "To remove from other rows: 1 user\n" in done.stdout
    assert "Texts that name it, kept: 1 message, 1 resource" in done.stdout
    assert "In all: 1 row to erase, 1 to change, 0 statements to retract." in done.stdout
    assert "Sarah came along." in done.stdout
    assert await rem.for_user("alice@example.com").store.lookup("sarah-chen")
    done = run_rem("forget", "Sarah Chen", *_ALICE, settings=database, stdin="y\n")
    assert "Searched again: nothing is left except 2 texts that name it." in done.stdout
    assert not await rem.for_user("alice@example.com").store.lookup("sarah-chen")


async def test_forget_names_the_files_that_stay_on_disk(rem: Rem, database: dict[str, str], tmp_path: Path) -> None:
    note = tmp_path / "sarah.md"
    note.write_text("Sarah Chen leads it.\n", encoding="utf-8")
    await rem.for_user(_ALICE[1]).ingest(note)
    memory = rem.for_user(_ALICE[1]).sessions
    session = await memory.create_session()
    await memory.append(session.id, [NewMessage(role=Role.ASSISTANT, content="I found: Sarah Chen leads it.")])
    done = run_rem("forget", "Sarah Chen", "--mentions", "--yes", *_ALICE, settings=database)
    assert "Texts that name it, to erase: 1 file\n  files/sarah.md with 1 part: Sarah Chen leads it." in done.stdout
    assert "REM's own answers that repeat them, to erase: 1" in done.stdout
    assert "In all: 3 rows to erase, 0 to change" in done.stdout
    assert "Erased 3 rows, changed 0" in done.stdout
    assert f"1 file on disk still has this text, and REM does not change files: {note}." in done.stderr
    again = output("ingest", str(note), *_ALICE, settings=database)
    assert "1 deleted" in again
    assert "It was forgotten earlier and stays forgotten: `rem ingest --with-forgotten`" in again


async def test_json_mode_shows_plan_on_stderr_before_asking(known: None, database: dict[str, str]) -> None:
    done = run_rem("forget", "Sarah Chen", "--json", *_ALICE, settings=database, stdin="n\n")
    assert (done.returncode, done.stdout.strip()) == (1, "")
    assert done.stderr.index("To erase: 1 ontology") < done.stderr.index("Forget Sarah Chen for good?")
    done = run_rem("erase-user", "alice@example.com", "--json", settings=database, stdin="y\n")
    assert json.loads(done.stdout)["after"] == 0
    assert re.search(r"resources +user_id +1.*Would erase .*Erase alice", done.stderr, re.DOTALL), done.stderr


async def test_forget_json_lists_every_row(known: None, database: dict[str, str]) -> None:
    result = json.loads(output("forget", "Sarah Chen", "--mentions", "--yes", "--json", *_ALICE, settings=database))
    assert [row["key"] for row in result["plan"]["rows"]] == ["sarah-chen"]
    assert {row["table"] for row in result["plan"]["mentions"]} == {"messages", "resources"}
    assert result["report"]["is_gone"]
    again = json.loads(output("forget", "Sarah Chen", "--yes", "--json", *_ALICE, settings=database))
    assert again["report"] is None


async def test_erase_user_asks_and_shows_counts(known: None, rem: Rem, database: dict[str, str]) -> None:
    done = run_rem("erase-user", "alice@example.com", settings=database, stdin="n\n")
    assert done.returncode == 1
    assert await rem.for_user("alice@example.com").store.count(Resource) == 1
    done = run_rem("erase-user", "alice@example.com", settings=database, stdin="y\n")
    assert done.returncode == 0, done.stderr
    assert re.search(r"rem\.messages +user_id +1 +0 *\n", done.stdout)
    assert re.search(r"rem_jobs\.jobs +user_id +0 +0 *\n", done.stdout)
    assert "nothing is left" in done.stdout
    assert "Rows of other users that mention alice@example.com stay: 1 resource." in done.stderr
    result = json.loads(output("erase-user", "alice@example.com", "--yes", "--json", settings=database))
    assert (result["before"], result["after"]) == (0, 0)


async def test_prune_dry_run_shows_sessions_to_delete(known: None, rem: Rem, database: dict[str, str]) -> None:
    shown = output("sessions", "prune", "--days", "0", "--dry-run", *_ALICE, settings=database)
    assert "1 message  Trip to Rome" in shown
    assert "Would delete 1 session." in shown
    result = json.loads(output("sessions", "prune", "--days", "0", "--dry-run", "--json", *_ALICE, settings=database))
    assert [session["name"] for session in result["would_delete"]] == ["Trip to Rome"]
    assert len(await rem.for_user("alice@example.com").sessions.list_sessions()) == 1
