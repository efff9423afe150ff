"""Import sessions from an SQLite file with the tables `sessions` and `messages` of the earlier REM."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import orjson
from pydantic import ValidationError

from rem.errors import InvalidInputError
from rem.models import Message, Role, Session
from rem.models.field_types import to_json_value, utc_now
from rem.sessions.export_import import ImportedSession, ImportReport, ProgressCallback, SessionBundle, store_session
from rem.sessions.manager import MemoryManager
from rem.sessions.message import NOTE_TOOLS
from rem.sessions.tokens import count_message_tokens
from rem.text import clean_text

SQLITE_HEADER = b"SQLite format 3\0"
SESSION_COLUMNS = ("id", "created_at", "updated_at", "metadata", "system_prompt")
MESSAGE_COLUMNS = ("id", "session_id", "role", "content", "tool_calls", "tool_call_id", "name", "created_at")
ROLES = {
    "user": Role.USER,
    "human": Role.USER,
    "assistant": Role.ASSISTANT,
    "ai": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


def is_sqlite(path: Path) -> bool:
    """Return True if a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER


async def import_sqlite(
    memory: MemoryManager, path: Path, on_rows: ProgressCallback | None = None, *, skip_broken: bool = False
) -> ImportReport:
    """Store the sessions of an SQLite file, each completely or not at all. The file is only read.

    A session with an unreadable row is not imported. With `skip_broken`, it is imported without that row.
    """
    report = ImportReport()
    try:
        with closing(_open_file(path)) as database:
            total = _check_tables(database)
            for row in database.execute("SELECT * FROM sessions ORDER BY created_at, id"):
                report.sessions.append(await _import_session(memory, database, row, skip_broken))
                if on_rows is not None:
                    on_rows(len(report.sessions), total)
            _report_orphans(database, report)
    except sqlite3.Error as error:
        raise InvalidInputError(f"{path} cannot be read as an SQLite memory: {error}.") from error
    return report


