"""SessionReader: read the sessions that one user may see, and select the history for a model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from rem.context import parse_uuid, refuse_unstorable
from rem.errors import InvalidInputError, NotFoundError
from rem.models import Message, Session
from rem.sessions.card_answers import parse_card
from rem.sessions.history import SessionHistory, Strategy, fit_history, restore_full_texts
from rem.sessions.message import HistoryMessage
from rem.sessions.queries import SessionQueries, parse_messages
from rem.text import collapse_spaces

if TYPE_CHECKING:
    from datetime import datetime

    from rem.context import Scope
    from rem.db.store import Store
    from rem.events import ActionCard
    from rem.settings import MemorySettings

PAGE_ROWS = 500
MAX_TITLE_CHARS = 80
MAX_LIST_ROWS = 10_000
MAX_NAME_CHARS = 4096
"""No session name is longer, so a longer text is not looked up as a name."""
MAX_BUDGET_TOKENS = 2_000_000
MAX_POSTGRES_INTEGER = 2**31 - 1


class MessagePage(NamedTuple):
    """Messages of a session in order, and whether there are more in the direction of reading."""

    messages: list[Message]
    has_more: bool


class SessionReader:
    """Reads the sessions of one scope. A session of another user that is not shared raises `NotFoundError`."""

    def __init__(self, store: Store, settings: MemorySettings) -> None:
        self._store = store
        self._settings = settings
        self._queries = SessionQueries(store)

    @property
    def scope(self) -> Scope:
        """The owner of the sessions."""
        return self._store.scope

    @property
    def settings(self) -> MemorySettings:
        """The defaults for the strategy, the token budget and recall."""
        return self._settings

    @property
    def store(self) -> Store:
        """The store of the same scope, for its other entities."""
        return self._store

    async def resolve_session_id(self, text: str) -> UUID:
        """Return the session id that a client means by `text`.

        A UUID is the id itself. Otherwise `text` is the name of a session of the user. If no session has that name, the
        id follows from the text and the secret of the database, so the same text always gives the same id, and no other
        user can compute it. An id that another user's session has is never returned for a name. Without a user, the
        caller is anonymous, and owns the session of that name.
        """
        if (given := parse_uuid(text)) is not None:
            return given
        refuse_unstorable("session id", text)
        tenant_id, user_id = self.scope.tenant_id, self.scope.user_id
        candidates = self._store.executor.derived_ids.list_candidates("session", tenant_id, user_id, text)
        name = text if len(text) <= MAX_NAME_CHARS else None
        session_id: UUID | None = await self._queries.fetch_value("resolve_name", tenant_id, user_id, name, candidates)
        return session_id or uuid4()

    async def get_session(self, session_id: UUID) -> Session:
        """Return a session that the user owns or that is shared with the user, with the totals of its messages."""
        return await self._load_session(session_id, with_totals=True)

    async def iter_messages(self, session_id: UUID) -> AsyncIterator[Message]:
        """Yield the messages of a readable session in order. They are fetched in pages."""
        session = await self._load_session(session_id)
        last_index = -1
        while True:
            owner = (session.tenant_id, session.user_id)
            rows = await self._queries.fetch_rows("messages_after", *owner, session_id, last_index, PAGE_ROWS)
            for message in parse_messages(rows):
                yield message
            if not rows or rows[0]["found"] == len(rows) < PAGE_ROWS:
                return
            last_index = rows[-1]["record"]["message_index"]

    async def get_messages(self, session_id: UUID, *, after: int = -1, limit: int = 100) -> list[Message]:
        """Return up to `limit` messages of a readable session whose index is greater than `after`, in order.

        There are fewer, but at least one, if they have more than 64 MiB together.
        """
        return (await self.get_message_page(session_id, after=after, limit=limit)).messages

    async def get_message_page(
        self, session_id: UUID, *, after: int = -1, before: int | None = None, limit: int = 100
    ) -> MessagePage:
        """Return up to `limit` messages after an index, or the last ones before an index, as `get_messages` does."""
        session = await self._load_session(session_id)
        limit = max(0, min(limit, MAX_LIST_ROWS))
        name, index = ("messages_after", after) if before is None else ("messages_before", before)
        # One row more tells whether there are more messages.
        owner = (session.tenant_id, session.user_id)
        rows = await self._queries.fetch_rows(name, *owner, session_id, index, limit + 1)
        page = rows[:limit] if before is None else rows[max(0, len(rows) - limit) :]
        return MessagePage(parse_messages(page), has_more=bool(rows) and rows[0]["found"] > len(page))

    async def get_recent_messages(
        self, session_id: UUID, max_tokens: int | None = None, *, strategy: Strategy | None = None
    ) -> list[HistoryMessage]:
        """Return the history of an own session without its summary, oldest message first."""
        return (await self.get_history(session_id, max_tokens, strategy=strategy)).messages

    async def get_history(
        self, session_id: UUID, max_tokens: int | None = None, *, strategy: Strategy | None = None
    ) -> SessionHistory:
        """Return the history that a model would get for the next turn of an own session.

        `max_tokens` and `strategy` default to the settings.
        """
        strategy, budget = strategy or self._settings.strategy, self._check_budget(max_tokens)
        selection = await self._queries.fetch_value("session_history", *self._owner, session_id, budget, strategy)
        if selection is None:
            raise session_not_found(session_id)
        return fit_history(session_id, selection, budget, strategy)

    async def expand_history(
        self, session_id: UUID, history: Sequence[HistoryMessage], max_tokens: int | None = None
    ) -> list[HistoryMessage]:
        """Return the history with the full texts of its shortened messages, as far as the budget allows.

        The newest messages are expanded first. A message that would exceed the budget stays short, and an older one may
        still fit. This is for agents that have no tool to look up the full text.
        """
        remaining_tokens = self._check_budget(max_tokens) - sum(message.tokens for message in history)
        truncated = [message.index for message in history if message.is_truncated]
        if not truncated or remaining_tokens <= 0:
            return list(history)
        max_message_tokens = min(remaining_tokens + max(message.tokens for message in history), MAX_POSTGRES_INTEGER)
        rows = await self._queries.fetch_rows("full_texts", *self._owner, session_id, truncated, max_message_tokens)
        full_texts = {index: (content, tokens) for index, content, tokens, _ in rows}
        return restore_full_texts(history, full_texts, remaining_tokens)

    async def find_card(self, session_id: UUID, card_id: str) -> tuple[ActionCard, datetime, bool] | None:
        """Return a card that an agent showed in an own session, its time, and whether it was answered; or None."""
        rows = await self._queries.fetch_rows("find_card", *self._owner, session_id, card_id)
        card = parse_card(rows[0]["cards"], card_id) if rows else None
        return None if card is None else (card, rows[0]["created_at"], rows[0]["is_answered"])

    async def list_sessions(
        self, limit: int = 10, offset: int = 0, *, text: str | None = None, session_ids: Sequence[UUID] = ()
    ) -> list[Session]:
        """Return the user's own sessions with their totals, the most recently written first.

        With `text`: only those whose name or description has it, and those of `session_ids`.
        """
        page = _check_page(limit, offset)
        rows = await self._queries.fetch_rows("own_sessions", *self._owner, *page, text, list(session_ids))
        return [Session.from_row(record) for (record,) in rows]

    async def list_shared_sessions(self, limit: int = 100, offset: int = 0) -> list[Session]:
        """Return the sessions of other users that are shared with this user, the most recently shared first."""
        rows = await self._queries.fetch_rows("shared_sessions", *self._owner, *_check_page(limit, offset))
        return [Session.from_row(record) for (record,) in rows]

    async def get_titles(self, session_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the title of each readable session: its name, its description, or the start of its first message."""
        rows = await self._queries.fetch_rows("titles", *self._owner, list(session_ids), MAX_TITLE_CHARS)
        return {
            session_id: collapse_spaces(title if message_id is None else title[:MAX_TITLE_CHARS])
            for session_id, title, message_id in rows
        }

    async def get_summary(self, session_id: UUID) -> str | None:
        """Return the stored summary of an own session, or None if it has none."""
        summary: str | None = await self._queries.fetch_value("summary", *self._owner, session_id)
        return summary

    async def _load_session(self, session_id: UUID, *, with_totals: bool = False) -> Session:
        """Return a readable session. Its totals are as stored, or counted (slower for long sessions) `with_totals`."""
        record = await self._queries.fetch_value("readable_session", *self._owner, session_id, with_totals)
        if record is None:
            raise session_not_found(session_id)
        return Session.from_row(record)

    @property
    def _owner(self) -> tuple[str, str]:
        return self._queries.owner

    def _check_budget(self, max_tokens: int | None) -> int:
        budget = self._settings.max_history_tokens if max_tokens is None else max_tokens
        if not 1 <= budget <= MAX_BUDGET_TOKENS:
            raise InvalidInputError(f"max_tokens must be from 1 to {MAX_BUDGET_TOKENS:,}.")
        return budget


def session_not_found(session_id: UUID) -> NotFoundError:
    """Return the error for a session that does not exist or that the user may not see."""
    return NotFoundError(f"There is no session {session_id} of this user.")


def _check_page(limit: int, offset: int) -> tuple[int, int]:
    if not 0 <= limit <= MAX_LIST_ROWS or not 0 <= offset <= MAX_POSTGRES_INTEGER:
        raise InvalidInputError(f"limit must be from 0 to {MAX_LIST_ROWS:,}, and offset not negative.")
    return limit, offset
