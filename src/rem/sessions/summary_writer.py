"""SummaryWriter: keep the stored summary of a session up to date. One process at a time summarizes a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from loguru import logger

from rem.encryption.sealed_values import Place
from rem.models import Message, Role
from rem.sessions.extractive_summary import Summarizer, extract_summary, is_important
from rem.sessions.history import max_summary_tokens
from rem.sessions.queries import SessionQueries, parse_messages
from rem.sessions.tokens import count_tokens, truncate_to_tokens
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.db.store import Store

PART_CHARS = 2000
GAP = "\n...\n"
"""Stands for the middle of a long text, of which PART_CHARS at both ends are summarized."""
LEASE_SECONDS = 300.0
"""Time for one call of the summarizer. After that, another process may claim the summary."""
BATCH_MESSAGES = 200
"""Number of messages in one call of the summarizer."""
MAX_BATCHES = 10
"""A refresh stops after this many calls. The rest, as after an import, follows at the next refresh."""
MAX_KEPT_MESSAGES = 30
"""Number of important messages that the hybrid strategy can keep; the newest win."""


class SummaryWriter:
    """Updates the summaries of one scope's sessions."""

    def __init__(self, store: Store) -> None:
        self._queries = SessionQueries(store)
        self._sealer = store.executor.sealer

    async def refresh(self, session_id: UUID, summarizer: Summarizer | None, budget: int) -> str | None:
        """Update the summary and return it. Return None if it is not due, or if another process is writing it."""
        owner = self._queries.owner
        claim = await self._queries.fetch_value("claim_summary", *owner, session_id, budget, LEASE_SECONDS)
        if claim is None:
            return None
        try:
            return await self._summarize(session_id, claim, summarizer, max_summary_tokens(budget))
        finally:
            await self._queries.fetch_value("release_summary", *owner, session_id)

    async def _summarize(
        self, session_id: UUID, claim: dict[str, Any], summarizer: Summarizer | None, max_tokens: int
    ) -> str | None:
        """Summarize the claimed messages in batches, and store the summary after each batch."""
        owner = self._queries.owner
        summary, last_index, kept, until = claim["summary"], claim["last_index"], claim["kept"], claim["until"]
        stored_summary = None
        safe_summarizer = _FallbackSummarizer(summarizer)
        for _ in range(MAX_BATCHES):
            rows = await self._queries.fetch_rows(
                "messages_to_summarize", *owner, session_id, last_index, until, BATCH_MESSAGES
            )
            is_last_batch = len(rows) < BATCH_MESSAGES
            batch_end = until if is_last_batch else rows[-1][0]["message_index"]
            messages = [_cut(message) for message in parse_messages(rows)]
            if messages:
                summary = await safe_summarizer.summarize(summary, messages, max_tokens)
            kept = [*kept, *_important_indexes(messages)][-MAX_KEPT_MESSAGES:]
            is_stored = await self._queries.fetch_value(
                "store_summary",
                *owner,
                session_id,
                last_index,
                batch_end,
                self._seal(session_id, summary or ""),
                count_tokens(summary or ""),
                kept,
                len(rows),
                not is_last_batch,
                LEASE_SECONDS,
            )
            if is_stored is None:
                logger.debug("The messages of session {} have changed: its summary will be written again", session_id)
                return stored_summary
            last_index, stored_summary = batch_end, summary
            if is_last_batch:
                break
        return stored_summary

    def _seal(self, session_id: UUID, summary: str) -> str:
        if self._sealer is None:
            return summary
        return self._sealer.seal(summary, Place(self._queries.owner[0], session_id, "summary"))


class _FallbackSummarizer:
    """Summarizes with a language model. After its first failure, or without a model, it extracts sentences instead."""

    def __init__(self, summarizer: Summarizer | None) -> None:
        self._summarizer = summarizer

    async def summarize(self, previous: str | None, messages: list[Message], max_tokens: int) -> str:
        """Return one summary of the previous summary and the messages after it."""
        if self._summarizer is not None:
            try:
                text = clean_text(await self._summarizer(previous, messages)).strip()
            except Exception as error:  # noqa: BLE001  # providers' libraries raise anything
                text, reason = "", str(error) or type(error).__name__
            else:
                reason = "the summary is empty"
            if text:
                return truncate_to_tokens(text, max_tokens)
            logger.warning("The summarizer failed, so sentences are extracted instead: {}", reason)
            self._summarizer = None
        # In a thread: it reads every word, and the event loop must not wait.
        return await asyncio.to_thread(extract_summary, previous, messages, max_tokens)


def _cut(message: Message) -> Message:
    """Return a message without the middle of a long text. The database does this, except for encrypted texts."""
    if len(message.content) <= 2 * PART_CHARS + len(GAP):
        return message
    content = f"{message.content[:PART_CHARS]}{GAP}{message.content[-PART_CHARS:]}"
    return message.model_copy(update={"content": content})


def _important_indexes(messages: list[Message]) -> list[int]:
    return [
        message.message_index
        for message in messages
        if message.role in (Role.USER, Role.ASSISTANT) and is_important(message.content)
    ]
