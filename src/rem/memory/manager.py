"""MemoryManager: one user's conversations. Agents, the API and the command line all remember through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from loguru import logger

from rem.context import parse_uuid, resolve_session_id, resolve_user_id
from rem.db.conditions import Compare
from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.errors import ConflictError, CorruptRowError, DeletedError, InvalidInputError, NotFoundError
from rem.memory.history import SessionHistory, Strategy, fit_history, restore_full_texts
from rem.memory.message import HistoryMessage, NewMessage, StoredMessage, Turn, message_key, to_record
from rem.memory.prune import check_prune_days
from rem.memory.recall import add_context
from rem.memory.summary_writer import SummaryWriter
from rem.memory.tokens import count_message_tokens
from rem.models import Message, Role, Session, SharedSession
from rem.models.field_types import check_label, check_text, to_json_value
from rem.query.verbs.search import SearchRequest

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.store import Store
    from rem.memory.extractive_summary import Summarizer
    from rem.query.verbs.search import Searcher
    from rem.settings import MemorySettings

_PAGE = 500
_PRUNED_AT_ONCE = 100
_TITLE_CHARACTERS = 80
_MOST_CANDIDATES = 20
_LARGEST_LIST = 10_000
_LONGEST_NAME = 4096
"""In characters; what is longer cannot be the name of anything."""
_MOST_KNOWN = 60
"""So many more than wanted are searched for, because the model may be given them anyway."""


class MemoryManager:
    """The conversations of one scope. Another user's session answers as if it did not exist."""

    def __init__(self, store: Store, searcher: Searcher, settings: MemorySettings) -> None:
        self._store = store
        self._searcher = searcher
        self._settings = settings

    @property
    def scope(self) -> Scope:
        """Whose conversations these are."""
        return self._store.scope

    @property
    def settings(self) -> MemorySettings:
        """How much of a conversation the model is given, if the caller does not say."""
        return self._settings

    @property
    def store(self) -> Store:
        """The scope's memory as a whole."""
        return self._store

    def with_store(self, store: Store) -> MemoryManager:
        """The same conversations through another store: that of a transaction or a snapshot."""
        return MemoryManager(store, self._searcher, self._settings)

    async def begin_turn(
        self,
        session_id: UUID,
        message: NewMessage,
        *,
        agent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
        strategy: Strategy | None = None,
        max_tokens: int | None = None,
    ) -> Turn:
        """Store what the user says and give the conversation before it, in one round trip.

        A session that does not exist is made, with the agent, the metadata and the name; a name that another session
        has, or that cannot be one, is left out. One that belongs to another is not found; a deleted one stays deleted.
        """
        chosen, budget = strategy or self._settings.strategy, self._budget(max_tokens)
        record, tokens = to_record(message)
        parameters = (*self._owner, session_id, agent, _object(metadata), [record], tokens, budget, chosen, _name(name))
        state, index, found = await self._value("begin_turn", *parameters)
        _refuse(state, session_id)
        conversation = fit_history(session_id, found, budget, chosen)
        return Turn(session_id, record["id"], index, conversation.history, conversation.summary, is_new=state == "new")

    async def append(
        self, session_id: UUID, messages: Sequence[NewMessage], *, agent: str | None = None, creates: bool = False
    ) -> list[StoredMessage]:
        """Store messages at the end of a session, all or none, in one round trip.

        A session that is not there is made only if `creates`: one that was erased meanwhile must not come back.
        """
        if not messages:
            return []
        rows, tokens = _records(messages)
        state, first = await self._value("append", *self._owner, session_id, agent, rows, len(rows), tokens, creates)
        _refuse(state, session_id)
        return [StoredMessage(row["id"], session_id, first + place) for place, row in enumerate(rows)]

    async def save_message(self, session_id: UUID, message: NewMessage, *, creates: bool = False) -> StoredMessage:
        """Store one message at the end of a session."""
        return (await self.append(session_id, [message], creates=creates))[0]

    async def seed_session(
        self, session_id: UUID, messages: Sequence[NewMessage], *, agent: str | None = None, name: str | None = None
    ) -> bool:
        """Store a conversation that began elsewhere, if the session does not exist yet; whether it was stored.

        One round trip: of several calls at once, one stores. Name and agent are as for `begin_turn`.
        """
        if not messages:
            return False
        rows, tokens = _records(messages)
        state = await self._value("bring_along", *self._owner, session_id, agent, _name(name), rows, len(rows), tokens)
        _refuse(state, session_id)
        return bool(state == "new")

    async def resolve_session_id(self, text: str) -> UUID:
        """The id of the session that a client means: a UUID is itself, else it is a name, or what the client calls it.

        A session that has the name is meant first; else the id follows from the text, whether it exists or not.
        """
        session_id = resolve_session_id(text, self.scope)
        if self.scope.user_id is None or len(text) > _LONGEST_NAME or parse_uuid(text):
            return session_id
        named: UUID | None = await self._value("named_session", *self._owner, text)
        return named or session_id

    async def create_session(
        self,
        system_prompt: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        session_id: UUID | None = None,
        name: str | None = None,
        agent: str | None = None,
        description: str | None = None,
        mode: str = "normal",
    ) -> Session:
        """Make a session; its system prompt, if there is one, is its first message.

        An id that another user's session has answers as everywhere: there is no such session.
        """
        _, user_id = self._owner
        given = {"name": name, "agent_schema": agent, "description": description}
        session = Session.model_validate(
            {
                "id": session_id or uuid4(),
                "mode": mode,
                "metadata": _object(metadata) or {},
                **{field: value for field, value in given.items() if value is not None},
            }
        )
        prompt = [NewMessage(role=Role.SYSTEM, content=system_prompt)] if system_prompt else []
        async with self._store.transaction() as store:
            taken = await store.find(Session, {"id": session.id}, with_deleted=True)
            named = [] if name is None else await store.find(Session, {"key": await store.normalize_key(name)})
            if taken or any(other.user_id == user_id for other in named):
                raise _exists()
            async with store.executor.connection() as connection:
                if await connection.fetchval(query("memory", "is_taken"), *self._owner, session.id):
                    raise _not_found(session.id)
                await connection.execute(query("memory", "free_name"), *self._owner, session.name)
            stored = await store.upsert(session)
            if stored.id != session.id:
                # Somebody was faster, with the same name.
                raise _exists()
            if prompt:
                await self.with_store(store).append(stored.id, prompt)
                stored = await store.get(Session, stored.id)
        return stored

    async def get_session(self, session_id: UUID) -> Session:
        """A session of the user's own, or one that is shared with the user, with the totals of its messages."""
        return await self._session(session_id, counted=True)

    async def load_session(self, session_id: UUID) -> list[Message]:
        """All messages of a session that the user may read, exactly as they were stored."""
        return [message async for message in self.iter_messages(session_id)]

    async def iter_messages(self, session_id: UUID) -> AsyncIterator[Message]:
        """The messages of a session that the user may read, in their order, some at a time."""
        session = await self._session(session_id)
        behind = -1
        while True:
            rows = await self._rows("messages", session.tenant_id, session.user_id, session_id, behind, _PAGE)
            for (record,) in rows:
                behind = record["message_index"]
                if (message := _readable(record)) is not None:
                    yield message
            if len(rows) < _PAGE:
                return

    async def get_messages(self, session_id: UUID, *, after: int = -1, limit: int = 100) -> list[Message]:
        """Some messages of a session that the user may read, behind an index."""
        session = await self._session(session_id)
        limit = max(0, min(limit, _LARGEST_LIST))
        rows = await self._rows("messages", session.tenant_id, session.user_id, session_id, after, limit)
        return [message for (record,) in rows if (message := _readable(record)) is not None]

    async def get_recent_messages(
        self, session_id: UUID, max_tokens: int | None = None, *, strategy: Strategy | None = None
    ) -> list[HistoryMessage]:
        """The newest messages of an own session as a model is given them, within a budget of tokens."""
        return (await self.get_history(session_id, max_tokens, strategy=strategy)).history

    async def get_history(
        self, session_id: UUID, max_tokens: int | None = None, *, strategy: Strategy | None = None
    ) -> SessionHistory:
        """What a model would be told of an own session by now: the messages and the summary."""
        chosen, budget = strategy or self._settings.strategy, self._budget(max_tokens)
        found = await self._value("conversation", *self._owner, session_id, budget, chosen)
        if found is None:
            raise _not_found(session_id)
        return fit_history(session_id, found, budget, chosen)

    async def expand_history(
        self, session_id: UUID, history: Sequence[HistoryMessage], max_tokens: int | None = None
    ) -> list[HistoryMessage]:
        """The same history with its shortened messages whole again, the newest first, as far as the budget goes.

        For agents that cannot look them up. One that would exceed the budget stays short; older ones may still fit.
        """
        left = self._budget(max_tokens) - sum(line.tokens for line in history)
        short = [line.index for line in history if line.is_truncated]
        if not short or left <= 0:
            return list(history)
        longest = min(left + max(line.tokens for line in history), 2**31 - 1)
        rows = await self._rows("whole", *self._owner, session_id, short, longest)
        return restore_full_texts(history, {index: (content, tokens) for index, content, tokens in rows}, left)

    async def list_sessions(self, limit: int = 10, offset: int = 0) -> list[Session]:
        """The user's sessions, those that were written to last first."""
        rows = await self._rows("sessions", *self._owner, *_checked_page(limit, offset))
        return [Session.from_row(record) for (record,) in rows]

    async def get_titles(self, session_ids: Collection[UUID]) -> dict[UUID, str]:
        """What sessions that the user may read are about: their name or description, else how their owner began."""
        rows = await self._rows("titles", *self._owner, list(session_ids), _TITLE_CHARACTERS)
        return {session_id: " ".join(title.split()) for session_id, title in rows}

    async def rename_session(self, session_id: UUID, name: str | None) -> Session:
        """Give a session another name, which is a key among the user's own; None takes it away."""
        if name is not None:
            try:
                check_label(check_text(name))
            except ValueError as error:
                raise InvalidInputError(f"The name {error}.") from error
        record = await self._value("rename", *self._owner, session_id, name)
        if record is None:
            raise _not_found(session_id)
        return Session.from_row(record)

    async def delete_session(self, session_id: UUID, *, erase: bool = False) -> None:
        """Delete a session with its messages; it can be restored, unless it is erased."""
        session = Session(id=session_id)
        self._require_owner()
        try:
            await retry_when_busy(lambda: self._store.erase(session) if erase else self._store.delete(session))
        except NotFoundError as error:
            raise _not_found(session_id) from error

    async def restore_session(self, session_id: UUID) -> Session:
        """Bring a deleted session back, with the messages that it had."""
        try:
            restored = await self._store.restore(Session, session_id)
        except NotFoundError as error:
            raise NotFoundError(f"There is no deleted session {session_id} of this user.") from error
        # Its messages may have been counted anew.
        record = await self._value("readable_session", *self._owner, session_id, True)
        return restored if record is None else Session.from_row(record)

    async def clear_session(self, session_id: UUID) -> int:
        """Delete the messages of a session, not the session; how many there were."""

        async def work() -> int:
            async with self._store.transaction() as store, store.executor.connection() as connection:
                if await connection.fetchval(query("memory", "reset_totals"), *self._owner, session_id) is None:
                    raise _not_found(session_id)
                done = await connection.execute(query("memory", "clear"), *self._owner, session_id)
                return int(done.rpartition(" ")[2])

        return await retry_when_busy(work)

    async def prune_old_sessions(self, days: int = 30) -> int:
        """Delete the user's sessions that nobody has written to for so many days; how many it were."""
        check_prune_days(days)
        pruned = 0
        while True:
            done = await self._rows("delete_idle", *self._owner, days, _PRUNED_AT_ONCE)
            pruned += len(done)
            if len(done) < _PRUNED_AT_ONCE:
                return pruned

    async def flag_message(self, session_id: UUID, index: int, important: bool = True) -> Message:
        """Let hybrid memory keep a message however long ago it was said, or no longer."""
        record = await self._value("flag", *self._owner, session_id, index, important)
        if record is None:
            raise NotFoundError(f"There is no message {message_key(session_id, index)} of this user.")
        return Message.from_row(record)

    async def clone_session(self, session_id: UUID, *, name: str | None = None, up_to: int | None = None) -> Session:
        """A new session of the user's own with the same messages, or with those up to an index."""
        source = await self._session(session_id)
        metadata = {**source.metadata, "cloned_from": str(source.id)}
        async with self._store.transaction() as store:
            clone = await self.with_store(store).create_session(
                metadata=metadata,
                name=name,
                agent=source.agent_schema,
                description=source.description,
                mode=source.mode,
            )
            last = 2**31 - 1 if up_to is None else up_to
            async with store.executor.connection() as connection:
                await connection.execute(
                    query("memory", "copy_messages"), *self._owner, clone.id, source.user_id, source.id, last
                )
                record = await connection.fetchval(query("memory", "count_messages"), *self._owner, clone.id)
        return Session.from_row(record)

    async def share_session(self, session_id: UUID, with_user: str) -> SharedSession:
        """Let another user of the tenant, by e-mail address or id, read a session; sharing again changes nothing."""
        _, user_id = self._owner
        receiver = resolve_user_id(with_user.strip())
        if not receiver or receiver == user_id:
            raise InvalidInputError("A session is shared with another user: give an e-mail address or an id.")
        session = await self._session(session_id)
        if session.user_id != user_id:
            raise _not_found(session_id)
        shares = await self._store.find(
            SharedSession, {"session_id": session_id, "shared_with_user_id": receiver, "user_id": user_id}
        )
        if shares:
            return shares[0]
        return await self._store.upsert(
            SharedSession(session_id=session_id, owner_user_id=user_id, shared_with_user_id=receiver)
        )

    async def unshare_session(self, session_id: UUID, with_user: str | None = None) -> int:
        """Take back the right to read a session, from one user or from all; from how many it was."""
        receiver = None if with_user is None else resolve_user_id(with_user.strip())
        return len(await self._rows("unshare", *self._owner, session_id, receiver))

    async def list_shared_sessions(self, limit: int = 100, offset: int = 0) -> list[Session]:
        """The sessions of others that the user may read."""
        rows = await self._rows("shared_with", *self._owner, *_checked_page(limit, offset))
        return [Session.from_row(record) for (record,) in rows]

    async def search_similar(
        self, query: str, top_k: int = 5, session_id: UUID | None = None, min_similarity: float | None = None
    ) -> list[Message]:
        """Messages of the user's own sessions, or of one, that fit a text by meaning and by words, best first."""
        self._require_owner()
        least = self._settings.rag.min_similarity if min_similarity is None else min_similarity
        if not 1 <= top_k <= _LARGEST_LIST or not 0 <= least <= 1:
            raise InvalidInputError(f"top_k must be from 1 to {_LARGEST_LIST}, and min_similarity from 0 to 1.")
        where = None if session_id is None else Compare("session_id", "=", session_id)
        request = SearchRequest(query, table="messages", where=where, min_similarity=least, limit=top_k)
        found = await self._searcher.search(self._store, request)
        return [message for hit in found.hits if (message := _readable(hit.record)) is not None]

    async def get_relevant_context(
        self, query: str, max_tokens: int = 2048, session_id: UUID | None = None
    ) -> list[Message]:
        """The messages that fit a text best, within a budget of tokens."""
        return _within(await self.search_similar(query, _MOST_CANDIDATES, session_id), max_tokens)

    async def recall(
        self,
        query: str,
        session_id: UUID | None = None,
        *,
        turn: Turn | None = None,
        within: UUID | None = None,
        top_k: int | None = None,
        min_similarity: float | None = None,
        max_tokens: int | None = None,
    ) -> str | None:
        """The question with what was said before in front of it; None if nothing fits.

        It looks in all of the user's sessions, or `within` one. What the model is given anyway is not repeated: the
        history of the turn, or else the one that the session `session_id` has by now.
        """
        rag = self._settings.rag
        wanted = rag.top_k if top_k is None else top_k
        known = await self._known(session_id, turn)
        found = await self.search_similar(query, wanted + min(len(known), _MOST_KNOWN), within, min_similarity)
        fresh = [message for message in found if (message.session_id, message.message_index) not in known][:wanted]
        context = _within(fresh, rag.max_tokens if max_tokens is None else max_tokens)
        return add_context(query, context) if context else None

    async def refresh_summary(
        self,
        session_id: UUID,
        summarize: Summarizer | None = None,
        *,
        strategy: Strategy | None = None,
        max_tokens: int | None = None,
    ) -> str | None:
        """Bring the stored summary of a session up to date, if enough has left the window; call it after the answer.

        Gives the new summary, or None if there was nothing to do. Without `summarize` the sentences that say most are
        taken.
        """
        if (strategy or self._settings.strategy) == "simple":
            return None
        return await SummaryWriter(self._store).refresh(session_id, summarize, self._budget(max_tokens))

    async def get_summary(self, session_id: UUID) -> str | None:
        """The stored summary of an own session, if it has one."""
        summary: str | None = await self._value("summary", *self._owner, session_id)
        return summary

    async def _session(self, session_id: UUID, *, counted: bool = False) -> Session:
        """A session that the user may read. Counting takes longer the longer it is; else the totals are as stored."""
        record = await self._value("readable_session", *self._owner, session_id, counted)
        if record is None:
            raise _not_found(session_id)
        return Session.from_row(record)

    async def _known(self, session_id: UUID | None, turn: Turn | None) -> set[tuple[UUID, int]]:
        """What the model is given anyway: the history, and the question itself."""
        if turn is not None:
            return {(turn.session_id, index) for index in (turn.message_index, *(line.index for line in turn.history))}
        if session_id is None:
            return set()
        try:
            return {(session_id, line.index) for line in await self.get_recent_messages(session_id)}
        except NotFoundError:
            return set()

    @property
    def _owner(self) -> tuple[str, str]:
        if self.scope.user_id is None:
            raise InvalidInputError("Conversations have an owner: give a user.")
        return self.scope.tenant_id, self.scope.user_id

    def _require_owner(self) -> None:
        _ = self._owner  # raises if there is none

    def _budget(self, max_tokens: int | None) -> int:
        budget = self._settings.max_history_tokens if max_tokens is None else max_tokens
        if not 1 <= budget <= 2_000_000:
            raise InvalidInputError("max_tokens must be from 1 to 2,000,000.")
        return budget

    async def _value(self, name: str, *parameters: Any) -> Any:
        async def work() -> Any:
            async with self._store.executor.connection() as connection:
                return await connection.fetchval(query("memory", name), *parameters)

        return await retry_when_busy(work)

    async def _rows(self, name: str, *parameters: Any) -> Sequence[Any]:
        async def work() -> Sequence[Any]:
            async with self._store.executor.connection() as connection:
                return await connection.fetch(query("memory", name), *parameters)

        return await retry_when_busy(work)


