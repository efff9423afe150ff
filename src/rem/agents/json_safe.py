"""What a model sends, as JSON and UTF-8 can carry it: a model may write half a character or a number without end."""

from __future__ import annotations

from typing import Any

import orjson

_LARGEST = 2**63
_DEEPEST = 100


class SurrogateBuffer:
    """Text that comes in pieces, which may end in the middle of a character."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """The piece, with whole characters only; what is half waits for the next one."""
        if not self._held and piece.isascii():
            return piece
        text = self._held + piece
        self._held = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return _characters(text[: len(text) - len(self._held)])


def to_json_safe(value: Any) -> Any:
    """The value as JSON that every client reads; the value itself if it is that already."""
    try:
        orjson.dumps(value)
    except (TypeError, ValueError):
        return _mended(value, _DEEPEST)
    return value


def _mended(value: Any, depth: int) -> Any:
    if depth == 0:
        return _characters(str(value)[:1000])
    if isinstance(value, str):
        return _characters(value)
    if isinstance(value, dict):
        return {_characters(str(key)): _mended(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item, depth - 1) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if -_LARGEST <= value < _LARGEST else str(value)
    return _characters(str(value))


def _characters(text: str) -> str:
    """Halves of characters put together, or replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
