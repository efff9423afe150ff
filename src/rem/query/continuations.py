"""Find the messages that belong together: one that names a subject, and those that continue it without naming it.

Users tell `rem:local` "A scooter hit my car, the rider is Edgar Frade" and then "He works at the Crown". The second
message says nothing without the first one. Messages of a dialogue are ranked with their neighbours by SEARCH itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query as sql
from rem.message_kinds import continues_earlier
from rem.retrieval.searchable_rows import MAX_EARLIER_MESSAGES, find_antecedents

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_MESSAGE_DISTANCE = 8
"""Messages before and after one that are looked at. Each second one is an answer of `rem:local`."""
MAX_LATER_MESSAGES = 2


async def add_continued(store: Store, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows; a message with `said_before`, what it continues, and `said_after`, what continues it."""
    located = [_locate(row) for row in rows]
    places = [place for place in located if place is not None]
    if not places:
        return list(rows)
    sessions: dict[str, dict[int, str]] = defaultdict(dict)
    messages = await store.executor.read(
        lambda connection: connection.fetch(
            sql("query", "messages_around"),
            store.scope.tenant_id,
            store.scope.user_id,
            [UUID(session_id) for session_id, _ in places],
            [position for _, position in places],
            MAX_MESSAGE_DISTANCE,
        )
    )
    for message in messages:
        sessions[str(message["session_id"])][message["message_index"]] = message["content"]
    return [
        row if place is None else {**row, **_find_continued(sessions[place[0]], place[1])}
        for row, place in zip(rows, located, strict=True)
    ]


def get_continued(row: dict[str, Any]) -> str:
    """Return the texts of the messages that a row continues; "" if it stands for itself."""
    return "\n".join(row.get("said_before", ()))


def join_texts(before: str, text: str) -> str:
    """Return what the models read of a row: the messages that it continues, and its own text."""
    return f"{before}\n{text}" if before else text


def _locate(row: dict[str, Any]) -> tuple[str, int] | None:
    """Return the session and the place of a message; None for other rows."""
    record = row.get("record")
    if row.get("table") != "messages" or not isinstance(record, dict) or not record.get("session_id"):
        return None
    position = record.get("message_index")
    return (str(record["session_id"]), position) if isinstance(position, int) else None


def _find_continued(messages: dict[int, str], position: int) -> dict[str, Any]:
    text = messages.get(position)
    if text is None:
        return {}  # a message of a dialogue, or of somebody else
    earlier = [messages[place] for place in sorted(messages, reverse=True) if place < position]
    later = [messages[place] for place in sorted(messages) if place > position]
    said_before = list(find_antecedents(text, earlier))[:MAX_EARLIER_MESSAGES]
    said_after = list(takewhile(continues_earlier, later))[:MAX_LATER_MESSAGES]
    return {
        **({"said_before": said_before[::-1]} if said_before else {}),
        **({"said_after": said_after} if said_after else {}),
    }
