"""Field types that the entities share: times in UTC, labels, JSON that PostgreSQL can store, vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator

from rem.text import clean_text

MAX_JSON_DEPTH = 100
"""Deeper values would overflow the stack of recursive functions."""
MAX_FOREIGN_DEPTH = 20
MAX_FOREIGN_TEXT_CHARS = 2000
MAX_FOREIGN_KEY_CHARS = 200
MAX_FOREIGN_ITEMS = 200
"""Limits for the properties of documents. The items are those of one list or mapping."""
MAX_KEY_BYTES = 1024
"""A key is part of several indexes; an index entry holds at most about 2,700 bytes."""
MIN_DATETIME = datetime(1, 1, 1, tzinfo=UTC)
"""Earlier than every stored time."""


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def _to_utc(value: datetime) -> datetime:
    """Return the time in UTC. A time without a zone is in UTC already, because REM writes times that way."""
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is outside the years 1 to 9999 in UTC") from error


UtcDateTime = Annotated[datetime, AfterValidator(_to_utc)]


def check_text(value: str) -> str:
    """Return `value`. Raise ValueError if PostgreSQL cannot store it as text."""
    if "\0" in value:
        raise ValueError("contains a NUL character (\\u0000), which PostgreSQL text cannot hold: remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode: lone surrogate at position {error.start}") from error
    return value


def to_json_value(value: Any, path: str = "", depth: int = 0) -> Any:
    """Return `value` as plain JSON that PostgreSQL returns unchanged. Raise ValueError that names the path."""
    if isinstance(value, str):
        # Most text is plain ASCII; only other text needs the full check.
        return value if value.isascii() and "\0" not in value else _check_at_path(path, check_text, value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _check_json_number(value, path)
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"is nested more than {MAX_JSON_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {
            _check_json_key(key, path): to_json_value(item, f"{path}.{key}" if path else str(key), depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [to_json_value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise ValueError(f"has a {type(value).__name__}{_at(path)}, which is not JSON")


def shorten_json(value: Any, depth: int = 0) -> Any:
    """Return any property of a document as JSON: cut long texts and collections, turn anything else into a text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date):
        return value.isoformat()
    if depth < MAX_FOREIGN_DEPTH and isinstance(value, Mapping):
        return {
            clean_text(str(key))[:MAX_FOREIGN_KEY_CHARS]: shorten_json(item, depth + 1)
            for key, item in list(value.items())[:MAX_FOREIGN_ITEMS]
        }
    if depth < MAX_FOREIGN_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [shorten_json(item, depth + 1) for item in list(value)[:MAX_FOREIGN_ITEMS]]
    return clean_text(str(value))[:MAX_FOREIGN_TEXT_CHARS]


def _check_json_number(value: float, path: str) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"has {value}{_at(path)}, which JSON cannot hold: use null")
    # Up to 2^64, because PostgreSQL returns a large whole float as an integer.
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"has an integer beyond 64 bits{_at(path)}: write it as a string")
    return value


def _check_json_key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"has the key {key!r}{_at(path)}, which is not a string: quote it")
    return key if key.isascii() and "\0" not in key else _check_at_path(path, check_text, key)


def _check_at_path(path: str, check: Callable[[str], str], value: str) -> str:
    """Return `check(value)`, and add the path to its error."""
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{error}{_at(path)}") from error


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def check_label(value: str) -> str:
    """Return `value`. Raise ValueError if no key can be made from it; only the database knows the exact key."""
    if not value.strip(" \t\r\n_-"):
        raise ValueError("has no letter or digit, so no key: give it a readable label")
    if len(value.encode(errors="surrogatepass")) > MAX_KEY_BYTES:
        raise ValueError(f"is longer than {MAX_KEY_BYTES:,} bytes: use a short label, and put the text into content")
    return value


Label = Annotated[str, AfterValidator(check_label)]
"""A readable name. The database makes a key from it."""

JsonObject = Annotated[dict[str, Any], BeforeValidator(lambda value: to_json_value(value))]
JsonList = Annotated[list[Any], BeforeValidator(lambda value: to_json_value(value))]


def _parse_vector(value: Any) -> Any:
    """Parse the text form of pgvector, which the database returns. Return any other value unchanged."""
    if isinstance(value, str) and value.startswith("["):
        return [float(part) for part in value[1:-1].split(",")]
    return value


def _check_vector(value: list[float]) -> list[float]:
    if not value:
        raise ValueError("is empty: leave the embedding out instead")
    if not all(map(math.isfinite, value)):
        raise ValueError("has a value that is not finite")
    if not any(value):
        raise ValueError("is all zeros, which has no direction: leave the embedding out instead")
    return value


Vector = Annotated[list[float], BeforeValidator(_parse_vector), AfterValidator(_check_vector)]
