"""Recall: find earlier messages that fit a question, and put them in front of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rem.db.conditions import Compare
from rem.errors import InvalidInputError
from rem.models import Message
from rem.query.tree import Filter, Search
from rem.sessions.queries import parse_message
from rem.sessions.tokens import count_message_tokens

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.verbs.search import Searcher
    from rem.settings import RagSettings

MAX_QUOTE_CHARS = 200
"""Enough to recognise the message; the model can look up the rest."""
MAX_RESULTS = 10_000
STRICT_OVERFETCH = 4
"""With a strict threshold this many times more messages are ranked, because some of the best are dropped."""
MAX_EXTRA_RESULTS = 60
"""Known messages are dropped from the results, so this many more are searched for at most."""


class Recall:
    """Searches the messages of one user's own sessions."""

    def __init__(self, store: Store, searcher: Searcher, settings: RagSettings) -> None:
        self._store = store
        self._searcher = searcher
        self._settings = settings

    async def search(
        self,
        query: str,
        top_k: int,
        session_id: UUID | None = None,
        min_similarity: float | None = None,
    ) -> list[Message]:
        """Return up to `top_k` messages that fit `query` by meaning and by words, best first.

        It searches one session, or all sessions of the user. With `min_similarity`, given here or in the settings, no
        message is less similar. Without one, a message that has the words of `query` may be.
        """
        is_strict = min_similarity is not None or "min_similarity" in self._settings.model_fields_set
        min_similarity = self._settings.min_similarity if min_similarity is None else min_similarity
        if not 1 <= top_k <= MAX_RESULTS or not 0 <= min_similarity <= 1:
            raise InvalidInputError(f"top_k must be from 1 to {MAX_RESULTS}, and min_similarity from 0 to 1.")
        where = None
        if session_id is not None:
            where = Filter(f"session_id = '{session_id}'", Compare("session_id", "=", session_id))
        limit = min(top_k * STRICT_OVERFETCH, MAX_RESULTS) if is_strict else top_k
        search = Search(query, table="messages", where=where, min_similarity=min_similarity, limit=limit)
        result = await self._searcher.search(self._store, search)
        hits = [hit for hit in result.hits if not is_strict or _is_similar(hit.similarity, min_similarity)]
        return [message for hit in hits[:top_k] if (message := parse_message(hit.record)) is not None]

    async def extend_question(
        self,
        question: str,
        known: Collection[tuple[UUID, int]],
        *,
        session_id: UUID | None = None,
        top_k: int | None = None,
        min_similarity: float | None = None,
        max_tokens: int | None = None,
    ) -> str | None:
        """Return the question with earlier messages in front of it, or None if no message fits.

        Messages in `known`, given as (session id, message index), are left out: the model sees them anyway.
        """
        top_k = self._settings.top_k if top_k is None else top_k
        max_tokens = self._settings.max_tokens if max_tokens is None else max_tokens
        max_results = top_k + min(len(known), MAX_EXTRA_RESULTS)
        messages = await self.search(question, max_results, session_id, min_similarity)
        new_messages = [message for message in messages if (message.session_id, message.message_index) not in known]
        context = fit_messages(new_messages[:top_k], max_tokens)
        return add_context(question, context) if context else None


def _is_similar(similarity: float | None, min_similarity: float) -> bool:
    """Return whether a hit is similar enough. Without an embedder there is no similarity, and words must do."""
    return similarity is None or similarity >= min_similarity


def fit_messages(messages: Sequence[Message], max_tokens: int) -> list[Message]:
    """Return the first messages that fit a token budget together."""
    fitting = []
    for message in messages:
        max_tokens -= count_message_tokens(message.content, message.tool_calls)
        if max_tokens < 0:
            break
        fitting.append(message)
    return fitting


def add_context(user_message: str, context: Sequence[Message]) -> str:
    """Return the prompt for a question with earlier messages in front of it."""
    lines = ["RELEVANT CONTEXT FROM PAST CONVERSATIONS:", "---"]
    for message in context:
        quote = message.content[:MAX_QUOTE_CHARS] + ("..." if len(message.content) > MAX_QUOTE_CHARS else "")
        lines.append(f"[{message.role.value.upper()}]: {quote} ({message.created_at:%-d %B %Y})")
    lines += [
        "---",
        "",
        "Now answer the current user question using the context above if relevant.",
        "",
        f"USER QUESTION: {user_message}",
    ]
    return "\n".join(lines)
