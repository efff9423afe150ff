"""Cut tool results to a size that a model can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

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


def fit_to_budget(result: Mapping[str, Any], *, is_whole: bool = False, offset: int = 0) -> dict[str, Any]:
    """Return a result with `results` that has at most MAX_RESULT_CHARS characters as JSON.

    Texts are cut first, then rows are dropped; `notes` says so. `is_whole` keeps texts as long as they fit, for a
    caller that asked for exactly these rows. `offset` is the position in a long text from which it is returned.
    """
    rows = result["results"]
    chars_left = MAX_RESULT_CHARS - NOTES_RESERVE_CHARS
    max_chars = max(MAX_PREVIEW_CHARS, chars_left // (2 * len(rows) or 1)) if is_whole else MAX_PREVIEW_CHARS
    kept: list[dict[str, Any]] = []
    for row in rows:
        trimmed = _trim_row(row, max_chars, offset)
        size = _count_chars(trimmed)
        if size > chars_left and not kept:
            trimmed = _flatten_row(trimmed, chars_left)
            size = _count_chars(trimmed)
        if size > chars_left:
            break
        kept.append(trimmed)
        chars_left -= size
    notes = list(result.get("notes", ()))
    if len(kept) < len(rows):
        notes.append(f"Only the first {len(kept)} of {len(rows)} rows fit: ask for fewer, or LOOKUP single keys.")
    return {**result, "results": kept, **({"notes": notes} if notes else {})}


def cut_text(text: str, max_chars: int, key: str | None = None, offset: int = 0) -> str:
    """Return at most `max_chars` characters of `text` from `offset` on.

    A cut text ends with a note; if a `key` is given, the note has the call that returns the rest.
    """
    end = offset + max_chars
    if end >= len(text):
        return text[offset:]
    more = f"; the rest: lookup(key={orjson.dumps(key).decode()}, offset={end})" if key else ""
    return f"{text[offset:end]}… [cut: characters {offset:,} to {end:,} of {len(text):,}{more}]"


def drop_empty_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record without empty fields and without columns that are useless to a model."""
    return {
        name: value for name, value in record.items() if name not in _OMITTED_COLUMNS and value not in _EMPTY_VALUES
    }


def _trim_row(row: Mapping[str, Any], max_chars: int, offset: int) -> dict[str, Any]:
    """Cut the texts of a row. In an entity's record empty fields are dropped, but never columns of a SELECT."""
    key = row.get("key")
    key = key if isinstance(key, str) else None
    trimmed = {
        name: _cut_value(value, max_chars, key, 0) for name, value in row.items() if name not in ("record", "embedding")
    }
    record = row.get("record")
    if isinstance(record, Mapping):
        trimmed["record"] = _cut_value(drop_empty_fields(record), max_chars, key, offset)
    elif "record" in row:
        trimmed["record"] = _cut_value(record, max_chars, key, 0)
    return trimmed


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


def _flatten_row(row: dict[str, Any], max_chars: int) -> dict[str, Any]:
    """Merge the record into the row and turn every field that exceeds its share into a cut text."""
    record = row.get("record")
    fields = {**row, **record} if isinstance(record, dict) else row
    fields = {name: value for name, value in fields.items() if value is not record}
    share = max_chars // (2 * len(fields))
    return {
        name: value if _count_chars(value) <= share else cut_text(_to_text(value), share)
        for name, value in fields.items()
    }


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _count_chars(value: Any) -> int:
    return len(orjson.dumps(value, default=str).decode())
