"""Export and import: an export is restored exactly, once, also for another user."""

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
from rem.models import Edge, Message, Role, Session
from rem.sessions.export_import import ImportReport, check_export_lines, export_sessions, import_sessions
from rem.sessions.manager import MemoryManager
from rem.sessions.message import NewMessage
from tests.rem_command import output
from tests.rem_command import rem as run
from tests.sessions.sample_messages import add_turns, assistant_message, tool_call, user_message


async def export(memory: MemoryManager, *session_ids: UUID) -> bytes:
    stream = io.BytesIO()
    await export_sessions(memory, stream, session_ids or None)
    return stream.getvalue()


async def import_data(memory: MemoryManager, data: bytes) -> ImportReport:
    return await import_sessions(memory, io.BytesIO(data))


async def store_sample_session(memory: MemoryManager) -> UUID:
    session = await memory.create_session("Be kind 🎉", {"deep": {"er": [1, 2.5, None]}}, name="Käse", agent="rem")
    await memory.append(
        session.id,
        [
            NewMessage(role=Role.SYSTEM, content="Be kind 🎉"),
            user_message("Zeile\nzwei  \n", metadata={"x": True}),
            tool_call("search", "c1", {"q": "日本語"}),
            tool_call("action", "c2", {"type": "observation"}, '{"type": "observation"}'),
            assistant_message("x" * 5000, model="m", token_count=7),
        ],
    )
    await add_turns(memory, uuid4(), 3)
    return session.id


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in data.splitlines()]


def _without_owner(data: bytes) -> Any:
    """Return the export without owners and ids, which differ between owners."""
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


async def test_import_restores_an_erased_session_exactly(alice: MemoryManager) -> None:
    session_id = await store_sample_session(alice)
    data = await export(alice)
    assert len(_lines(data)) == 2
    for session in await alice.list_sessions():
        await alice.delete_session(session.id, erase=True)
    report = await import_data(alice, data)
    assert (report.counts["imported"], report.messages) == (2, 11)
    assert await export(alice) == data
    assert (await alice.begin_turn(session_id, user_message("Go on"))).message_index == 5


async def test_session_named_with_a_uuid_is_not_imported(alice: MemoryManager) -> None:
    await store_sample_session(alice)
    lines = _lines(await export(alice))
    for session in await alice.list_sessions():
        await alice.delete_session(session.id, erase=True)
    lines[0]["session"]["name"] = str(uuid4())
    report = await import_data(alice, b"\n".join(orjson.dumps(line) for line in lines))
    assert [session.outcome for session in report.sessions] == ["failed", "imported"]
    assert [str(session.id) for session in await alice.list_sessions()] == [lines[1]["session"]["id"]]


async def test_importing_twice_changes_nothing(alice: MemoryManager, bob: MemoryManager) -> None:
    await store_sample_session(alice)
    data = await export(alice)
    for memory in (alice, bob):
        await import_data(memory, data)
        before = await export(memory)
        report = await import_data(memory, data)
        assert dict(report.counts) == {"unchanged": 2}
        assert await export(memory) == before


async def test_another_user_gets_a_copy_with_derived_ids(alice: MemoryManager, bob: MemoryManager, rem: Rem) -> None:
    session_id = await store_sample_session(alice)
    data = await export(alice)
    assert (await import_data(bob, data)).counts["imported"] == 2
    copy = await export(bob)
    assert _without_owner(copy) == _without_owner(data)
    ids = {line["session"]["id"] for line in _lines(copy)}
    assert ids.isdisjoint(line["session"]["id"] for line in _lines(data))
    assert str(session_id) not in copy.decode()
    elsewhere = rem.for_user("alice@example.com", tenant="other").sessions
    assert (await import_data(elsewhere, data)).counts["imported"] == 2
    assert await export(alice) == data, "the original is untouched"


