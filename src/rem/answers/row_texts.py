"""Prepare hits for the reader: each text with its title or speaker, and with the message before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from rem.answers.sources import YOU, find_title
from rem.db.sql import query
from rem.search.reader import RowText

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.models.results import Hit

MAX_DISTANCE = 3
"""Messages before one among which what the user said last is looked for."""
MAX_BEFORE_CHARS = 300


async def load_row_texts(store: Store, hits: Sequence[Hit]) -> list[RowText]:
    """Return what the reader reads of each hit, in their order."""
    before = await _load_before(store, [place for hit in hits if (place := _locate(hit)) is not None])
    return [_to_row_text(hit, before) for hit in hits]


def _to_row_text(hit: Hit, before: dict[tuple[str, int], str]) -> RowText:
    title, place = find_title(hit), _locate(hit)
    said = before.get(place, "") if place is not None else ""
    return RowText(hit.shown_text, "" if title == YOU else title, said[:MAX_BEFORE_CHARS])


def _locate(hit: Hit) -> tuple[str, int] | None:
    """Return the session and the place of a message; None for other rows."""
    place = hit.record.get("message_index")
    return (str(hit.record["session_id"]), place) if hit.table == "messages" and isinstance(place, int) else None


async def _load_before(store: Store, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Return what the user said last before each place."""
    if not places:
        return {}
    rows = await store.executor.read(
        lambda connection: connection.fetch(
            query("answers/answers", "messages_before"),
            store.scope.tenant_id,
            store.scope.user_id,
            [UUID(session_id) for session_id, _ in places],
            [place for _, place in places],
            MAX_DISTANCE,
        )
    )
    said: dict[str, dict[int, str]] = defaultdict(dict)
    for row in rows:
        said[str(row["session_id"])][row["message_index"]] = row["content"]
    return {
        (session_id, place): said[session_id][max(earlier)]
        for session_id, place in places
        if (earlier := [index for index in said[session_id] if place - MAX_DISTANCE <= index < place])
    }
