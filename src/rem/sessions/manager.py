"""MemoryManager: store and read one user's sessions. Agents, the API and the command line all use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from rem.context import resolve_user_id
from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.errors import ConflictError, DeletedError, InvalidInputError, NotFoundError, PrivacyError, SessionNameError
from rem.fair_map import run_fairly
from rem.models import Message, Session, SharedSession
from rem.models.field_types import check_label, check_text, to_json_value
from rem.models.message import Role
from rem.models.session import MAX_PROMPT_CHARS, check_session_name
from rem.sessions.history import Strategy, fit_history
from rem.sessions.message import NewMessage, StoredMessage, Turn, message_key, seal_message, to_record
from rem.sessions.prune import check_prune_days
from rem.sessions.recall import Recall, fit_messages
from rem.sessions.session_reader import MAX_POSTGRES_INTEGER, SessionReader, session_not_found
from rem.sessions.summary_writer import SummaryWriter

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store
    from rem.encryption.sealed_values import Sealer
    from rem.privacy.policy import PrivacyPolicy
    from rem.query.verbs.search import Searcher
    from rem.sessions.extractive_summary import Summarizer
    from rem.settings import MemorySettings

PRUNE_BATCH_SESSIONS = 100
MAX_CONTEXT_CANDIDATES = 20
MAX_SEARCHED_MESSAGES = 100
"""The best messages for a text, whose sessions are found by it."""


class MemoryManager(SessionReader):
    """The sessions of one scope. A session of another user behaves as if it did not exist, unless it is shared."""

    def __init__(self, store: Store, searcher: Searcher, settings: MemorySettings) -> None:
        super().__init__(store, settings)
        self._searcher = searcher
        self._recall = Recall(store, searcher, settings.rag)

    def with_store(self, store: Store) -> MemoryManager:
        """Return a manager of the same sessions on another store, such as that of a transaction or a snapshot."""
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
        """Store a user message and return the history before it, in one database round trip.

        If the session does not exist, it is created with the agent, the metadata and the name. A name that another
        session has, or that is not valid, is ignored. Raises `NotFoundError` if the session belongs to another user,
        and `DeletedError` if it was deleted.
        """
        strategy, budget = strategy or self._settings.strategy, self._check_budget(max_tokens)
        (record,), tokens = await self._to_records([message])
        masked = await run_fairly(len(message.content), lambda: self._privacy.list_masked([message.content]))
        state, index, selection = await self._queries.fetch_value(
            "begin_turn",
            *self._owner,
            session_id,
            agent,
            self._check_metadata(metadata),
            [record],
            tokens,
            budget,
            strategy,
            self._valid_name(name),
        )
        _require_open(state, session_id)
        history = fit_history(session_id, selection, budget, strategy)
        return Turn(
            session_id,
            record["id"],
            index,
            history.messages,
            history.summary,
            is_new=state == "new",
            system_prompt=history.system_prompt,
            masked=tuple(masked),
        )

    async def continue_turn(self, session_id: UUID) -> Turn:
        """Return the last turn of an own session again, with the history before its user message.

        Raises `NotFoundError` if there is no such session, or no user message in its history.
        """
        history = await self.get_history(session_id)
        places = [place for place, message in enumerate(history.messages) if message.role is Role.USER]
        if not places:
            raise NotFoundError(f"The session {session_id} has no message of a user to go on with.")
        index = history.messages[places[-1]].index
        (message,) = await self.get_messages(session_id, after=index - 1, limit=1)
        return Turn(
            session_id,
            message.id,
            index,
            history.messages[: places[-1]],
            history.summary,
            is_new=False,
            system_prompt=history.system_prompt,
        )

    async def append(
        self,
        session_id: UUID,
        messages: Sequence[NewMessage],
        *,
        agent: str | None = None,
        create_session: bool = False,
    ) -> list[StoredMessage]:
        """Store messages at the end of a session, all or none, in one database round trip.

        Without `create_session`, a missing session raises `NotFoundError`: an answer must not bring back a session that
        was erased in the meantime.
        """
        if not messages:
            return []
        records, tokens = await self._to_records(messages)
        state, first_index = await self._queries.fetch_value(
            "append", *self._owner, session_id, agent, records, len(records), tokens, create_session
        )
        _require_open(state, session_id)
        return [
            StoredMessage(record["id"], session_id, index) for index, record in enumerate(records, start=first_index)
        ]

    async def save_message(
        self, session_id: UUID, message: NewMessage, *, create_session: bool = True
    ) -> StoredMessage:
        """Store one message at the end of a session. If the session does not exist, it is created."""
        return (await self.append(session_id, [message], create_session=create_session))[0]

    async def load_session(self, session_id: UUID, *, create_session: bool = True) -> list[Message]:
        """Return all messages of a readable session in order, exactly as they were stored.

        If the session does not exist, it is created, and there are no messages. Raises `NotFoundError` if it belongs to
        another user and is not shared, or if it was deleted.
        """
        try:
            return [message async for message in self.iter_messages(session_id)]
        except NotFoundError:
            if not create_session or not await self._create_empty_session(session_id):
                raise
        return []

    async def seed_session(
        self, session_id: UUID, messages: Sequence[NewMessage], *, agent: str | None = None, name: str | None = None
    ) -> bool:
        """Create a session with the messages that a client sent along, unless it exists. Return True if it was created.

        Of several concurrent calls, one creates the session. `agent` and `name` are used as in `begin_turn`.
        """
        if not messages:
            return False
        records, tokens = await self._to_records(messages)
        state = await self._queries.fetch_value(
            "seed_session", *self._owner, session_id, agent, self._valid_name(name), records, len(records), tokens
        )
        _require_open(state, session_id)
        return bool(state == "new")

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
        """Create a session. The system prompt, if given, is used in all its turns.

        Raises `ConflictError` if the user has a session with this name or id, and `NotFoundError` if the id belongs to
        a session of another user.
        """
        _, user_id = self._owner
        optional_fields = {
            "name": name,
            "agent_schema": agent,
            "description": description,
            "system_prompt": self._check_prompt(system_prompt),
        }
        session = Session.model_validate(
            {
                "id": session_id or uuid4(),
                "mode": mode,
                "metadata": self._check_metadata(metadata) or {},
                **{field: value for field, value in optional_fields.items() if value is not None},
            }
        )
        async with self._store.transaction() as store:
            same_id = await store.find(Session, {"id": session.id}, with_deleted=True)
            same_name = [] if name is None else await store.find(Session, {"key": await store.normalize_key(name)})
            if same_id or any(other.user_id == user_id for other in same_name):
                raise _session_exists()
            async with store.executor.connection() as connection:
                if await connection.fetchval(query("sessions/sessions", "is_foreign_id"), *self._owner, session.id):
                    raise session_not_found(session.id)
                await connection.execute(query("sessions/sessions", "release_expired_name"), *self._owner, session.name)
            stored = await store.upsert(session)
            if stored.id != session.id:
                # A concurrent call created a session with the same name.
                raise _session_exists()
        return stored

    async def clone_session(self, session_id: UUID, *, name: str | None = None, up_to: int | None = None) -> Session:
        """Copy a readable session into a new own session. `up_to` is the index of the last message to copy."""
        source = await self._load_session(session_id)
        async with self._store.transaction() as store:
            clone = await self.with_store(store).create_session(
                source.system_prompt,
                metadata={**source.metadata, "cloned_from": str(source.id)},
                name=name,
                agent=source.agent_schema,
                description=source.description,
                mode=source.mode,
            )
            last_index = MAX_POSTGRES_INTEGER if up_to is None else up_to
            async with store.executor.connection() as connection:
                if store.executor.sealer is None:
                    await connection.execute(
                        query("sessions/sessions", "copy_messages"),
                        *self._owner,
                        clone.id,
                        source.user_id,
                        source.id,
                        last_index,
                    )
                else:
                    await self._copy_sealed(connection, store.executor.sealer, clone.id, source, last_index)
                record = await connection.fetchval(query("sessions/sessions", "update_totals"), *self._owner, clone.id)
        return Session.from_row(record)

    async def _copy_sealed(
        self, connection: Connection, sealer: Sealer, clone_id: UUID, source: Session, last_index: int
    ) -> None:
        """Copy messages whose texts are encrypted for their rows: each copy is encrypted for its own row."""
        tenant_id, user_id = self._owner
        statement = query("sessions/sessions", "messages_to_copy")
        rows = await connection.fetch(statement, tenant_id, source.user_id, source.id, last_index)
        copies = [
            seal_message({**record, "id": str(uuid4()), "message_index": index}, sealer, tenant_id)
            for index, (record,) in enumerate(rows)
        ]
        await connection.execute(query("sessions/sessions", "insert_copies"), tenant_id, user_id, clone_id, copies)

    async def rename_session(self, session_id: UUID, name: str | None) -> Session:
        """Rename a session, or remove its name with None. The name must be unique among the user's sessions."""
        if name is not None:
            try:
                check_session_name(check_label(check_text(name)))
            except ValueError as error:
                raise InvalidInputError(f"The name {error}.") from error
            self._privacy.check_label(name)
        record = await self._queries.fetch_value("rename", *self._owner, session_id, name)
        if record is None:
            raise session_not_found(session_id)
        return Session.from_row(record)

    async def set_system_prompt(self, session_id: UUID, system_prompt: str | None) -> Session:
        """Set the system prompt of a session for its further turns, or remove it with None."""
        prompt = self._check_prompt(system_prompt)
        sealer = self._store.executor.sealer
        if prompt is not None and sealer is not None:
            prompt = sealer.seal_text("sessions", "system_prompt", prompt, self._owner[0], session_id)
        record = await self._queries.fetch_value("set_system_prompt", *self._owner, session_id, prompt)
        if record is None:
            raise session_not_found(session_id)
        return Session.from_row(record)

    async def delete_session(self, session_id: UUID, *, erase: bool = False) -> None:
        """Delete a session with its messages. It can be restored, unless `erase` removes it permanently."""
        self._require_owner()
        session = Session(id=session_id)
        try:
            await retry_when_busy(lambda: self._store.erase(session) if erase else self._store.delete(session))
        except NotFoundError as error:
            raise session_not_found(session_id) from error

    async def restore_session(self, session_id: UUID) -> Session:
        """Restore a deleted session with its messages."""
        try:
            restored = await self._store.restore(Session, session_id)
        except NotFoundError as error:
            raise NotFoundError(f"There is no deleted session {session_id} of this user.") from error
        # Read it again: a trigger may have recounted its messages.
        record = await self._queries.fetch_value("readable_session", *self._owner, session_id, True)
        return restored if record is None else Session.from_row(record)

    async def clear_session(self, session_id: UUID, *, from_index: int = 0) -> int:
        """Delete the messages of a session from an index on, but not the session. Return how many they were."""

        async def clear() -> int:
            async with self._store.transaction() as store, store.executor.connection() as connection:
                if (
                    await connection.fetchval(query("sessions/sessions", "reset_totals"), *self._owner, session_id)
                    is None
                ):
                    raise session_not_found(session_id)
                statement = query("sessions/sessions", "delete_messages")
                status = await connection.execute(statement, *self._owner, session_id, from_index)
                await connection.execute(query("sessions/sessions", "update_totals"), *self._owner, session_id)
                return int(status.rpartition(" ")[2])

        return await retry_when_busy(clear)

    async def start_over(self, session_id: UUID) -> int:
        """Leave the stored messages of a session out of what a model is given. Return how many they are.

        They stay in the session and in the memory: a search still finds them.
        """

        async def start() -> int:
            count: int | None = await self._queries.fetch_value("start_over", *self._owner, session_id)
            if count is None:
                raise session_not_found(session_id)
            return count

        return await retry_when_busy(start)

    async def prune_old_sessions(self, days: int = 30) -> int:
        """Delete the user's sessions that nobody has written to for `days` days, and return their number."""
        check_prune_days(days)
        pruned = 0
        while True:
            deleted = await self._queries.fetch_rows("delete_idle", *self._owner, days, PRUNE_BATCH_SESSIONS)
            pruned += len(deleted)
            if len(deleted) < PRUNE_BATCH_SESSIONS:
                return pruned

    async def flag_message(self, session_id: UUID, index: int, important: bool = True) -> Message:
        """Mark a message as important, so that the hybrid strategy always keeps it, or remove the mark."""
        record = await self._queries.fetch_value("flag_message", *self._owner, session_id, index, important)
        if record is None:
            raise NotFoundError(f"There is no message {message_key(session_id, index)} of this user.")
        return Message.from_row(record)

    async def share_session(self, session_id: UUID, with_user: str) -> SharedSession:
        """Let another user of the tenant read an own session. Sharing twice changes nothing.

        `with_user` is an e-mail address or a user id.
        """
        _, user_id = self._owner
        receiver_id = resolve_user_id(with_user.strip())
        if not receiver_id or receiver_id == user_id:
            raise InvalidInputError("A session is shared with another user: give an e-mail address or an id.")
        session = await self._load_session(session_id)
        if session.user_id != user_id:
            raise session_not_found(session_id)
        shares = await self._store.find(
            SharedSession, {"session_id": session_id, "shared_with_user_id": receiver_id, "user_id": user_id}
        )
        if shares:
            return shares[0]
        return await self._store.upsert(
            SharedSession(session_id=session_id, owner_user_id=user_id, shared_with_user_id=receiver_id)
        )

    async def unshare_session(self, session_id: UUID, with_user: str | None = None) -> int:
        """Stop sharing an own session with one user, or with all users. Return the number of removed shares."""
        receiver_id = None if with_user is None else resolve_user_id(with_user.strip())
        return len(await self._queries.fetch_rows("unshare", *self._owner, session_id, receiver_id))

    async def find_sessions(self, text: str, limit: int = 10, offset: int = 0) -> list[Session]:
        """Return the user's own sessions whose name has `text`, or whose messages fit it, as `list_sessions` does."""
        messages = await self.search_similar(text, MAX_SEARCHED_MESSAGES)
        return await self.list_sessions(
            limit, offset, text=text, session_ids=list({message.session_id for message in messages})
        )

    async def search_similar(
        self, query: str, top_k: int = 5, session_id: UUID | None = None, min_similarity: float | None = None
    ) -> list[Message]:
        """Return up to `top_k` messages of the user's own sessions, or of one session, that fit `query`, best first."""
        self._require_owner()
        return await self._recall.search(query, top_k, session_id, min_similarity)

    async def get_relevant_context(
        self, query: str, max_tokens: int = 2048, session_id: UUID | None = None
    ) -> list[Message]:
        """Return the messages that fit `query` best, within a token budget."""
        return fit_messages(await self.search_similar(query, MAX_CONTEXT_CANDIDATES, session_id), max_tokens)

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
        """Return the question with earlier messages in front of it, or None if no message fits.

        It searches all sessions of the user, or only the session `within`. Messages that the model sees anyway are left
        out: the history of `turn`, or the current history of the session `session_id`.
        """
        self._require_owner()
        return await self._recall.extend_question(
            query,
            await self._known_messages(session_id, turn),
            session_id=within,
            top_k=top_k,
            min_similarity=min_similarity,
            max_tokens=max_tokens,
        )

    async def refresh_summary(
        self,
        session_id: UUID,
        summarizer: Summarizer | None = None,
        *,
        strategy: Strategy | None = None,
        max_tokens: int | None = None,
    ) -> str | None:
        """Update the stored summary of a session if it is due, and return it. Return None if there was nothing to do.

        Call this after the answer. Without a `summarizer`, the summary consists of the most informative sentences.
        """
        if (strategy or self._settings.strategy) == "simple":
            return None
        return await SummaryWriter(self._store).refresh(session_id, summarizer, self._check_budget(max_tokens))

    async def _create_empty_session(self, session_id: UUID) -> bool:
        """Create a session without messages. Return False if the id belongs to another user or a deleted session."""
        return await self._queries.fetch_value("open_session", *self._owner, session_id) in ("open", "new")

    async def _known_messages(self, session_id: UUID | None, turn: Turn | None) -> AbstractSet[tuple[UUID, int]]:
        """Return (session id, message index) of the messages that the model sees anyway."""
        if turn is not None:
            # The beginning of a shortened message, which recall would quote, is in the history as well.
            return turn.list_known_messages() | {(turn.session_id, message.index) for message in turn.history}
        if session_id is None:
            return set()
        try:
            return {(session_id, message.index) for message in await self.get_recent_messages(session_id)}
        except NotFoundError:
            return set()

    def _require_owner(self) -> None:
        _ = self._owner  # raises if there is none

    @property
    def _privacy(self) -> PrivacyPolicy:
        return self._store.executor.privacy

    async def _to_records(self, messages: Sequence[NewMessage]) -> tuple[list[dict[str, Any]], int]:
        """Return the messages as the database takes them, and their total number of tokens."""
        sealer, tenant_id = self._store.executor.sealer, self._owner[0]
        records = await run_fairly(
            sum(len(message.content) for message in messages),
            lambda: [to_record(message, self._privacy, sealer, tenant_id) for message in messages],
        )
        return [record for record, _ in records], sum(tokens for _, tokens in records)

    def _valid_name(self, name: str | None) -> str | None:
        """Return the name if a session can have it, else None."""
        if name is None:
            return None
        try:
            return self._privacy.check_label(check_session_name(check_label(check_text(name))))
        except (ValueError, PrivacyError, SessionNameError):
            return None

    def _check_prompt(self, prompt: str | None) -> str | None:
        """Return the system prompt to store; None if it is empty. Raise InvalidInputError if it cannot be stored."""
        if prompt is None or not prompt.strip():
            return None
        if len(prompt) > MAX_PROMPT_CHARS:
            raise InvalidInputError(f"The system prompt has more than {MAX_PROMPT_CHARS:,} characters: shorten it.")
        try:
            return self._privacy.mask(check_text(prompt), "system prompt")
        except ValueError as error:
            raise InvalidInputError(f"The system prompt {error}.") from error

    def _check_metadata(self, metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if metadata is None:
            return None
        try:
            checked: dict[str, Any] = to_json_value(metadata)
        except ValueError as error:
            raise InvalidInputError(f"The metadata {error}.") from error
        masked: dict[str, Any] = self._privacy.mask_value(checked, "metadata")
        return masked


def _require_open(state: str, session_id: UUID) -> None:
    """Raise an error unless the state that the database returned allows the write."""
    if state in ("foreign", "missing"):
        raise session_not_found(session_id)
    if state == "deleted":
        raise DeletedError(f"The session {session_id} was deleted: restore it, or start another session.")


def _session_exists() -> ConflictError:
    return ConflictError("A session with this name or id exists: choose another name or id.")