async def test_another_user_does_not_get_derived_edges(alice: MemoryManager, bob: MemoryManager) -> None:
    session_id = await store_sample_session(alice)
    edges = [Edge(dst="sarah-chen", origin="user"), Edge(dst="alices-secret", origin="dream:entities")]

    def link(row: Session | Message) -> None:
        row.graph_edges = edges

    await alice.store.modify(Session, session_id, link)
    await alice.store.modify(Message, (await alice.load_session(session_id))[0].id, link)
    exported = await export(alice)
    report = await import_data(bob, exported)
    assert report.counts["imported"] == 2
    assert [edge["dst"] for line in _lines(await export(bob)) for edge in _list_edges(line)] == ["sarah-chen"] * 2
    await alice.delete_session(session_id, erase=True)
    await import_data(alice, exported)
    restored = [line for line in _lines(await export(alice)) if line["session"]["id"] == str(session_id)]
    assert len(_list_edges(restored[0])) == 4, "the owner's export is restored exactly"


def _list_edges(line: dict[str, Any]) -> list[dict[str, Any]]:
    return [edge for row in (line["session"], *line["messages"]) for edge in row["graph_edges"]]


async def test_import_counts_the_messages_in_the_file(alice: MemoryManager, bob: MemoryManager) -> None:
    session_id = await store_sample_session(alice)
    (line,) = _lines(await export(alice, session_id))
    honest = line["session"]["message_count"], line["session"]["total_tokens"]
    line["session"] |= {"message_count": 1_000_000, "total_tokens": 7}
    await import_data(bob, orjson.dumps(line))
    (copy,) = await bob.list_sessions()
    assert (copy.message_count, copy.total_tokens) == honest


async def test_export_selected_sessions(alice: MemoryManager) -> None:
    session_id = await store_sample_session(alice)
    (line,) = _lines(await export(alice, session_id, session_id))
    assert line["session"]["name"] == "Käse"
    assert [message["content"][:3] for message in line["messages"]] == ["Be ", "Zei", "", '{"t', "xxx"]


async def test_import_does_not_reset_a_continued_session(alice: MemoryManager) -> None:
    session_id = await store_sample_session(alice)
    data = await export(alice)
    await alice.rename_session(session_id, "New name")
    await alice.append(session_id, [user_message("More")])
    assert (await import_data(alice, data)).counts["unchanged"] == 2
    session = await alice.get_session(session_id)
    assert (session.name, session.message_count) == ("New name", 6)
    longer = await export(alice)
    await alice.delete_session(session_id, erase=True)
    await import_data(alice, data)
    report = await import_data(alice, longer)
    assert (report.counts["extended"], report.messages) == (1, 1)
    assert (await alice.get_session(session_id)).message_count == 6


async def test_import_rejects_a_session_that_continued_differently(alice: MemoryManager) -> None:
    session_id = await store_sample_session(alice)
    before = await export(alice, session_id)
    await alice.append(session_id, [user_message("One way")])
    one_way = await export(alice, session_id)
    await alice.delete_session(session_id, erase=True)
    await import_data(alice, before)
    await alice.append(session_id, [user_message("The other way")])
    (failed,) = (await import_data(alice, one_way)).sessions
    assert failed.outcome == "failed"
    assert "continued differently" in failed.notes[0]
    assert (await alice.load_session(session_id))[-1].content == "The other way"


async def test_import_does_not_restore_a_deleted_session(alice: MemoryManager) -> None:
    session_id = await store_sample_session(alice)
    data = await export(alice, session_id)
    await alice.delete_session(session_id)
    (failed,) = (await import_data(alice, data)).sessions
    assert "was deleted here: restore or erase it first" in failed.notes[0]
    assert len(await alice.list_sessions()) == 1


async def test_import_reports_a_taken_name(alice: MemoryManager, bob: MemoryManager) -> None:
    session_id = await store_sample_session(alice)
    await bob.create_session(name="käse")
    (failed,) = (await import_data(bob, await export(alice, session_id))).sessions
    assert "Another session is named 'Käse'" in failed.notes[0]
    assert len(await bob.list_sessions()) == 1


