"""Answers as a model gets them: without what it cannot use, and never larger than it can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

MAX_RESULT_CHARS = 40_000
"""Of a whole answer as JSON: some 10,000 tokens."""
MAX_PREVIEW_CHARS = 1_200
"""Of one text where several rows are found: enough to judge whether it is the right one."""
_MOST_ITEMS = 100
_UNUSED = frozenset({"embedding", "tenant_id", "user_id", "deleted_at"})
"""Columns that say nothing to a model; whose row it is, the caller knows."""
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_ROOM_FOR_NOTES = 2_000


def fit_to_budget(answer: Mapping[str, Any], *, whole: bool = False, offset: int = 0) -> dict[str, Any]:
    """An answer with `results` that fits: texts are cut, then rows are left out, and notes say so.

    `whole` leaves texts as long as there is room, for a caller that asked for just these rows; `offset` leaves out what
    comes before it in a long text, to read on.
    """
    rows = answer["results"]
    room = MAX_RESULT_CHARS - _ROOM_FOR_NOTES
    longest = max(MAX_PREVIEW_CHARS, room // (2 * len(rows) or 1)) if whole else MAX_PREVIEW_CHARS
    kept: list[dict[str, Any]] = []
    for row in rows:
        smaller = _row(row, longest, offset)
        size = _size(smaller)
        if size > room and not kept:
            smaller = _flattened(smaller, room)
            size = _size(smaller)
        if size > room:
            break
        kept.append(smaller)
        room -= size
    notes = list(answer.get("notes", ()))
    if len(kept) < len(rows):
        notes.append(f"Only the first {len(kept)} of {len(rows)} rows fit: ask for fewer, or LOOKUP single keys.")
    return {**answer, "results": kept, **({"notes": notes} if notes else {})}


def cut_text(text: str, longest: int, key: str | None = None, offset: int = 0) -> str:
    """A text from `offset` on, with a note at the end if more follows: with a key, also how to get that."""
    end = offset + longest
    if end >= len(text):
        return text[offset:]
    more = f"; the rest: lookup(key={orjson.dumps(key).decode()}, offset={end})" if key else ""
    return f"{text[offset:end]}… [cut: characters {offset:,} to {end:,} of {len(text):,}{more}]"


def drop_empty_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that say something."""
    return {name: value for name, value in record.items() if name not in _UNUSED and value not in _EMPTY}


def _row(row: Mapping[str, Any], longest: int, offset: int) -> dict[str, Any]:
    """A row of an entity without what a model cannot use; in one of a SELECT, everything was asked for."""
    named = row.get("key")
    key = named if isinstance(named, str) else None
    smaller = {
        name: _shortened(value, longest, key, 0) for name, value in row.items() if name not in ("record", "embedding")
    }
    record = row.get("record")
    if isinstance(record, Mapping):
        smaller["record"] = _shortened(drop_empty_fields(record), longest, key, offset)
    elif "record" in row:
        smaller["record"] = _shortened(record, longest, key, 0)
    return smaller


def _shortened(value: Any, longest: int, key: str | None, offset: int) -> Any:
    """Every text in it cut. Only a text that is longer than the offset is one that somebody reads on in."""
    if isinstance(value, str):
        return cut_text(value, longest, key, offset if len(value) > offset else 0)
    if isinstance(value, Mapping):
        return {name: _shortened(inner, longest, key, offset) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        items = [_shortened(inner, longest, key, offset) for inner in value[:_MOST_ITEMS]]
        more = len(value) - _MOST_ITEMS
        return [*items, f"… [and {more:,} more]"] if more > 0 else items
    return value


def _flattened(row: dict[str, Any], room: int) -> dict[str, Any]:
    """A row whose parts are many rather than long: the large ones become a text that is cut."""
    record = row.get("record")
    parts = {**row, **record} if isinstance(record, dict) else row
    parts = {name: value for name, value in parts.items() if value is not record}
    share = room // (2 * len(parts))
    return {name: value if _size(value) <= share else cut_text(_text(value), share) for name, value in parts.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _size(value: Any) -> int:
    return len(orjson.dumps(value, default=str).decode())
