"""Parse front matter: YAML between two lines of dashes at the start of a text."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any

import yaml

from rem.db.yaml import load_yaml
from rem.text import clean_text, find_front_matter

MAX_DEPTH = 20


def parse_front_matter(text: str) -> tuple[dict[str, Any] | None, int]:
    """Return the front matter as JSON values, or None, and the offset of the text after it. Invalid YAML is ignored."""
    match = find_front_matter(text)
    if match is None:
        return None, 0
    try:
        values = load_yaml(match["yaml"], aliases=False)
        front_matter = _to_json(values) if isinstance(values, dict) else None
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, LookupError, AttributeError):
        front_matter = None
    return front_matter or None, match.end()


def _to_json(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError("too deep")
    if isinstance(value, dict):
        return {clean_text(str(key)): _to_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_to_json(item, depth + 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    return value.isoformat() if isinstance(value, date | datetime) else clean_text(str(value))
