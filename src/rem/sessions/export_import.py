"""Export and import sessions as JSON lines. One line is a session with its messages, and an export restores exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal, TypeAlias
from uuid import UUID

import orjson
from pydantic import ValidationError

from rem.db.sql import query
from rem.db.store import Store
from rem.errors import ConflictError, InvalidInputError, RemError
from rem.models import Edge, Message, Session
from rem.sessions.manager import MemoryManager

FORMAT = "rem-session/1"
IGNORED_FIELDS = frozenset({"tenant_id", "user_id", "key"})
"""Fields that the store sets itself: the importing user becomes the owner."""
USER_ORIGIN = "user"
"""The origin of edges that a person wrote. Other origins name the program that derived an edge."""
EXPORT_PAGE_SESSIONS = 100
IMPORT_PAGE_MESSAGES = 5000

ImportOutcome: TypeAlias = Literal["imported", "unchanged", "extended", "failed"]
ProgressCallback: TypeAlias = Callable[[int, int | None], None]
"""Called with the number of sessions so far, and their total if it is known."""


@dataclass(frozen=True, slots=True)
class SessionBundle:
    """A session with its messages in order, and its former owner if it is known."""

    session: Session
    messages: Sequence[Message]
    tenant_id: str | None = None
    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """The result for one session of an imported file."""

    source: str
    """The position in the file: a line number, or an id in the file."""
    outcome: ImportOutcome
    session_id: UUID | None = None
    messages: int = 0
    """Number of added messages."""
    notes: list[str] = field(default_factory=list)
    """Unusual data, or the reason of the failure."""


@dataclass(slots=True)
class ImportReport:
    """The results for all sessions of an imported file."""

    sessions: list[ImportedSession] = field(default_factory=list)

    @property
    def counts(self) -> Counter[ImportOutcome]:
        """Number of sessions for each outcome."""
        return Counter(session.outcome for session in self.sessions)

    @property
    def messages(self) -> int:
        """Number of added messages in all sessions."""
        return sum(session.messages for session in self.sessions)


async def export_sessions(
    memory: MemoryManager,
    stream: IO[bytes],
    session_ids: Iterable[UUID] | None = None,
    on_rows: ProgressCallback | None = None,
) -> int:
    """Write the user's sessions, or those with the given ids, as JSON lines. Return their number.

    All sessions are read from one database snapshot.
    """
    written = 0
    async with memory.store.snapshot() as store:
        snapshot = memory.with_store(store)
        async for session in _iter_sessions(snapshot, session_ids):
            stream.write(await _render_line(snapshot, session))
            written += 1
            if on_rows is not None:
                on_rows(written, None)
    return written


async def _render_line(memory: MemoryManager, session: Session) -> bytes:
    line = {
        "format": FORMAT,
        "session": session.model_dump(mode="json"),
        "messages": [message.model_dump(mode="json") for message in await memory.load_session(session.id)],
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


async def _iter_sessions(memory: MemoryManager, session_ids: Iterable[UUID] | None) -> AsyncIterator[Session]:
    """Yield the sessions with the given ids, or all own sessions by creation time."""
    if session_ids is not None:
        for session_id in dict.fromkeys(session_ids):
            yield await memory.get_session(session_id)
        return
    offset = 0
    while page := await memory.store.find(
        Session, {"user_id": memory.scope.user_id}, order_by="created_at", limit=EXPORT_PAGE_SESSIONS, offset=offset
    ):
        for session in page:
            yield session
        offset += len(page)


def check_export_lines(lines: Iterable[bytes], name: str) -> None:
    """Raise one `InvalidInputError` if no line of the file is a session, instead of one failure for each line."""
    first_error = None
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                _parse_json_line(line)
                return
        except InvalidInputError as error:
            first_error = first_error or f"line {number}: {error}"
    if first_error is None:
        raise InvalidInputError(f"{name} is empty: there is nothing to import.")
    raise InvalidInputError(
        f"{name} is neither a file that `rem sessions export` wrote, nor an SQLite memory ({first_error})"
    )


async def import_sessions(
    memory: MemoryManager, lines: Iterable[bytes], on_rows: ProgressCallback | None = None
) -> ImportReport:
    """Store the sessions of JSON lines, each completely or not at all. Stored messages are not changed."""
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
        bundle = _parse_bundle(line)
    except InvalidInputError as error:
        return ImportedSession(source, "failed", notes=[str(error)])
    return await store_session(memory, source, bundle)


def _parse_json_line(line: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"This is not JSON ({error}): export the sessions again.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(f'This is not a session: it needs "format": "{FORMAT}".')
    return data


def _parse_bundle(line: bytes) -> SessionBundle:
    data = _parse_json_line(line)
    session, messages = data.get("session"), data.get("messages")
    if not isinstance(session, dict) or not isinstance(messages, list):
        raise InvalidInputError("A line needs a session and a list of messages.")
    try:
        return SessionBundle(
            Session.model_validate(_drop_ignored_fields(session)),
            [Message.model_validate(_drop_ignored_fields(message)) for message in messages],
            session.get("tenant_id"),
            session.get("user_id"),
        )
    except ValidationError as error:
        details = error.errors()[0]
        path = ".".join(map(str, details["loc"])) or "message"
        raise InvalidInputError(f"{error.title} is not valid in {path}: {details['msg']}.") from error


def _drop_ignored_fields(record: Any) -> Any:
    if not isinstance(record, dict):
        return record
    return {name: value for name, value in record.items() if name not in IGNORED_FIELDS}


async def store_session(
    memory: MemoryManager, source: str, bundle: SessionBundle, notes: Sequence[str] = ()
) -> ImportedSession:
    """Store a session completely or not at all. Messages that are stored already are not changed."""
    try:
        _check_messages(bundle)
        async with memory.store.transaction() as store:
            return await _store_bundle(store, source, await _assign_ids(store, bundle), list(notes))
    except RemError as error:
        return ImportedSession(source, "failed", notes=[*notes, str(error)])


async def _assign_ids(store: Store, bundle: SessionBundle) -> SessionBundle:
    """Return the bundle with its own ids, or with derived ids if it belongs to another owner."""
    scope, session = store.scope, bundle.session
    is_own = bundle.user_id is None or (bundle.tenant_id, bundle.user_id) == (scope.tenant_id, scope.user_id)
    if is_own and not await _is_foreign_id(store, session.id):
        return bundle
    make_id = _copy_ids(store)
    session_id = make_id(session.id)
    messages = [
        message.model_copy(
            update={
                "id": make_id(message.id),
                "session_id": session_id,
                "graph_edges": _keep_own_edges(message),
            }
        )
        for message in bundle.messages
    ]
    copy = session.model_copy(update={"id": session_id, "graph_edges": _keep_own_edges(session)})
    return SessionBundle(copy, messages, scope.tenant_id, scope.user_id)


def _keep_own_edges(row: Session | Message) -> list[Edge]:
    """Return the edges that a person wrote. Dreams derived the others from the rows of the former owner."""
    return [edge for edge in row.graph_edges if edge.origin == USER_ORIGIN]


def _copy_ids(store: Store) -> Callable[[UUID], UUID]:
    """Return the function for the ids of the copy that `store` has of another owner's rows."""

    def make_id(original_id: UUID) -> UUID:
        return store.executor.derived_ids.make("copy", store.scope.tenant_id, store.scope.user_id, str(original_id))

    return make_id


