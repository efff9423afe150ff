"""When a file was written: what it says itself, else when it was last changed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from rem.ingest.models import FetchedFile, ParsedDocument

_FIRST_YEAR = 1981
"""A file that was last changed before has no date: packers write 1970 or 1980 if they know none."""


def parse_time(value: Any) -> datetime | None:
    """A date or time as people and programs write it, in UTC if it names no zone; None if it is none."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        if not isinstance(value, datetime):
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parse_http_time(value: str | None) -> datetime | None:
    """The time in a header of HTTP."""
    try:
        return parse_time(parsedate_to_datetime(value)) if value else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def convert_mtime(seconds: float) -> datetime | None:
    """The time of a file's last change."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def resolve_written_at(file: FetchedFile, document: ParsedDocument | None, now: datetime) -> datetime:
    """When what a file says was written. Not later than now, whatever its clock said."""
    changed = file.modified_at if file.modified_at and file.modified_at.year >= _FIRST_YEAR else None
    found = (document.written_at if document else None) or changed
    return min(found, now) if found else now
