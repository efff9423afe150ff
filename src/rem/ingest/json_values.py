"""Whatever a file says of itself, as JSON that PostgreSQL can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from typing import Any

_DEEPEST = 20
_LONGEST_TEXT = 2000
_MOST_ITEMS = 200


def to_json_value(value: Any, depth: int = 0) -> Any:
    """The value without what cannot be stored, and without the rest of what is too long."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date):
        return value.isoformat()
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {
            replace_unstorable(str(key))[:200]: to_json_value(item, depth + 1)
            for key, item in list(value.items())[:_MOST_ITEMS]
        }
    if depth < _DEEPEST and isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(item, depth + 1) for item in list(value)[:_MOST_ITEMS]]
    return replace_unstorable(str(value))[:_LONGEST_TEXT]


def replace_unstorable(text: str) -> str:
    """The text with a replacement character for each one that PostgreSQL cannot hold; as long as it was."""
    if "\0" not in text and text.isascii():
        return text
    text = text.replace("\0", "�")
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("�" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
