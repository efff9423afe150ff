"""Sessions as JSON lines: one line is a session with its messages. What was exported comes back exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal, TypeAlias
from uuid import UUID, uuid5

import orjson
from pydantic import ValidationError

from rem.context import Scope
from rem.db.sql import query
from rem.db.store import Store
from rem.errors import ConflictError, InvalidInputError, RemError
from rem.memory.manager import MemoryManager
from rem.models import Message, Session

FORMAT = "rem-session/1"
_OWNERS = UUID("0f3c1c5e-6f0b-5d8e-9a57-3b8a6c0f7d21")
_GIVEN = frozenset({"tenant_id", "user_id", "key"})
"""What the store gives: the owner is who imports."""
_PAGE = 100

ImportOutcome: TypeAlias = Literal["imported", "unchanged", "extended", "failed"]
ProgressCallback: TypeAlias = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class SessionBundle:
    """A session on its way, with its messages in their order, and who it belonged to."""

    session: Session
    messages: Sequence[Message]
    tenant_id: str | None = None
    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """What became of one session of a file."""

    source: str
    """Where it stands: the line, or the id in the file."""
    outcome: ImportOutcome
    session_id: UUID | None = None
    messages: int = 0
    """How many were added."""
    notes: list[str] = field(default_factory=list)
    """What was unusual, or why it failed."""


@dataclass(slots=True)
class ImportReport:
    """What became of a file."""

    sessions: list[ImportedSession] = field(default_factory=list)

    @property
    def counts(self) -> Counter[ImportOutcome]:
        """How many sessions had which outcome."""
        return Counter(session.outcome for session in self.sessions)

    @property
    def messages(self) -> int:
        """How many messages were added."""
        return sum(session.messages for session in self.sessions)


async def export_sessions(
    memory: MemoryManager,
    stream: IO[bytes],
    session_ids: Iterable[UUID] | None = None,
    on_rows: ProgressCallback | None = None,
) -> int:
    """Write the user's sessions, or some of them, as JSON lines; how many there were. All as of one moment."""
    written = 0
    async with memory.store.snapshot() as store:
        then = memory.with_store(store)
        async for session in _own_sessions(then, session_ids):
            stream.write(await _packed_line(then, session))
            written += 1
            if on_rows is not None:
                on_rows(written, None)
    return written


