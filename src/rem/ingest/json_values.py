"""Convert the properties of documents to JSON that PostgreSQL can store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from typing import Any

from rem.text import clean_text

MAX_DEPTH = 20
MAX_TEXT_CHARS = 2000
MAX_KEY_CHARS = 200
MAX_ITEMS = 200
"""Items of one list or mapping."""


def to_json_value(value: Any, depth: int = 0) -> Any:
    """Return the value as JSON. Cut long texts and collections, and turn anything else into a text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date):
        return value.isoformat()
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        return {
            clean_text(str(key))[:MAX_KEY_CHARS]: to_json_value(item, depth + 1)
            for key, item in list(value.items())[:MAX_ITEMS]
        }
    if depth < MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [to_json_value(item, depth + 1) for item in list(value)[:MAX_ITEMS]]
    return clean_text(str(value))[:MAX_TEXT_CHARS]
