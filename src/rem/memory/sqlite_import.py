"""Import of an SQLite memory: a file with the tables `sessions` and `messages` of the earlier design."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import orjson
from pydantic import ValidationError

from rem.context import Scope, resolve_session_id
from rem.errors import InvalidInputError
from rem.memory.manager import MemoryManager
from rem.memory.message import NOTE_TOOLS
from rem.memory.tokens import count_message_tokens
from rem.memory.transfer import ImportedSession, ImportReport, ProgressCallback, SessionBundle, store_session
from rem.models import Message, Role, Session
from rem.models.field_types import to_json_value, utc_now

_MAGIC = b"SQLite format 3\0"
_SESSION_COLUMNS = ("id", "created_at", "updated_at", "metadata", "system_prompt")
_MESSAGE_COLUMNS = ("id", "session_id", "role", "content", "tool_calls", "tool_call_id", "name", "created_at")
_ROLES = {
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
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


async def import_sqlite(
    memory: MemoryManager, path: Path, on_rows: ProgressCallback | None = None, *, skip_broken: bool = False
) -> ImportReport:
    """Store the sessions of an SQLite file, each as a whole or not at all; the file is only read.

    A session with a row that cannot be read is not imported, or without that row if `skip_broken`.
    """
    report = ImportReport()
    try:
        with closing(_opened(path)) as file:
            total = _check_tables(file)
            for row in file.execute("SELECT * FROM sessions ORDER BY created_at, id"):
                report.sessions.append(await _import_session(memory, file, row, skip_broken))
                if on_rows is not None:
                    on_rows(len(report.sessions), total)
            _report_orphans(file, report)
    except sqlite3.Error as error:
        raise InvalidInputError(f"{path} cannot be read as an SQLite memory: {error}.") from error
    return report


def _opened(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    file.row_factory = sqlite3.Row
    # Text that is no UTF-8 shall not end the import.
    file.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return file


def _check_tables(file: sqlite3.Connection) -> int:
    """How many sessions there are; an error if the tables are not those of a memory."""
    for table, needed in (("sessions", _SESSION_COLUMNS), ("messages", _MESSAGE_COLUMNS)):
        columns = {row["name"] for row in file.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        missing = [column for column in needed if column not in columns]
        if missing:
            raise InvalidInputError(
                f"The SQLite file is not a conversation memory: its table {table} lacks {', '.join(missing)}."
            )
    return int(file.execute("SELECT count(*) FROM sessions").fetchone()[0])


def _report_orphans(file: sqlite3.Connection, report: ImportReport) -> None:
    orphans = file.execute(
        "SELECT session_id, count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions) GROUP BY 1"
    )
    for session_id, count in orphans:
        note = f"{count} messages belong to this session, which the file does not have."
        report.sessions.append(ImportedSession(f"session {session_id}", "failed", notes=[note]))


async def _import_session(
    memory: MemoryManager, file: sqlite3.Connection, row: sqlite3.Row, skip_broken: bool
) -> ImportedSession:
    source = f"session {row['id']}"
    reader = _Reader(memory.scope, row)
    try:
        messages = list(file.execute("SELECT * FROM messages WHERE session_id IS ? ORDER BY id", (row["id"],)))
        packed = reader.pack(messages)
    except (InvalidInputError, ValidationError) as error:
        return ImportedSession(source, "failed", notes=[*reader.notes, f"It cannot be read: {error}"])
    if reader.broken and not skip_broken:
        return ImportedSession(source, "failed", notes=[*reader.broken, *reader.notes])
    return await store_session(memory, source, packed, [*reader.broken, *reader.notes])


class _BrokenError(Exception):
    """A row that does not say what was said."""


@dataclass(slots=True)
class _Reader:
    """Reads one session of the file."""

    scope: Scope
    row: sqlite3.Row
    notes: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    results: int = 0

    def pack(self, rows: Sequence[sqlite3.Row]) -> SessionBundle:
        """The session with its messages."""
        session_id = resolve_session_id(_text(self.row["id"]) or "unnamed", self.scope)
        created = self._time(self.row["created_at"], "created_at of the session") or utc_now()
        updated = self._time(self.row["updated_at"], "updated_at of the session") or created
        parts = [*self._prompt(rows, created), *(part for row in rows for part in self._parts(row, created))]
        messages = [_message(session_id, index, part) for index, part in enumerate(parts)]
        if self.results:
            self.notes.append(f"{self.results} tool results were left out: REM keeps calls and notes, not results.")
        session = Session(
            id=session_id,
            created_at=created,
            updated_at=max(created, updated),
            metadata=self._metadata(),
            message_count=len(messages),
            total_tokens=sum(message.token_count or 0 for message in messages),
        )
        return SessionBundle(session, messages)

    def _prompt(self, rows: Sequence[sqlite3.Row], created: datetime) -> Iterator[dict[str, Any]]:
        prompt = _text(self.row["system_prompt"])
        if prompt.strip() and not (rows and rows[0]["role"] == "system" and _text(rows[0]["content"]) == prompt):
            yield {"place": "prompt", "role": Role.SYSTEM, "content": prompt, "created_at": created}

    def _parts(self, row: sqlite3.Row, default_time: datetime) -> list[dict[str, Any]]:
        """What is stored for a row: its text, and each tool call as a message of its own."""
        try:
            role = _role(row["role"])
            content, calls = _text(row["content"]), _calls(row["tool_calls"])
        except _BrokenError as problem:
            self.broken.append(f"message {row['id']}: {problem}")
            return []
        if role == Role.TOOL and not calls:
            self.results += 1
            return []
        if not content.strip() and not calls:
            self.notes.append(f"message {row['id']} is empty and was left out.")
            return []
        time = self._time(row["created_at"], f"created_at of message {row['id']}") or default_time
        common = {"place": str(row["id"]), "created_at": time}
        parts: list[dict[str, Any]] = []
        if content.strip() and role != Role.TOOL:
            parts.append({**common, "role": role, "content": content})
        return parts + [{**common, "role": Role.TOOL, **_call_fields(call)} for call in calls]

    def _time(self, value: Any, what: str) -> datetime | None:
        """A time in one of the ways that SQLite programs write it; what is none, or in the future, is reported."""
        try:
            time = _parsed_time(value)
        except (ValueError, OverflowError, OSError, TypeError):
            self.notes.append(f"{what} is no time ({str(value)[:40]!r}).")
            return None
        if time > utc_now():
            self.notes.append(f"{what} is in the future ({time:%Y-%m-%d}); the present was taken.")
            return utc_now()
        return time

    def _metadata(self) -> dict[str, Any]:
        text = _text(self.row["metadata"])
        if not text.strip():
            return {}
        try:
            metadata = orjson.loads(text)
            if isinstance(metadata, dict):
                return dict(to_json_value(metadata))
        except ValueError:
            pass
        self.notes.append("The metadata is no JSON object; it is kept as text.")
        return {"imported_metadata": text}


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else _decoded(value)
    return text.replace("\0", "\ufffd")


def _decoded(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _role(value: Any) -> Role:
    role = _ROLES.get(_text(value).strip().lower())
    if role is None:
        raise _BrokenError(f"the role {_text(value)[:40]!r} is unknown")
    return role


def _calls(value: Any) -> list[dict[str, Any]]:
    """The tool calls of a row, as `{id, name, arguments}`; OpenAI's own form is read as well."""
    text = _text(value).strip()
    if not text or text == "null":
        return []
    try:
        calls = orjson.loads(text)
        if not isinstance(calls, list):
            raise TypeError
        return [_call(call) for call in calls]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _BrokenError("its tool calls are no list of calls with a name and arguments") from error


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        arguments = orjson.loads(arguments)
    if not isinstance(arguments, dict):
        raise TypeError
    return {"id": str(call.get("id") or ""), "name": str(function["name"]), "arguments": to_json_value(arguments)}


def _call_fields(call: dict[str, Any]) -> dict[str, Any]:
    is_note = call["name"] in NOTE_TOOLS
    return {
        "content": orjson.dumps(call["arguments"]).decode() if is_note else "",
        "tool_calls": [call],
        "tool_call_id": call["id"] or None,
        "tool_name": call["name"],
        "metadata": {"tool_arguments": call["arguments"]},
    }


def _parsed_time(value: Any) -> datetime:
    if isinstance(value, str) and value.strip().replace(".", "", 1).isdigit():
        value = float(value)
    if isinstance(value, int | float):
        # Seconds or milliseconds since 1970.
        return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    time = datetime.fromisoformat(value.strip())
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _message(session_id: UUID, index: int, part: dict[str, Any]) -> Message:
    fields = {name: value for name, value in part.items() if name not in ("place", "created_at")}
    return Message(
        id=uuid5(session_id, f"{part['place']}/{index}"),
        session_id=session_id,
        message_index=index,
        created_at=part["created_at"],
        updated_at=part["created_at"],
        token_count=count_message_tokens(part["content"], part.get("tool_calls", ())),
        **fields,
    )
