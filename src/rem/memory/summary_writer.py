"""Summaries: the stored summary of a session's beginning. Each stretch is read once, by one process at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from loguru import logger

from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.errors import CorruptRowError, InvalidInputError
from rem.memory.extractive_summary import Summarizer, extract_summary, is_important
from rem.memory.history import max_summary_tokens
from rem.memory.tokens import count_tokens, truncate_to_tokens
from rem.models import Message, Role

if TYPE_CHECKING:
    from rem.db.store import Store

_LEASE_SECONDS = 300.0
_STRETCH = 200
"""So many messages are summarised in one call."""
_MOST_STRETCHES = 10
"""So many calls one refresh makes; what is left, as after an import, comes next time."""
_MOST_KEPT = 30


class SummaryWriter:
    """Brings the summaries of one scope's sessions up to date."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def refresh(self, session_id: UUID, summarize: Summarizer | None, budget: int) -> str | None:
        """The new summary, if one was due and nobody else is writing it."""
        claim = await self._value("claim_summary", session_id, budget, _LEASE_SECONDS)
        if claim is None:
            return None
        try:
            return await self._continue(session_id, claim, summarize, max_summary_tokens(budget))
        finally:
            await self._value("release_summary", session_id)

    async def _continue(
        self, session_id: UUID, claim: dict[str, Any], summarize: Summarizer | None, most_tokens: int
    ) -> str | None:
        summary, last, kept = claim["summary"], claim["last_index"], claim["kept"]
        stored = None
        model = _Model(summarize)
        for _ in range(_MOST_STRETCHES):
            rows = await self._rows("to_summarise", session_id, last, claim["until"], _STRETCH)
            is_last = len(rows) < _STRETCH
            until = claim["until"] if is_last else rows[-1][0]["message_index"]
            messages = [message for (record,) in rows if (message := _readable(record)) is not None]
            if messages:
                summary = await model.summary(summary, messages, most_tokens)
            kept = [*kept, *_worth_keeping(messages)][-_MOST_KEPT:]
            facts = (last, until, summary or "", count_tokens(summary or ""), kept, len(rows), not is_last)
            if await self._value("store_summary", session_id, *facts, _LEASE_SECONDS) is None:
                logger.debug("The messages of session {} have changed: its summary is made anew", session_id)
                return stored
            last, stored = until, summary
            if is_last:
                break
        return stored

    @property
    def _owner(self) -> tuple[str, str]:
        scope = self._store.scope
        if scope.user_id is None:
            raise InvalidInputError("Conversations have an owner: give a user.")
        return scope.tenant_id, scope.user_id

    async def _value(self, name: str, *parameters: Any) -> Any:
        async def work() -> Any:
            async with self._store.executor.connection() as connection:
                return await connection.fetchval(query("memory", name), *self._owner, *parameters)

        return await retry_when_busy(work)

    async def _rows(self, name: str, *parameters: Any) -> Any:
        async def work() -> Any:
            async with self._store.executor.connection() as connection:
                return await connection.fetch(query("memory", name), *self._owner, *parameters)

        return await retry_when_busy(work)


class _Model:
    """Summarises by a language model, if there is one; from its first failure on by extraction, which cannot fail."""

    def __init__(self, summarize: Summarizer | None) -> None:
        self._summarize = summarize

    async def summary(self, previous: str | None, messages: list[Message], most_tokens: int) -> str:
        """One summary of the one so far and of what was said since."""
        if self._summarize is not None:
            try:
                text = (await self._summarize(previous, messages)).replace("\0", "\ufffd").strip()
            except Exception as error:  # noqa: BLE001  # whatever a provider's library raises
                text, reason = "", str(error) or type(error).__name__
            else:
                reason = "it said nothing"
            if text:
                return truncate_to_tokens(text, most_tokens)
            logger.warning("The summarizer failed, the sentences that say most are taken instead: {}", reason)
            self._summarize = None
        # It reads every word, and the others shall not wait for it.
        return await asyncio.to_thread(extract_summary, previous, messages, most_tokens)


def _readable(record: dict[str, Any]) -> Message | None:
    try:
        return Message.from_row(record)
    except CorruptRowError as error:
        logger.error("A stored message is left out of the summary: {}", error)
        return None


def _worth_keeping(messages: list[Message]) -> list[int]:
    return [
        message.message_index
        for message in messages
        if message.role in (Role.USER, Role.ASSISTANT) and is_important(message.content)
    ]
