"""Make the output of a model safe for JSON and UTF-8: it may contain half characters or huge numbers."""

from __future__ import annotations

from typing import Any

import orjson

MAX_INTEGER = 2**63
"""Integers from here on are sent as text."""
MAX_DEPTH = 100
MAX_DEEP_VALUE_CHARS = 1000


class SurrogateBuffer:
    """Text that arrives in parts, which may end in the middle of a character."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, part: str) -> str:
        """Return the text up to the last complete character. Half a character waits for the next part."""
        if not self._half and part.isascii():
            return part
        text = self._half + part
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return _join_surrogates(text[: len(text) - len(self._half)])


def to_json_safe(value: Any) -> Any:
    """Return the value in a form that JSON can hold; the value itself if it already has one."""
    try:
        orjson.dumps(value)
    except (TypeError, ValueError):
        return _convert(value, MAX_DEPTH)
    return value


def _convert(value: Any, levels_left: int) -> Any:
    if levels_left == 0:
        return _join_surrogates(str(value)[:MAX_DEEP_VALUE_CHARS])
    if isinstance(value, str):
        return _join_surrogates(value)
    if isinstance(value, dict):
        return {_join_surrogates(str(key)): _convert(item, levels_left - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_convert(item, levels_left - 1) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if -MAX_INTEGER <= value < MAX_INTEGER else str(value)
    return _join_surrogates(str(value))


def _join_surrogates(text: str) -> str:
    """Join the halves of characters, and replace halves that have no counterpart."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