async def _is_foreign_id(store: Store, session_id: UUID) -> bool:
    async with store.executor.connection() as connection:
        return bool(
            await connection.fetchval(
                query("sessions/sessions", "is_foreign_id"), store.scope.tenant_id, store.scope.user_id, session_id
            )
        )


async def _store_bundle(store: Store, source: str, bundle: SessionBundle, notes: list[str]) -> ImportedSession:
    session = bundle.session
    existing = await store.find(Session, {"id": session.id}, with_deleted=True)
    if existing and existing[0].deleted_at is not None:
        raise ConflictError(f"The session {session.id} was deleted here: restore or erase it first.")
    if not existing:
        await _check_name_is_free(store, session)
        await store.upsert(_with_totals(session, bundle.messages))
    stored = {message.id: message for message in await _load_messages(store, session.id)}
    new_messages = [message for message in bundle.messages if message.id not in stored]
    used_indexes = {message.message_index for message in stored.values()}
    if conflict := next((message for message in new_messages if message.message_index in used_indexes), None):
        raise ConflictError(
            f"The session {session.id} has continued differently here: it has another message "
            f"{conflict.message_index}. Clone or delete the stored session first."
        )
    if new_messages:
        await store.upsert_many(new_messages)
    if new_messages and existing:
        async with store.executor.connection() as connection:
            await connection.execute(
                query("sessions/sessions", "update_totals"), store.scope.tenant_id, store.scope.user_id, session.id
            )
    outcome: ImportOutcome = "imported" if not existing else "extended" if new_messages else "unchanged"
    return ImportedSession(source, outcome, session.id, len(new_messages), notes)


def _with_totals(session: Session, messages: Sequence[Message]) -> Session:
    """Return the session with the totals of `messages`, ignoring those in the file."""
    live = [message for message in messages if message.deleted_at is None]
    totals = {"message_count": len(live), "total_tokens": sum(message.token_count or 0 for message in live)}
    return session.model_copy(update=totals)


async def _load_messages(store: Store, session_id: UUID) -> list[Message]:
    """Return all stored messages of a session, including deleted ones."""
    messages: list[Message] = []
    while page := await store.find(
        Message,
        {"session_id": session_id},
        order_by="message_index",
        limit=IMPORT_PAGE_MESSAGES,
        offset=len(messages),
        with_deleted=True,
    ):
        messages += page
    return messages


def _check_messages(bundle: SessionBundle) -> None:
    """Raise `InvalidInputError` if a message belongs to another session, or if two have the same index or id."""
    indexes = [message.message_index for message in bundle.messages]
    if any(message.session_id != bundle.session.id for message in bundle.messages):
        raise InvalidInputError("A message belongs to another session than the one that contains it.")
    if len(set(indexes)) != len(indexes) or len({message.id for message in bundle.messages}) != len(indexes):
        raise InvalidInputError("Two messages have the same index or id.")


async def _check_name_is_free(store: Store, session: Session) -> None:
    if session.name is None:
        return
    key = await store.normalize_key(session.name)
    if any(other.user_id == store.scope.user_id for other in await store.find(Session, {"key": key})):
        raise ConflictError(f"Another session is named {session.name!r}: rename it first.")