async def _packed_line(memory: MemoryManager, session: Session) -> bytes:
    line = {
        "format": FORMAT,
        "session": session.model_dump(mode="json"),
        "messages": [message.model_dump(mode="json") for message in await memory.load_session(session.id)],
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


async def _own_sessions(memory: MemoryManager, session_ids: Iterable[UUID] | None) -> AsyncIterator[Session]:
    if session_ids is not None:
        for session_id in dict.fromkeys(session_ids):
            yield await memory.get_session(session_id)
        return
    # By their creation, which does not change while we read.
    offset = 0
    while page := await memory.store.find(
        Session, {"user_id": memory.scope.user_id}, order_by="created_at", limit=_PAGE, offset=offset
    ):
        for session in page:
            yield session
        offset += len(page)


def check_export_lines(lines: Iterable[bytes], name: str) -> None:
    """An error if nothing in a file is a session, told once instead of for every line."""
    first_problem = None
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                _record(line)
                return
        except InvalidInputError as error:
            first_problem = first_problem or f"line {number}: {error}"
    if first_problem is None:
        raise InvalidInputError(f"{name} is empty: there is nothing in it to import.")
    raise InvalidInputError(
        f"{name} is neither JSON lines as `rem sessions export` writes them, nor an SQLite memory ({first_problem})"
    )


async def import_sessions(
    memory: MemoryManager, lines: Iterable[bytes], on_rows: ProgressCallback | None = None
) -> ImportReport:
    """Store the sessions of JSON lines, each as a whole or not at all; what is there already stays as it is."""
    report = ImportReport()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            report.sessions.append(await _import_line(memory, number, line))
        if on_rows is not None:
            on_rows(len(report.sessions), None)
    return report


async def _import_line(memory: MemoryManager, number: int, line: bytes) -> ImportedSession:
    source = f"line {number}"
    try:
        packed = _unpacked(line)
    except InvalidInputError as error:
        return ImportedSession(source, "failed", notes=[str(error)])
    return await store_session(memory, source, packed)


def _record(line: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"This is not JSON ({error}): export the sessions again.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(f'This is not a session: it needs "format": "{FORMAT}".')
    return data


def _unpacked(line: bytes) -> SessionBundle:
    data = _record(line)
    session, messages = data.get("session"), data.get("messages")
    if not isinstance(session, dict) or not isinstance(messages, list):
        raise InvalidInputError("A line needs a session and a list of messages.")
    try:
        return SessionBundle(
            Session.model_validate(_own_fields(session)),
            [Message.model_validate(_own_fields(message)) for message in messages],
            session.get("tenant_id"),
            session.get("user_id"),
        )
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "message"
        raise InvalidInputError(f"{error.title} is not valid in {place}: {problem['msg']}.") from error


def _own_fields(record: Any) -> Any:
    return {name: value for name, value in record.items() if name not in _GIVEN} if isinstance(record, dict) else record


async def store_session(
    memory: MemoryManager, source: str, packed: SessionBundle, notes: Sequence[str] = ()
) -> ImportedSession:
    """Store a session as a whole or not at all; messages that are there already are left as they are."""
    try:
        _refuse_strays(packed)
        async with memory.store.transaction() as store:
            return await _store(store, source, await _as_own(store, packed), list(notes))
    except RemError as error:
        return ImportedSession(source, "failed", notes=[*notes, str(error)])


async def _as_own(store: Store, packed: SessionBundle) -> SessionBundle:
    """The session under ids that the scope can have: its own, or ones that always follow from them."""
    scope, session = store.scope, packed.session
    is_own = packed.user_id is None or (packed.tenant_id, packed.user_id) == (scope.tenant_id, scope.user_id)
    if is_own and not await _is_taken(store, session.id):
        return packed
    session_id = derive_copy_id(scope, session.id)
    messages = [
        message.model_copy(update={"id": derive_copy_id(scope, message.id), "session_id": session_id})
        for message in packed.messages
    ]
    return SessionBundle(session.model_copy(update={"id": session_id}), messages, scope.tenant_id, scope.user_id)


def derive_copy_id(scope: Scope, old: UUID | str) -> UUID:
    """The id that something of another owner has as a copy of this one's."""
    return uuid5(_OWNERS, "\n".join((scope.tenant_id, scope.user_id or "", str(old))))


async def _is_taken(store: Store, session_id: UUID) -> bool:
    async with store.executor.connection() as connection:
        return bool(
            await connection.fetchval(
                query("memory", "is_taken"), store.scope.tenant_id, store.scope.user_id, session_id
            )
        )


async def _store(store: Store, source: str, packed: SessionBundle, notes: list[str]) -> ImportedSession:
    session = packed.session
    existing = await store.find(Session, {"id": session.id}, with_deleted=True)
    if existing and existing[0].deleted_at is not None:
        raise ConflictError(f"The session {session.id} was deleted here, and stays deleted: restore or erase it first.")
    if not existing:
        await _refuse_double_name(store, session)
        await store.upsert(_counted(session, packed.messages))
    stored = {row.id: row for row in await _stored_messages(store, session.id)}
    fresh = [message for message in packed.messages if message.id not in stored]
    occupied = {row.message_index for row in stored.values()}
    if clash := next((message for message in fresh if message.message_index in occupied), None):
        raise ConflictError(
            f"The session {session.id} has gone on differently here: it has another message {clash.message_index}. "
            "Clone or delete the one that is here first."
        )
    if fresh:
        await store.upsert_many(fresh)
    if fresh and existing:
        async with store.executor.connection() as connection:
            await connection.execute(
                query("memory", "count_messages"), store.scope.tenant_id, store.scope.user_id, session.id
            )
    outcome: ImportOutcome = "imported" if not existing else "extended" if fresh else "unchanged"
    return ImportedSession(source, outcome, session.id, len(fresh), notes)


def _counted(session: Session, messages: Sequence[Message]) -> Session:
    """The session with the totals of the messages that are there, whatever the file says."""
    live = [message for message in messages if message.deleted_at is None]
    totals = {"message_count": len(live), "total_tokens": sum(message.token_count or 0 for message in live)}
    return session.model_copy(update=totals)


async def _stored_messages(store: Store, session_id: UUID) -> list[Message]:
    rows: list[Message] = []
    while page := await store.find(
        Message, {"session_id": session_id}, order_by="message_index", limit=5000, offset=len(rows), with_deleted=True
    ):
        rows += page
    return rows


def _refuse_strays(packed: SessionBundle) -> None:
    indexes = [message.message_index for message in packed.messages]
    if any(message.session_id != packed.session.id for message in packed.messages):
        raise InvalidInputError("A message belongs to another session than the one that it stands in.")
    if len(set(indexes)) != len(indexes) or len({message.id for message in packed.messages}) != len(indexes):
        raise InvalidInputError("Two messages have the same index or id.")


async def _refuse_double_name(store: Store, session: Session) -> None:
    if session.name is None:
        return
    key = await store.normalize_key(session.name)
    if any(other.user_id == store.scope.user_id for other in await store.find(Session, {"key": key})):
        raise ConflictError(f"Another session is called {session.name!r}: rename it first.")
