"""Export and import: what was exported comes back exactly, also for another user, and once only."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from rem.app import Rem
from rem.errors import InvalidInputError
from rem.memory.manager import MemoryManager
from rem.memory.transfer import ImportReport, check_export_lines, export_sessions, import_sessions
from tests.memory.sample_messages import answered, called, said, talk
from tests.rem_command import output
from tests.rem_command import rem as run


async def exported(memory: MemoryManager, *session_ids: UUID) -> bytes:
    stream = io.BytesIO()
    await export_sessions(memory, stream, session_ids or None)
    return stream.getvalue()


async def imported(memory: MemoryManager, data: bytes) -> ImportReport:
    return await import_sessions(memory, io.BytesIO(data))


async def remember(memory: MemoryManager) -> UUID:
    session = await memory.create_session("Be kind 🎉", {"deep": {"er": [1, 2.5, None]}}, name="Käse", agent="rem")
    await memory.append(
        session.id,
        [
            said("Zeile\nzwei  \n", metadata={"x": True}),
            called("search", "c1", {"q": "日本語"}),
            called("action", "c2", {"type": "observation"}, '{"type": "observation"}'),
            answered("x" * 5000, model="m", token_count=7),
        ],
    )
    await talk(memory, uuid4(), 3)
    return session.id


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in data.splitlines()]


def _without_owner(data: bytes) -> Any:
    """What must be the same for another owner: everything but who has it and the ids."""
    hidden = {"id", "session_id", "tenant_id", "user_id", "key"}
    return [
        {
            "session": {name: value for name, value in line["session"].items() if name not in hidden},
            "messages": [
                {name: value for name, value in message.items() if name not in hidden} for message in line["messages"]
            ],
        }
        for line in _lines(data)
    ]


async def test_an_erased_memory_comes_back_exactly(ours: MemoryManager) -> None:
    session_id = await remember(ours)
    data = await exported(ours)
    assert len(_lines(data)) == 2
    for session in await ours.list_sessions():
        await ours.delete_session(session.id, erase=True)
    report = await imported(ours, data)
    assert (report.counts["imported"], report.messages) == (2, 11)
    assert await exported(ours) == data
    assert (await ours.begin_turn(session_id, said("Go on"))).message_index == 5


async def test_importing_twice_changes_nothing(ours: MemoryManager, theirs: MemoryManager) -> None:
    await remember(ours)
    data = await exported(ours)
    for memory in (ours, theirs):
        await imported(memory, data)
        before = await exported(memory)
        report = await imported(memory, data)
        assert dict(report.counts) == {"unchanged": 2}
        assert await exported(memory) == before


async def test_another_user_gets_a_copy_under_ids_of_its_own(
    ours: MemoryManager, theirs: MemoryManager, rem: Rem
) -> None:
    session_id = await remember(ours)
    data = await exported(ours)
    assert (await imported(theirs, data)).counts["imported"] == 2
    copy = await exported(theirs)
    assert _without_owner(copy) == _without_owner(data)
    ids = {line["session"]["id"] for line in _lines(copy)}
    assert ids.isdisjoint(line["session"]["id"] for line in _lines(data))
    assert str(session_id) not in copy.decode()
    elsewhere = rem.memory("alice@example.com", tenant="other")
    assert (await imported(elsewhere, data)).counts["imported"] == 2
    assert await exported(ours) == data, "the original is untouched"


async def test_the_messages_that_are_there_are_counted(ours: MemoryManager, theirs: MemoryManager) -> None:
    session_id = await remember(ours)
    (line,) = _lines(await exported(ours, session_id))
    honest = line["session"]["message_count"], line["session"]["total_tokens"]
    line["session"] |= {"message_count": 1_000_000, "total_tokens": 7}
    await imported(theirs, orjson.dumps(line))
    (copy,) = await theirs.list_sessions()
    assert (copy.message_count, copy.total_tokens) == honest


async def test_some_sessions_are_exported(ours: MemoryManager) -> None:
    session_id = await remember(ours)
    (line,) = _lines(await exported(ours, session_id, session_id))
    assert line["session"]["name"] == "Käse"
    assert [message["content"][:3] for message in line["messages"]] == ["Be ", "Zei", "", '{"t', "xxx"]


async def test_a_session_that_went_on_is_not_set_back(ours: MemoryManager) -> None:
    session_id = await remember(ours)
    data = await exported(ours)
    await ours.rename_session(session_id, "New name")
    await ours.append(session_id, [said("More")])
    assert (await imported(ours, data)).counts["unchanged"] == 2
    session = await ours.get_session(session_id)
    assert (session.name, session.message_count) == ("New name", 6)
    longer = await exported(ours)
    await ours.delete_session(session_id, erase=True)
    await imported(ours, data)
    report = await imported(ours, longer)
    assert (report.counts["extended"], report.messages) == (1, 1)
    assert (await ours.get_session(session_id)).message_count == 6


async def test_two_histories_are_not_mixed(ours: MemoryManager) -> None:
    session_id = await remember(ours)
    before = await exported(ours, session_id)
    await ours.append(session_id, [said("One way")])
    one_way = await exported(ours, session_id)
    await ours.delete_session(session_id, erase=True)
    await imported(ours, before)
    await ours.append(session_id, [said("The other way")])
    (failed,) = (await imported(ours, one_way)).sessions
    assert failed.outcome == "failed"
    assert "continued differently" in failed.notes[0]
    assert (await ours.load_session(session_id))[-1].content == "The other way"


async def test_what_was_deleted_stays_deleted(ours: MemoryManager) -> None:
    session_id = await remember(ours)
    data = await exported(ours, session_id)
    await ours.delete_session(session_id)
    (failed,) = (await imported(ours, data)).sessions
    assert "was deleted here: restore or erase it first" in failed.notes[0]
    assert len(await ours.list_sessions()) == 1


async def test_a_name_that_is_taken_is_reported(ours: MemoryManager, theirs: MemoryManager) -> None:
    session_id = await remember(ours)
    await theirs.create_session(name="käse")
    (failed,) = (await imported(theirs, await exported(ours, session_id))).sessions
    assert "Another session is named 'Käse'" in failed.notes[0]
    assert len(await theirs.list_sessions()) == 1


async def test_a_forged_owner_opens_nothing(ours: MemoryManager, theirs: MemoryManager) -> None:
    """A file that says that another's session is the importer's own gives the importer a copy."""
    session_id = await remember(ours)
    (line,) = _lines(await exported(ours, session_id))
    line["session"]["user_id"] = theirs.scope.user_id
    line["messages"] = line["messages"][:1]
    report = await imported(theirs, orjson.dumps(line))
    assert report.counts["imported"] == 1
    assert report.sessions[0].session_id != session_id
    assert len(await ours.load_session(session_id)) == 5


async def test_a_broken_line_does_not_stop_the_others(ours: MemoryManager, theirs: MemoryManager) -> None:
    await remember(ours)
    good = (await exported(ours)).splitlines()
    line = orjson.loads(good[0])
    stray = {**line, "messages": [{**line["messages"][0], "session_id": str(uuid4())}]}
    double = {**line, "messages": [line["messages"][0], {**line["messages"][0], "id": str(uuid4())}]}
    wrong = {**line, "messages": [{**line["messages"][0], "role": "ghost"}, line["messages"][1]]}
    broken = [
        b"{",
        b"[1]",
        b'{"format": "rem-session/1"}',
        b"\xff",
        b'{"format": "rem-session/1", "session": {}, "messages": [3]}',
    ]
    broken += [orjson.dumps(bad) for bad in (stray, double, wrong)]
    report = await imported(theirs, b"\n".join([b"\xef\xbb\xbf" + good[1], b"", *broken, good[0]]))
    assert dict(report.counts) == {"imported": 2, "failed": 8}
    assert [session.source for session in report.sessions][:3] == ["line 1", "line 3", "line 4"]
    assert all(session.notes for session in report.sessions if session.outcome == "failed")
    assert len(await theirs.list_sessions()) == 2


@pytest.mark.parametrize("data", [b"", b"\n\n", b"  "])
async def test_an_empty_file_has_no_sessions(ours: MemoryManager, data: bytes) -> None:
    assert (await imported(ours, data)).sessions == []
    assert await exported(ours) == b""


@pytest.fixture
def command(dsn: str) -> dict[str, str]:
    """The settings of `rem` on the test's own database."""
    return {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none"}


@pytest.mark.parametrize(
    "data",
    [
        b"Dear diary,\n" * 500,
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40,
        b'{"a": 1}\n' * 50,
        b"[]",
        b'{"format": "x"}',
    ],
    ids=["text", "binary", "other JSON lines", "a list", "another format"],
)
async def test_a_file_of_another_kind_is_one_error(command: dict[str, str], tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    done = run("sessions", "import", str(path), "--user", "a", settings=command)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} is neither a file that `rem sessions export` wrote, nor an SQLite memory" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "line 1: " in done.stderr


@pytest.mark.parametrize("data", [b"", b"\n \n"])
async def test_an_empty_file_is_an_error(command: dict[str, str], tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "empty"
    path.write_bytes(data)
    done = run("sessions", "import", str(path), "--user", "a", settings=command)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} is empty: there is nothing to import." in done.stderr


async def test_at_most_ten_problems_are_listed(command: dict[str, str], ours: MemoryManager, tmp_path: Path) -> None:
    await remember(ours)
    path = tmp_path / "sessions.jsonl"
    path.write_bytes(b"{\n" * 15 + await exported(ours))
    done = run("sessions", "import", str(path), "--user", "alice@example.com", settings=command)
    assert (done.returncode, done.stdout) == (1, "Sessions: 15 failed, 2 unchanged. Added 0 messages.\n")
    assert done.stderr.count("failed") == done.stderr.count("This is not JSON") == 10
    assert "and 5 more" in done.stderr
    every = run("sessions", "import", str(path), "--user", "alice@example.com", "--json", settings=command)
    assert len(json.loads(every.stdout)["sessions"]) == 17


async def test_a_file_with_one_session_is_one_of_sessions(ours: MemoryManager) -> None:
    await remember(ours)
    check_export_lines([b"\n", b"{\n", *(await exported(ours)).splitlines()], "file")
    with pytest.raises(InvalidInputError, match="line 2: This is not JSON"):
        check_export_lines([b"\n", b"{\n"], "file")


async def test_what_others_share_is_listed_with_its_title(
    command: dict[str, str], ours: MemoryManager, theirs: MemoryManager, rem: Rem
) -> None:
    session_id, kept = (await ours.create_session()).id, (await ours.create_session()).id
    for each in (session_id, kept):
        await ours.append(each, [said("Which  cheese\nis best?"), answered("Gouda.")])
    await ours.share_session(session_id, "bob@example.com")
    assert await theirs.get_titles([session_id, kept]) == {session_id: "Which cheese is best?"}
    assert await rem.memory("carol@example.com").get_titles([session_id]) == {}
    assert await rem.memory("bob@example.com", tenant="other").get_titles([session_id]) == {}
    listed = output("sessions", "list", "--shared", "--user", "bob@example.com", settings=command)
    assert f"{session_id}  " in listed
    assert listed.endswith("Which cheese is best?\n")
    await ours.unshare_session(session_id)
    assert await theirs.get_titles([session_id]) == {}
