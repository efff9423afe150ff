"""Determine the time when a file was written."""

from __future__ import annotations

import posixpath
import re
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from rem.ingest.models import FetchedFile, ParsedDocument

FIRST_PLAUSIBLE_YEAR = 1981
"""Archive tools write 1970 or 1980 as the modification time if they know none."""

_DAY = r"(\d{4})([-_.]?)(\d\d)\2(\d\d)"
_DAYS_IN_NAME = (re.compile(rf"^{_DAY}(?!\d)", re.ASCII), re.compile(rf"(?<!\d){_DAY}$", re.ASCII))

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = r"(?P<month>jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
_DAY_OF_MONTH = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?"
_YEAR = r"(?P<year>\d{4})"
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,? )?"
_DATES_IN_TITLE = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for date in (rf"{_DAY_OF_MONTH} {_MONTH},? {_YEAR}", rf"{_MONTH} {_DAY_OF_MONTH},? {_YEAR}")
    for pattern in (rf"^{_WEEKDAY}{date}\b", rf"(?<![\w-]){date}$")
)


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


def find_day_in_name(name: str) -> datetime | None:
    """Return the day with which the name of a file begins or ends, such as `2026-11-09.md` or `minutes 20261109.md`."""
    return _find_iso_day(posixpath.splitext(posixpath.basename(name))[0])


def find_day_in_title(title: str) -> datetime | None:
    """Return the day with which a title begins or ends, such as "Standup 2026-11-09" or "Monday, 9 November 2026"."""
    day = _find_iso_day(title)
    if day is not None:
        return day
    for pattern in _DATES_IN_TITLE:
        match = pattern.search(title.strip())
        if match is None or int(match["year"]) < FIRST_PLAUSIBLE_YEAR:
            continue
        month = _MONTHS.index(match["month"][:3].lower()) + 1
        return parse_time(f"{match['year']}-{month:02}-{int(match['day']):02}")
    return None


def _find_iso_day(text: str) -> datetime | None:
    for pattern in _DAYS_IN_NAME:
        match = pattern.search(text)
        day = parse_time(f"{match[1]}-{match[3]}-{match[4]}") if match else None
        if day is not None and day.year >= FIRST_PLAUSIBLE_YEAR:
            return day
    return None


def find_written_at(file: FetchedFile, document: ParsedDocument | None) -> datetime | None:
    """Return the time in the document, else the day in its name or title, else its modification time; None without any.

    A file that was changed on that day has the exact time, and one that was changed before that day is a plan.
    """
    if document and document.written_at:
        return document.written_at
    modified_at = file.modified_at if file.modified_at and file.modified_at.year >= FIRST_PLAUSIBLE_YEAR else None
    title = document.title if document and document.format == "markdown" else None
    day = find_day_in_name(file.name) or (find_day_in_title(title) if title else None)
    if day is None or (modified_at is not None and modified_at.date() <= day.date()):
        return modified_at
    return day


def resolve_written_at(file: FetchedFile, document: ParsedDocument | None, now: datetime) -> datetime:
    """Return the time when a file was written, or `now` if it is not known. Never later than `now`."""
    written_at = find_written_at(file, document)
    return min(written_at, now) if written_at else now
