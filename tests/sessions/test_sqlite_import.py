"""Import sessions from an SQLite file of the earlier REM."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import orjson
import pytest

from rem.errors import InvalidInputError
from rem.sessions.manager import MemoryManager
from rem.sessions.sqlite_import import import_sqlite, is_sqlite
from tests.sessions.sample_messages import user_message

_SCHEMA = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, created_at TIMESTAMP NOT NULL, updated_at TIMESTAMP NOT NULL, metadata TEXT, system_prompt TEXT
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT, tool_calls TEXT,
    tool_call_id TEXT, name TEXT, created_at TIMESTAMP NOT NULL,
    FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);
"""
Row: TypeAlias = Sequence[Any]
_TIME = "2025-03-01 10:00:00"


def memory_file(path: Path, sessions: Sequence[Row], messages: Sequence[Row]) -> Path:
    """Write an SQLite file. Messages are (session, role, content, tool_calls, tool_call_id, name, created_at)."""
    with closing(sqlite3.connect(path)) as file:
        file.executescript(_SCHEMA)
        file.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", sessions)
        file.executemany(
            """INSERT INTO messages (session_id, role, content, tool_calls, tool_call_id, name, created_at)
               VALUES (?, ?, ?, ?, ?, ?, ?)""",
            messages,
        )
        file.commit()
    return path


@pytest.fixture
def make(tmp_path: Path) -> Callable[[Sequence[Row], Sequence[Row]], Path]:
    """Return a function that writes a file with a name that a URI must quote."""
    return lambda sessions, messages: memory_file(tmp_path / "my memory #1?.db", sessions, messages)


Make: TypeAlias = Callable[[Sequence[Row], Sequence[Row]], Path]


async def test_roles_times_and_tool_calls_are_kept(alice: MemoryManager, make: Make) -> None:
    old = str(uuid4())
    calls = orjson.dumps([{"id": "c1", "name": "search", "arguments": {"q": "käse"}}]).decode()
    openai = (
        '[{"id": "c2", "type": "function", "function": {"name": "action", "arguments": "{\\"type\\": \\"note\\"}"}}]'
    )
    path = make(
        [(old, _TIME, "2025-03-01T12:00:00+01:00", '{"user": "al"}', "Be kind.")],
        [
            (old, "user", "Hello 🎉", None, None, None, _TIME),
            (old, "assistant", "I look.", calls, None, None, "2025-03-01 10:00:01.250000"),
            (old, "tool", "A long result", None, "c1", "search", 1740823202),
            (old, "assistant", None, openai, None, None, "2025-03-01T10:00:03Z"),
            (old, "assistant", "Found it.", "[]", None, None, "1740823204000"),
        ],
    )
    report = await import_sqlite(alice, path)
    (session,) = report.sessions
    assert (session.outcome, session.session_id, session.messages) == ("imported", UUID(old), 5)
    assert session.notes == ["1 tool results were left out: REM keeps calls and notes, not results."]
    stored = await alice.get_session(UUID(old))
    assert (stored.metadata, stored.message_count) == ({"user": "al"}, 5)
    assert stored.system_prompt == "Be kind."
    assert stored.updated_at.isoformat() == "2025-03-01T11:00:00+00:00"
    messages = await alice.load_session(UUID(old))
    assert [(row.role.value, row.content, row.tool_name, row.tool_call_id) for row in messages] == [
        ("user", "Hello 🎉", None, None),
        ("assistant", "I look.", None, None),
        ("tool", "", "search", "c1"),
        ("tool", '{"type":"note"}', "action", "c2"),
        ("assistant", "Found it.", None, None),
    ]
    assert messages[2].tool_calls == [{"id": "c1", "name": "search", "arguments": {"q": "käse"}}]
    assert messages[2].metadata == {"tool_arguments": {"q": "käse"}}
    assert [row.created_at.strftime("%H:%M:%S.%f") for row in messages] == [
        "10:00:00.000000",
        "10:00:01.250000",
        "10:00:01.250000",
        "10:00:03.000000",
        "10:00:04.000000",
    ]
    assert stored.total_tokens == sum(row.token_count or 0 for row in messages) > 0
    turn = await alice.begin_turn(UUID(old), user_message("Go on"))
    assert (turn.message_index, len(turn.history), turn.system_prompt) == (5, 5, "Be kind.")