def _open_file(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    # Text that is not UTF-8 must not stop the import.
    database.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return database


def _check_tables(database: sqlite3.Connection) -> int:
    """Return the number of sessions. Raise `InvalidInputError` if the tables lack a column."""
    for table, required in (("sessions", SESSION_COLUMNS), ("messages", MESSAGE_COLUMNS)):
        columns = {row["name"] for row in database.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        missing = [column for column in required if column not in columns]
        if missing:
            raise InvalidInputError(
                f"The SQLite file is not a conversation memory: its table {table} lacks {', '.join(missing)}."
            )
    return int(database.execute("SELECT count(*) FROM sessions").fetchone()[0])


def _report_orphans(database: sqlite3.Connection, report: ImportReport) -> None:
    """Report messages whose session is not in the file."""
    orphans = database.execute(
        "SELECT session_id, count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions) GROUP BY 1"
    )
    for session_id, count in orphans:
        note = f"{count} messages belong to this session, which the file does not have."
        report.sessions.append(ImportedSession(f"session {session_id}", "failed", notes=[note]))


async def _import_session(
    memory: MemoryManager, database: sqlite3.Connection, row: sqlite3.Row, skip_broken: bool
) -> ImportedSession:
    source = f"session {row['id']}"
    reader = _SqliteSessionReader(await memory.resolve_session_id(_to_text(row["id"]) or "unnamed"), row)
    try:
        messages = list(database.execute("SELECT * FROM messages WHERE session_id IS ? ORDER BY id", (row["id"],)))
        bundle = reader.read_bundle(messages)
    except (InvalidInputError, ValidationError) as error:
        return ImportedSession(source, "failed", notes=[*reader.notes, f"It cannot be read: {error}"])
    if reader.broken and not skip_broken:
        return ImportedSession(source, "failed", notes=[*reader.broken, *reader.notes])
    return await store_session(memory, source, bundle, [*reader.broken, *reader.notes])


class _BrokenRowError(Exception):
    """A row whose role or tool calls cannot be read."""


@dataclass(slots=True)
class _SqliteSessionReader:
    """Reads one session of the file, and collects notes about unusual and broken rows."""

    session_id: UUID
    row: sqlite3.Row
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    skipped_results: int = 0

    def read_bundle(self, rows: Sequence[sqlite3.Row]) -> SessionBundle:
        """Return the session with its messages."""
        created = self._read_time(self.row["created_at"], "created_at of the session") or utc_now()
        updated = self._read_time(self.row["updated_at"], "updated_at of the session") or created
        parts = [part for row in rows for part in self._message_parts(row, created)]
        messages = [_build_message(self.session_id, index, part) for index, part in enumerate(parts)]
        if self.skipped_results:
            self.notes.append(
                f"{self.skipped_results} tool results were left out: REM keeps calls and notes, not results."
            )
        session = Session(
            id=self.session_id,
            created_at=created,
            updated_at=max(created, updated),
            metadata=self._read_metadata(),
            system_prompt=_to_text(self.row["system_prompt"]).strip() or None,
            message_count=len(messages),
            total_tokens=sum(message.token_count or 0 for message in messages),
        )
        return SessionBundle(session, messages)

    def _message_parts(self, row: sqlite3.Row, default_time: datetime) -> list[dict[str, Any]]:
        """Return the messages to store for a row: its text, and one message for each tool call."""
        try:
            role = _parse_role(row["role"])
            content, calls = _to_text(row["content"]), _parse_calls(row["tool_calls"])
        except _BrokenRowError as error:
            self.broken.append(f"message {row['id']}: {error}")
            return []
        if role == Role.TOOL and not calls:
            self.skipped_results += 1
            return []
        if not content.strip() and not calls:
            self.notes.append(f"message {row['id']} is empty and was left out.")
            return []
        time = self._read_time(row["created_at"], f"created_at of message {row['id']}") or default_time
        common = {"source_id": str(row["id"]), "created_at": time}
        parts: list[dict[str, Any]] = []
        if content.strip() and role != Role.TOOL:
            parts.append({**common, "role": role, "content": content})
        return parts + [{**common, "role": Role.TOOL, **_call_fields(call)} for call in calls]

    def _read_time(self, value: Any, label: str) -> datetime | None:
        """Parse a time as SQLite programs write it. Note an invalid one (None) and one in the future (now)."""
        try:
            time = _parse_time(value)
        except (ValueError, OverflowError, OSError, TypeError):
            self.notes.append(f"{label} is not a time ({str(value)[:40]!r}).")
            return None
        if time > utc_now():
            self.notes.append(f"{label} is in the future ({time:%Y-%m-%d}); the current time was used.")
            return utc_now()
        return time

    def _read_metadata(self) -> dict[str, Any]:
        text = _to_text(self.row["metadata"])
        if not text.strip():
            return {}
        try:
            metadata = orjson.loads(text)
            if isinstance(metadata, dict):
                return dict(to_json_value(metadata))
        except ValueError:
            pass
        self.notes.append("The metadata is not a JSON object; it is kept as text.")
        return {"imported_metadata": text}


def _to_text(value: Any) -> str:
    """Return a column value as text that PostgreSQL can store; NULL is empty."""
    if value is None:
        return ""
    return clean_text(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))


def _parse_role(value: Any) -> Role:
    role = ROLES.get(_to_text(value).strip().lower())
    if role is None:
        raise _BrokenRowError(f"the role {_to_text(value)[:40]!r} is unknown")
    return role


def _parse_calls(value: Any) -> list[dict[str, Any]]:
    """Parse the tool calls of a row, as `{id, name, arguments}` or in OpenAI's format."""
    text = _to_text(value).strip()
    if not text or text == "null":
        return []
    try:
        calls = orjson.loads(text)
        if not isinstance(calls, list):
            raise TypeError
        return [_parse_call(call) for call in calls]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _BrokenRowError("its tool calls are not a list of calls with a name and arguments") from error


def _parse_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = orjson.loads(arguments)
    if not isinstance(arguments, dict):
        raise TypeError
    return {"id": str(call.get("id") or ""), "name": str(function["name"]), "arguments": to_json_value(arguments)}


def _call_fields(call: dict[str, Any]) -> dict[str, Any]:
    """Return the message fields for a tool call. The content of a note is its arguments."""
    is_note = call["name"] in NOTE_TOOLS
    return {
        "content": orjson.dumps(call["arguments"]).decode() if is_note else "",
        "tool_calls": [call],
        "tool_call_id": call["id"] or None,
        "tool_name": call["name"],
        "metadata": {"tool_arguments": call["arguments"]},
    }


def _parse_time(value: Any) -> datetime:
    """Parse seconds or milliseconds since 1970, or an ISO time. A time without a zone is UTC."""
    if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit():
        value = float(value)
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    time = datetime.fromisoformat(value.strip())
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _build_message(session_id: UUID, index: int, part: dict[str, Any]) -> Message:
    """Return the message for a part. Its id follows from the file, so a second import finds the same message."""
    fields = {name: value for name, value in part.items() if name not in ("source_id", "created_at")}
    return Message(
        id=uuid5(session_id, f"{part['source_id']}/{index}"),
        session_id=session_id,
        message_index=index,
        created_at=part["created_at"],
        updated_at=part["created_at"],
        token_count=count_message_tokens(part["content"], part.get("tool_calls", ())),
        **fields,
    )
