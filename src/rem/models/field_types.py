"""Value types that the entities share: times in UTC, JSON that PostgreSQL can hold, vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator

MAX_JSON_DEPTH = 100
MAX_KEY_BYTES = 1024
MIN_DATETIME = datetime(1, 1, 1, tzinfo=UTC)
"""Before everything that is stored."""


def utc_now() -> datetime:
    """The present moment, in UTC."""
    return datetime.now(UTC)


def _in_utc(value: datetime) -> datetime:
    """A time without a zone is taken as UTC: that is what REM itself writes."""
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is outside the years 1 to 9999 in UTC") from error


UtcDateTime = Annotated[datetime, AfterValidator(_in_utc)]


def check_text(value: str) -> str:
    """Refuse what PostgreSQL text cannot hold."""
    if "\0" in value:
        raise ValueError("contains a NUL character (\\u0000), which PostgreSQL text cannot hold: remove it")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode: lone surrogate at position {error.start}") from error
    return value


def to_json_value(value: Any, path: str = "", depth: int = 0) -> Any:
    """The value as plain JSON that comes back from PostgreSQL as it went in, or a ValueError that names the place."""
    if isinstance(value, str):
        # Most text is plain; only the rest needs a closer look.
        return value if value.isascii() and "\0" not in value else _at(path, check_text, value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _as_json_number(value, path)
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"is nested more than {MAX_JSON_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {_key(k, path): to_json_value(v, f"{path}.{k}" if path else str(k), depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise ValueError(f"has a {type(value).__name__}{_where(path)}, which is not JSON")


def _as_json_number(value: float, path: str) -> float:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"has {value}{_where(path)}, which JSON cannot hold: use null")
    # Up to 2^64, because PostgreSQL gives back a large whole float as an integer.
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"has an integer beyond 64 bits{_where(path)}: write it as a string")
    return value


def _where(path: str) -> str:
    return f" at {path}" if path else ""


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"has the key {key!r}{_where(path)}, which is not a string: quote it")
    return key if key.isascii() and "\0" not in key else _at(path, check_text, key)


def _at(path: str, check: Callable[[str], str], value: str) -> str:
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{error}{_where(path)}") from error


def check_label(value: str) -> str:
    """Refuse a label that cannot become a key; what exactly its key is, only the database knows."""
    if not value.strip(" \t\r\n_-"):
        raise ValueError("has no letter or digit, so no key: give it a readable label")
    if len(value.encode(errors="surrogatepass")) > MAX_KEY_BYTES:
        raise ValueError(f"is longer than {MAX_KEY_BYTES:,} bytes: use a short label, and put the text into content")
    return value


Label = Annotated[str, AfterValidator(check_label)]
"""A human-readable name from which a key can be made."""

JsonObject = Annotated[dict[str, Any], BeforeValidator(lambda value: to_json_value(value))]
JsonList = Annotated[list[Any], BeforeValidator(lambda value: to_json_value(value))]


def _parse_vector(value: Any) -> Any:
    """pgvector's text form, as it comes out of the database."""
    if isinstance(value, str) and value.startswith("["):
        return [float(part) for part in value[1:-1].split(",")]
    return value


def _usable_vector(value: list[float]) -> list[float]:
    if not value:
        raise ValueError("is empty: leave the embedding out instead")
    if not all(map(math.isfinite, value)):
        raise ValueError("has a value that is not finite")
    if not any(value):
        raise ValueError("is all zeros, which has no direction: leave the embedding out instead")
    return value


Vector = Annotated[list[float], BeforeValidator(_parse_vector), AfterValidator(_usable_vector)]
