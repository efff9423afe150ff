"""Cut tool results to a size that a model can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from rem.models.results import JsonRow, Note

MAX_RESULT_CHARS = 40_000
"""Size of a result as JSON: about 10,000 tokens."""
MAX_PREVIEW_CHARS = 1_200
"""Length of one text in a result with several rows: enough to judge whether it is the right one."""
MAX_LIST_ITEMS = 100
NOTES_RESERVE_CHARS = 2_000
"""Part of MAX_RESULT_CHARS that is kept free for the notes."""
_OMITTED_COLUMNS = frozenset({"embedding", "tenant_id", "user_id", "deleted_at"})
"""Columns that are useless to a model. The owner of the rows is the caller."""
_EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {})


def fit_to_budget(
    result: Mapping[str, Any],
    notes: Sequence[Note] = (),
    *,
    max_text_chars: int = MAX_PREVIEW_CHARS,
    offset: int = 0,
) -> JsonRow:
    """Return a result with `results` and notes that has at most MAX_RESULT_CHARS characters as JSON.

    Values are cut first, texts to `max_text_chars`; then rows are dropped, and a note says so. `offset` is the
    position from which the field `text` is returned.
    """
    rows = result["results"]
    chars_left = MAX_RESULT_CHARS - NOTES_RESERVE_CHARS
    kept: list[JsonRow] = []
    for row in rows:
        trimmed = _trim_row(row, max_text_chars, offset)
        size = _count_chars(trimmed)
        if size > chars_left and not kept:
            trimmed = _shrink_row(trimmed, chars_left)
            size = _count_chars(trimmed)
        if size > chars_left:
            break
        kept.append(trimmed)
        chars_left -= size
    if len(kept) < len(rows):
        text = f"Only the first {len(kept)} of {len(rows)} rows fit: ask for fewer, or LOOKUP single keys."
        notes = [*notes, Note("rows_cut", text)]
    return {**result, "results": kept, **({"notes": [note.as_json() for note in notes]} if notes else {})}


def count_whole_text_chars(row_count: int) -> int:
    """Return how long a whole text may be if this many rows are to fit: half of each row's share."""
    return max(MAX_PREVIEW_CHARS, (MAX_RESULT_CHARS - NOTES_RESERVE_CHARS) // (2 * max(row_count, 1)))


def cut_text(text: str, max_chars: int, key: str | None = None, offset: int = 0) -> str:
    """Return at most `max_chars` characters of `text` from `offset` on.

    A cut text ends with a note; if a `key` is given, the note has the call that returns the rest.
    """
    end = offset + max_chars
    if end >= len(text):
        return text[offset:]
    more = f"; the rest: lookup(key={orjson.dumps(key).decode()}, offset={end})" if key else ""
    return f"{text[offset:end]}… [cut: characters {offset:,} to {end:,} of {len(text):,}{more}]"


def drop_empty_fields(record: Mapping[str, Any]) -> JsonRow:
    """Return the record without empty fields and without columns that are useless to a model."""
    return {
        name: value for name, value in record.items() if name not in _OMITTED_COLUMNS and value not in _EMPTY_VALUES
    }


def _trim_row(row: Mapping[str, Any], max_chars: int, offset: int) -> JsonRow:
    key = row.get("key")
    key = key if isinstance(key, str) else None
    return {
        name: _cut_value(value, max_chars, key, offset if name == "text" else 0)
        for name, value in row.items()
        if name != "embedding"
    }


def _cut_value(value: Any, max_chars: int, key: str | None, offset: int) -> Any:
    """Cut every text and list inside of a JSON value. The offset applies only to texts that are longer than it."""
    if isinstance(value, str):
        return cut_text(value, max_chars, key, offset if len(value) > offset else 0)
    if isinstance(value, Mapping):
        return {name: _cut_value(inner, max_chars, key, offset) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        items = [_cut_value(inner, max_chars, key, offset) for inner in value[:MAX_LIST_ITEMS]]
        more = len(value) - MAX_LIST_ITEMS
        return [*items, f"… [and {more:,} more]"] if more > 0 else items
    return value


def _shrink_row(row: JsonRow, max_chars: int) -> JsonRow:
    """Turn every field that exceeds its share into a cut text."""
    share = max_chars // (2 * len(row))
    return {
        name: value if _count_chars(value) <= share else cut_text(_to_text(value), share) for name, value in row.items()
    }


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _count_chars(value: Any) -> int:
    return len(orjson.dumps(value, default=str).decode())