def _refuse(state: str, session_id: UUID) -> None:
    if state in ("foreign", "missing"):
        raise _not_found(session_id)
    if state == "deleted":
        raise DeletedError(
            f"The session {session_id} was deleted, and a deleted memory stays deleted: restore it, or begin another."
        )


def _records(messages: Sequence[NewMessage]) -> tuple[list[dict[str, Any]], int]:
    """The messages as the database takes them, and how many tokens they have together."""
    records = [to_record(message) for message in messages]
    return [record for record, _ in records], sum(tokens for _, tokens in records)


def _name(name: str | None) -> str | None:
    """The name if a session can have it. One that looks like an id would be taken for that of another session."""
    if name is None or parse_uuid(name):
        return None
    try:
        return check_label(check_text(name))
    except ValueError:
        return None


def _exists() -> ConflictError:
    return ConflictError("There is such a session already: choose another name or id.")


def _not_found(session_id: UUID) -> NotFoundError:
    return NotFoundError(f"There is no session {session_id} of this user.")


def _readable(record: dict[str, Any]) -> Message | None:
    """The message of a row; None if the row is corrupt, because the others are still worth reading."""
    try:
        return Message.from_row(record)
    except CorruptRowError as error:
        logger.error("A stored message is left out: {}", error)
        return None


def _object(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if metadata is None:
        return None
    try:
        checked: dict[str, Any] = to_json_value(metadata)
    except ValueError as error:
        raise InvalidInputError(f"The metadata {error}.") from error
    return checked


def _checked_page(limit: int, offset: int) -> tuple[int, int]:
    if not 0 <= limit <= _LARGEST_LIST or not 0 <= offset < 2**31:
        raise InvalidInputError(f"limit must be from 0 to {_LARGEST_LIST:,}, and offset not negative.")
    return limit, offset


def _within(messages: Sequence[Message], max_tokens: int) -> list[Message]:
    chosen = []
    for message in messages:
        max_tokens -= count_message_tokens(message.content, message.tool_calls)
        if max_tokens < 0:
            break
        chosen.append(message)
    return chosen
