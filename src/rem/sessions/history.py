"""Select the messages of a session that a model is given, within a token budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from uuid import UUID

from loguru import logger

from rem.models.message import Role
from rem.sessions.message import HistoryMessage, message_key
from rem.sessions.tokens import (
    MESSAGE_OVERHEAD_TOKENS,
    count_message_tokens,
    count_tokens,
    count_tokens_cached,
    truncate_to_tokens,
)

Strategy: TypeAlias = Literal["simple", "summarization", "hybrid"]
"""`simple`: the newest turns. `summarization`: also a summary of the rest. `hybrid`: also important old messages."""
SHOWN_CHARS = 200
"""Characters of a long answer that are shown at its beginning and at its end."""
SUMMARY_SHARE = 4
"""The summary uses at most a fourth of the budget, so that most of it is left for messages."""
KEPT_SHARE = 4
"""Important old messages use at most a fourth of the rest."""
OMISSION_NOTE = "Earlier messages are left out; those that matter most are kept."


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """The history of a session: messages, oldest first, and a summary of the omitted ones."""

    messages: list[HistoryMessage]
    summary: str | None = None
    system_prompt: str | None = None
    """The system prompt of the session."""


def max_summary_tokens(budget: int) -> int:
    """Return the maximum length of a summary for a token budget."""
    return budget // SUMMARY_SHARE


def fit_history(
    session_id: UUID, selection: dict[str, Any] | None, budget: int, strategy: Strategy = "simple"
) -> SessionHistory:
    """Return the history that fits the token budget.

    `selection` is the JSON of the SQL function `rem_session_history`, or None for a new session. The database estimates
    tokens; this function counts them.
    """
    if selection is None:
        return SessionHistory([])
    recent = _parse_messages(session_id, reversed(selection["history"]))
    kept_before = sorted(_parse_messages(session_id, selection["kept"]), key=lambda message: message.index)
    summary: str | None = selection["summary"]
    if summary is not None:
        summary, summary_tokens = _fit_summary(summary, max_summary_tokens(budget))
        budget -= summary_tokens
    kept: list[HistoryMessage] = []
    if strategy == "hybrid" and (kept_before or _sum_tokens(recent) > budget):
        kept_budget = budget // KEPT_SHARE
        window = _newest_turns(recent, budget - kept_budget)
        window_start = window[0].index if window else 0
        important = [
            message
            for message in recent
            if message.is_important and message.index < window_start and message.role != Role.TOOL
        ]
        kept = _newest_within(kept_before + important, kept_budget)
    else:
        window = _newest_turns(recent, budget)
    if kept and not kept[0].begins_turn:
        summary = summary or OMISSION_NOTE
    is_complete = bool(window) and window[0].index == 0
    return SessionHistory(kept + window, None if is_complete else summary, selection.get("system_prompt"))


def restore_full_texts(
    history: Sequence[HistoryMessage], full_texts: Mapping[int, tuple[str, int | None]], remaining_tokens: int
) -> list[HistoryMessage]:
    """Return the history with the full texts of shortened messages, newest first, while `remaining_tokens` last.

    `full_texts` maps a message index to its content and its token count, which is None if it is not known.
    """
    messages = list(history)
    for position in reversed(range(len(messages))):
        message = messages[position]
        if not message.is_truncated or message.index not in full_texts:
            continue
        content, content_tokens = full_texts[message.index]
        if content_tokens is None:
            content_tokens = count_message_tokens(content, message.tool_calls)
        tokens = MESSAGE_OVERHEAD_TOKENS + content_tokens
        if tokens - message.tokens <= remaining_tokens:
            remaining_tokens -= tokens - message.tokens
            messages[position] = replace(message, content=content, tokens=tokens, is_truncated=False)
    return messages


@lru_cache(maxsize=1000)
def _fit_summary(summary: str, max_tokens: int) -> tuple[str, int]:
    """Truncate a summary, and return it with its token count. Cached, because every turn of a session needs it."""
    truncated = truncate_to_tokens(summary, max_tokens)
    return truncated, count_tokens(truncated)


def _sum_tokens(messages: Iterable[HistoryMessage]) -> int:
    return sum(message.tokens for message in messages)


def _parse_messages(session_id: UUID, rows: Iterable[Sequence[Any]]) -> list[HistoryMessage]:
    """Parse rows of the SQL function `rem_history_message`. An invalid row is logged and skipped, so chat can go on."""
    messages = []
    for row in rows:
        try:
            messages.append(_parse_message(session_id, row))
        except (TypeError, ValueError) as error:
            logger.error("The stored message {} is skipped: {}", message_key(session_id, row[0]), error)
    return messages


def _shorten(session_id: UUID, index: int, content: str) -> str:
    """Return a long answer as the database shortens it (`rem_history_message`). It cannot shorten encrypted texts."""
    hint = f"... [Message truncated - REM LOOKUP {message_key(session_id, index)} to recover full content] ..."
    return f"{content[:SHOWN_CHARS]}\n\n{hint}\n\n{content[-SHOWN_CHARS:]}"


def _parse_message(session_id: UUID, row: Sequence[Any]) -> HistoryMessage:
    index, role, content, tool_name, call_id, tool_calls, arguments, is_truncated, tokens, is_important, row_id = row
    if role == Role.ASSISTANT and not is_truncated and len(content) > 2 * SHOWN_CHARS:
        content, is_truncated, tokens = _shorten(session_id, index, content), True, None
    calls = tool_calls or []
    if not all(isinstance(call, dict) for call in calls):
        raise ValueError("its tool_calls are not a list of objects")
    if arguments is None and calls:
        arguments = calls[0].get("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        raise ValueError("the arguments of its tool call are not an object")
    if tokens is None:
        tokens = count_message_tokens(content, calls) if calls else count_tokens_cached(row_id, content)
    return HistoryMessage(
        index,
        Role(role),
        content,
        tool_name,
        call_id,
        calls,
        arguments,
        is_truncated,
        tokens + MESSAGE_OVERHEAD_TOKENS,
        is_important,
    )


def _newest_turns(messages: Sequence[HistoryMessage], budget: int) -> list[HistoryMessage]:
    """Return the newest whole turns that fit. If the newest alone is too long, return its start and newest messages."""
    turn_starts = [position for position, message in enumerate(messages) if message.begins_turn]
    if not turn_starts:
        return []
    tokens_to_end = _tokens_to_end(messages)
    first_fitting = next((start for start in turn_starts if tokens_to_end[start] <= budget), None)
    if first_fitting is not None:
        return list(messages[first_fitting:])
    question = messages[turn_starts[-1]]
    rest = messages[turn_starts[-1] + 1 :]
    return [question, *_newest_within(rest, budget - question.tokens, min_messages=1)]


def _tokens_to_end(messages: Sequence[HistoryMessage]) -> list[int]:
    """Return for each position the tokens from there to the end."""
    sums, total = [], 0
    for message in reversed(messages):
        total += message.tokens
        sums.append(total)
    return sums[::-1]


def _newest_within(messages: Sequence[HistoryMessage], budget: int, min_messages: int = 0) -> list[HistoryMessage]:
    """Return the newest messages that fit, and at least `min_messages`, in their order."""
    chosen: list[HistoryMessage] = []
    for message in reversed(messages):
        budget -= message.tokens
        if budget < 0 and len(chosen) >= min_messages:
            break
        chosen.append(message)
    return chosen[::-1]
