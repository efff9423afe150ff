"""History: which of the stored messages a model is given, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from uuid import UUID

from loguru import logger

from rem.memory.message import HistoryMessage, message_key
from rem.memory.tokens import (
    MESSAGE_OVERHEAD_TOKENS,
    count_message_tokens,
    count_tokens,
    count_tokens_cached,
    truncate_to_tokens,
)
from rem.models.message import Role

Strategy: TypeAlias = Literal["simple", "summarization", "hybrid"]
_KEPT_SHARE = 4
_SUMMARY_SHARE = 4
"""At most a fourth of the budget is for the summary, and a fourth for what is kept from before the window."""
_LEFT_OUT = "Earlier messages are left out; those that matter most are kept."


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """What a model is told of a session: messages, oldest first, and a summary of what was left out."""

    history: list[HistoryMessage]
    summary: str | None = None


def max_summary_tokens(budget: int) -> int:
    """How long a summary may be."""
    return budget // _SUMMARY_SHARE


def fit_history(
    session_id: UUID, found: dict[str, Any] | None, budget: int, strategy: Strategy = "simple"
) -> SessionHistory:
    """The conversation that fits into the budget, of what the database found, newest first."""
    if found is None:
        return SessionHistory([])
    lines = _messages(session_id, reversed(found["history"]))
    earlier = sorted(_messages(session_id, found["kept"]), key=lambda line: line.index)
    summary: str | None = found["summary"]
    if summary is not None:
        summary, tokens = _fitting(summary, max_summary_tokens(budget))
        budget -= tokens
    share = budget // _KEPT_SHARE
    if strategy == "hybrid" and (earlier or _tokens(lines) > budget):
        window = _newest_turns(lines, budget - share)
        start = window[0].index if window else 0
        fallen = [line for line in lines if line.is_important and line.index < start and line.role != Role.TOOL]
        kept = _within(earlier + fallen, share)
    else:
        window, kept = _newest_turns(lines, budget), []
    if kept and not kept[0].begins_turn:
        summary = summary or _LEFT_OUT
    is_whole = bool(window) and window[0].index == 0
    return SessionHistory(kept + window, None if is_whole else summary)


def restore_full_texts(
    history: Sequence[HistoryMessage], texts: Mapping[int, tuple[str, int | None]], left: int
) -> list[HistoryMessage]:
    """The history with the whole texts of shortened messages, the newest first, as far as the tokens left go."""
    lines = list(history)
    for place in reversed(range(len(lines))):
        line = lines[place]
        if not line.is_truncated or line.index not in texts:
            continue
        content, tokens = texts[line.index]
        tokens = MESSAGE_OVERHEAD_TOKENS + (
            count_message_tokens(content, line.tool_calls) if tokens is None else tokens
        )
        if tokens - line.tokens <= left:
            left -= tokens - line.tokens
            lines[place] = replace(line, content=content, tokens=tokens, is_truncated=False)
    return lines


@lru_cache(maxsize=1000)
def _fitting(summary: str, most: int) -> tuple[str, int]:
    """A summary within a number of tokens, and how many it has; the same one comes with every turn."""
    shortened = truncate_to_tokens(summary, most)
    return shortened, count_tokens(shortened)


def _tokens(lines: Iterable[HistoryMessage]) -> int:
    return sum(line.tokens for line in lines)


def _messages(session_id: UUID, lines: Iterable[Sequence[Any]]) -> list[HistoryMessage]:
    """The messages; one that cannot be read is left out, because the conversation has to go on."""
    messages = []
    for line in lines:
        try:
            messages.append(_message(line))
        except (TypeError, ValueError) as error:
            logger.error("The stored message {} is left out: {}", message_key(session_id, line[0]), error)
    return messages


def _message(line: Sequence[Any]) -> HistoryMessage:
    index, role, content, tool_name, call_id, tool_calls, arguments, is_truncated, tokens, is_important, row_id = line
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


def _newest_turns(lines: Sequence[HistoryMessage], budget: int) -> list[HistoryMessage]:
    """The newest turns that fit, each as a whole; of one that alone is too long, its beginning and its newest part."""
    starts = [place for place, line in enumerate(lines) if line.begins_turn]
    if not starts:
        return []
    sums = _sums_to_end(lines)
    fitting = next((place for place in starts if sums[place] <= budget), None)
    if fitting is not None:
        return list(lines[fitting:])
    first = lines[starts[-1]]
    rest = list(lines[starts[-1] + 1 :])
    return [first, *_within(rest, budget - first.tokens, at_least=1)]


def _sums_to_end(lines: Sequence[HistoryMessage]) -> list[int]:
    sums, total = [], 0
    for line in reversed(lines):
        total += line.tokens
        sums.append(total)
    return sums[::-1]


def _within(lines: Sequence[HistoryMessage], budget: int, at_least: int = 0) -> list[HistoryMessage]:
    """The newest of some messages that fit, in their order."""
    chosen: list[HistoryMessage] = []
    for line in reversed(lines):
        budget -= line.tokens
        if budget < 0 and len(chosen) >= at_least:
            break
        chosen.append(line)
    return chosen[::-1]
