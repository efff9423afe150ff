"""Front matter: YAML between two lines of dashes at the head of a text."""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from typing import Any

import yaml

from rem.db.yaml import load_yaml
from rem.text import clean_text

_BLOCK = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_LONGEST = 50_000
_DEEPEST = 20


def parse_front_matter(text: str) -> tuple[dict[str, Any] | None, int]:
    """What a text says of itself, as JSON can hold it, and where the text itself begins. Nothing is an error."""
    found = _BLOCK.match(text[:_LONGEST])
    if found is None:
        return None, 0
    try:
        values = load_yaml(found[1], aliases=False)
        front = _plain(values) if isinstance(values, dict) else None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, LookupError, AttributeError):
        front = None
    return front or None, found.end()


def _plain(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if isinstance(value, dict):
        return {clean_text(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    return value.isoformat() if isinstance(value, date | datetime) else clean_text(str(value))