async def test_forged_owner_gives_no_access(alice: MemoryManager, bob: MemoryManager) -> None:
    """A file that names the importer as owner of another user's session gives the importer a copy."""
    session_id = await store_sample_session(alice)
    (line,) = _lines(await export(alice, session_id))
    line["session"]["user_id"] = bob.scope.user_id
    line["messages"] = line["messages"][:1]
    report = await import_data(bob, orjson.dumps(line))
    assert report.counts["imported"] == 1
    assert report.sessions[0].session_id != session_id
    assert len(await alice.load_session(session_id)) == 5


async def test_broken_line_does_not_stop_the_import(alice: MemoryManager, bob: MemoryManager) -> None:
    await store_sample_session(alice)
    good = (await export(alice)).splitlines()
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
    report = await import_data(bob, b"\n".join([b"\xef\xbb\xbf" + good[1], b"", *broken, good[0]]))
    assert dict(report.counts) == {"imported": 2, "failed": 8}
    assert [session.source for session in report.sessions][:3] == ["line 1", "line 3", "line 4"]
    assert all(session.notes for session in report.sessions if session.outcome == "failed")
    assert len(await bob.list_sessions()) == 2


@pytest.mark.parametrize("data", [b"", b"\n\n", b"  "])
async def test_empty_file_has_no_sessions(alice: MemoryManager, data: bytes) -> None:
    assert (await import_data(alice, data)).sessions == []
    assert await export(alice) == b""


@pytest.fixture
def command(dsn: str) -> dict[str, str]:
    """Return the settings of `rem` for the test's database."""
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
async def test_file_in_another_format_is_one_error(command: dict[str, str], tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    done = run("sessions", "import", str(path), "--user", "a", settings=command)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} is neither a file that `rem sessions export` wrote, nor an SQLite memory" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "line 1: " in done.stderr


@pytest.mark.parametrize("data", [b"", b"\n \n"])
async def test_empty_file_is_an_error(command: dict[str, str], tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "empty"
    path.write_bytes(data)
    done = run("sessions", "import", str(path), "--user", "a", settings=command)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path} is empty: there is nothing to import." in done.stderr


async def test_at_most_ten_failures_are_listed(command: dict[str, str], alice: MemoryManager, tmp_path: Path) -> None:
    await store_sample_session(alice)
    path = tmp_path / "sessions.jsonl"
    path.write_bytes(b"{\n" * 15 + await export(alice))
    done = run("sessions", "import", str(path), "--user", "alice@example.com", settings=command)
    assert (done.returncode, done.stdout) == (1, "Sessions: 15 failed, 2 unchanged. Added 0 messages.\n")
    assert done.stderr.count("failed") == done.stderr.count("This is not JSON") == 10
    assert "and 5 more" in done.stderr
    every = run("sessions", "import", str(path), "--user", "alice@example.com", "--json", settings=command)
    assert len(json.loads(every.stdout)["sessions"]) == 17


async def test_file_with_one_session_is_valid(alice: MemoryManager) -> None:
    await store_sample_session(alice)
    check_export_lines([b"\n", b"{\n", *(await export(alice)).splitlines()], "file")
    with pytest.raises(InvalidInputError, match="line 2: This is not JSON"):
        check_export_lines([b"\n", b"{\n"], "file")


async def test_shared_sessions_are_listed_with_their_titles(
    command: dict[str, str], alice: MemoryManager, bob: MemoryManager, rem: Rem
) -> None:
    session_id, kept = (await alice.create_session()).id, (await alice.create_session()).id
    for each in (session_id, kept):
        await alice.append(each, [user_message("Which  cheese\nis best?"), assistant_message("Gouda.")])
    await alice.share_session(session_id, "bob@example.com")
    assert await bob.get_titles([session_id, kept]) == {session_id: "Which cheese is best?"}
    assert await rem.for_user("carol@example.com").sessions.get_titles([session_id]) == {}
    assert await rem.for_user("bob@example.com", tenant="other").sessions.get_titles([session_id]) == {}
    listed = output("sessions", "list", "--shared", "--user", "bob@example.com", settings=command)
    assert f"{session_id}  " in listed
    assert listed.endswith("Which cheese is best?\n")
    await alice.unshare_session(session_id)
    assert await bob.get_titles([session_id]) == {}
