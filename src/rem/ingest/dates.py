"""Determine the time when a file was written."""

from __future__ import annotations

from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from rem.ingest.models import FetchedFile, ParsedDocument

FIRST_PLAUSIBLE_YEAR = 1981
"""Archive tools write 1970 or 1980 as the modification time if they know none."""


def parse_time(value: Any) -> datetime | None:
    """Convert an ISO 8601 text, a date or a datetime to a datetime in UTC. Return None if it is none of these."""
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
    """Parse the date of an HTTP header. Return None if it is missing or invalid."""
    try:
        return parse_time(parsedate_to_datetime(value)) if value else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def convert_mtime(seconds: float) -> datetime | None:
    """Convert the modification time of a file (Unix seconds) to a datetime. Return None if it is out of range."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def find_written_at(file: FetchedFile, document: ParsedDocument | None) -> datetime | None:
    """Return the time in the document, else the modification time; None if there is neither."""
    modified_at = file.modified_at if file.modified_at and file.modified_at.year >= FIRST_PLAUSIBLE_YEAR else None
    return (document.written_at if document else None) or modified_at


def resolve_written_at(file: FetchedFile, document: ParsedDocument | None, now: datetime) -> datetime:
    """Return the time when a file was written, or `now` if it is not known. Never later than `now`."""
    written_at = find_written_at(file, document)
    return min(written_at, now) if written_at else now