async def test_second_import_adds_only_new_messages(alice: MemoryManager, bob: MemoryManager, make: Make) -> None:
    path = make([("chat-1", _TIME, _TIME, None, None)], [("chat-1", "user", "One", None, None, None, _TIME)])
    assert (await import_sqlite(alice, path)).counts["imported"] == 1
    assert (await import_sqlite(alice, path)).counts["unchanged"] == 1
    assert len(await alice.load_session(await alice.resolve_session_id("chat-1"))) == 1, "as a client calls it"
    with closing(sqlite3.connect(path)) as file:
        file.execute("INSERT INTO messages VALUES (NULL, 'chat-1', 'assistant', 'Two', NULL, NULL, NULL, ?)", (_TIME,))
        file.commit()
    report = await import_sqlite(alice, path)
    assert (report.counts["extended"], report.messages) == (1, 1)
    assert (await import_sqlite(bob, path)).messages == 2


async def test_two_users_import_the_same_file(alice: MemoryManager, bob: MemoryManager, make: Make) -> None:
    old = str(uuid4())
    path = make([(old, _TIME, _TIME, None, None)], [(old, "user", "One", None, None, None, _TIME)])
    mine = (await import_sqlite(alice, path)).sessions[0]
    yours = (await import_sqlite(bob, path)).sessions[0]
    assert (mine.outcome, yours.outcome) == ("imported", "imported")
    assert mine.session_id == UUID(old) != yours.session_id
    assert (await import_sqlite(bob, path)).counts["unchanged"] == 1


async def test_broken_row_fails_only_its_session(alice: MemoryManager, make: Make) -> None:
    path = make(
        [("good", _TIME, _TIME, None, None), ("bad", _TIME, _TIME, None, None)],
        [
            ("good", "human", "Hi", None, None, None, _TIME),
            ("bad", "user", "Fine", None, None, None, _TIME),
            ("bad", "wizard", "Abracadabra", None, None, None, _TIME),
            ("bad", "assistant", "Hm", "{broken", None, None, _TIME),
            ("lost", "user", "Whose am I?", None, None, None, _TIME),
        ],
    )
    report = await import_sqlite(alice, path)
    outcomes = {session.source: session for session in report.sessions}
    assert {source: session.outcome for source, session in outcomes.items()} == {
        "session good": "imported",
        "session bad": "failed",
        "session lost": "failed",
    }
    assert outcomes["session bad"].notes == [
        "message 3: the role 'wizard' is unknown",
        "message 4: its tool calls are not a list of calls with a name and arguments",
    ]
    assert len(await alice.list_sessions()) == 1
    report = await import_sqlite(alice, path, skip_broken=True)
    assert report.counts["imported"] == 1
    assert [row.content for row in await alice.load_session(await alice.resolve_session_id("bad"))] == ["Fine"]


async def test_unusual_values_are_imported_and_reported(alice: MemoryManager, make: Make) -> None:
    path = make(
        [("odd", "yesterday", "2999-01-01", "not json", "")],
        [
            ("odd", "USER", b"Bytes \xff", None, None, None, "soon"),
            ("odd", "assistant", "", None, None, None, _TIME),
            ("odd", "assistant", "a\0b", "null", None, None, _TIME),
        ],
    )
    (session,) = (await import_sqlite(alice, path)).sessions
    assert session.outcome == "imported"
    assert session.notes == [
        "created_at of the session is not a time ('yesterday').",
        session.notes[1],
        "created_at of message 1 is not a time ('soon').",
        "message 2 is empty and was left out.",
        "The metadata is not a JSON object; it is kept as text.",
    ]
    assert session.notes[1].startswith("updated_at of the session is in the future")
    assert [row.content for row in await alice.load_session(await alice.resolve_session_id("odd"))] == [
        "Bytes \ufffd",
        "a\ufffdb",
    ]


async def test_other_files_are_rejected(alice: MemoryManager, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as file:
        file.execute("CREATE TABLE sessions (id TEXT)")
    assert is_sqlite(other)
    with pytest.raises(InvalidInputError, match="table sessions lacks created_at"):
        await import_sqlite(alice, other)
    torn = tmp_path / "torn.db"
    torn.write_bytes(other.read_bytes()[:100] + b"x" * 5000)
    with pytest.raises(InvalidInputError, match="cannot be read as an SQLite memory"):
        await import_sqlite(alice, torn)
    empty = tmp_path / "empty"
    empty.touch()
    assert not is_sqlite(empty)


async def test_sqlite_file_is_not_changed(alice: MemoryManager, make: Make) -> None:
    path = make([("s", _TIME, _TIME, None, None)], [("s", "user", "One", None, None, None, _TIME)])
    before = path.read_bytes()
    path.chmod(0o444)
    await import_sqlite(alice, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
