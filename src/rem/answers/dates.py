"""Resolve the relative dates in a sentence: "last Friday" in a message of 18 November is 13 November 2026.

Only expressions with one meaning are resolved. "On Friday" may be the last or the next one, so it stays as it is: the
date of the source stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}
_DAYS = {"yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "tomorrow": 1}
_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join(_COUNTS)})"
_UNIT = r"(?P<unit>day|week|month|year)"
_PATTERNS = (
    rf"(?P<day>the day before yesterday|the day after tomorrow|{'|'.join(_DAYS)}|this (?:morning|afternoon|evening))",
    rf"(?P<side>last|next) (?P<weekday>{'|'.join(_WEEKDAYS)})",
    r"(?P<place>last|this|next) (?P<period>weekend|week|month|year)",
    rf"{_COUNT} {_UNIT}s? ago",
    rf"in (?P<ahead>\d{{1,3}}|{'|'.join(_COUNTS)}) (?P<ahead_unit>day|week|month|year)s?(?= time\b|'|\b)",
)
_EXPRESSION = re.compile(rf"\b(?:{'|'.join(_PATTERNS)})\b(?! (?:or|and) )", re.IGNORECASE)
_PLACES = {"last": -1, "this": 0, "next": 1}


def add_dates(text: str, said_on: date) -> str:
    """Return a sentence with the date of each relative expression in brackets behind it."""

    def add(match: re.Match[str]) -> str:
        resolved = resolve(match.group(), said_on)
        return match.group() if resolved is None else f"{match.group()} ({resolved})"

    return _EXPRESSION.sub(add, text)


def resolve(expression: str, said_on: date) -> str | None:
    """Return the date that a relative expression means, as people write it; None if it is not one."""
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        return None
    found = {name: value.lower() for name, value in match.groupdict().items() if value}
    try:
        return next(resolve_part(found, said_on) for name, resolve_part in _RESOLVERS.items() if name in found)
    except (OverflowError, ValueError):  # before the year 1, or after 9999
        return None


def format_day(day: date) -> str:
    """Return a day as people write it, such as 13 Nov 2026."""
    return f"{day.day} {day:%b %Y}"


def _resolve_day(found: Mapping[str, str], said_on: date) -> str:
    word = found["day"]
    days = {"the day before yesterday": -2, "the day after tomorrow": 2, **_DAYS}.get(word, 0)
    return format_day(said_on + timedelta(days=days))


def _resolve_weekday(found: Mapping[str, str], said_on: date) -> str:
    """Return the last such day before the message, or that of the week after it."""
    days = (_WEEKDAYS.index(found["weekday"]) - said_on.weekday()) % 7
    if found["side"] == "last":
        return format_day(said_on - timedelta(days=(7 - days) % 7 or 7))
    monday = said_on - timedelta(days=said_on.weekday())
    return format_day(monday + timedelta(days=7 + _WEEKDAYS.index(found["weekday"])))


def _resolve_period(found: Mapping[str, str], said_on: date) -> str:
    return _describe_period(found["period"], said_on, _PLACES[found["place"]])


def _resolve_ago(found: Mapping[str, str], said_on: date) -> str:
    return _shift(said_on, found["unit"], -_read_count(found["count"]))


def _resolve_ahead(found: Mapping[str, str], said_on: date) -> str:
    return _shift(said_on, found["ahead_unit"], _read_count(found["ahead"]))


_RESOLVERS: Mapping[str, Callable[[Mapping[str, str], date], str]] = {
    "day": _resolve_day,
    "weekday": _resolve_weekday,
    "period": _resolve_period,
    "count": _resolve_ago,
    "ahead": _resolve_ahead,
}


def _read_count(word: str) -> int:
    return int(word) if word.isdigit() else _COUNTS[word]


def _shift(said_on: date, unit: str, count: int) -> str:
    """Return a day that is some days away, or the week, month or year that is so far away."""
    if unit == "day":
        return format_day(said_on + timedelta(days=count))
    return _describe_period(unit, said_on, count)


def _describe_period(period: str, said_on: date, count: int) -> str:
    if period == "year":
        return str(said_on.replace(day=1, year=said_on.year + count).year)
    if period == "month":
        months = said_on.year * 12 + said_on.month - 1 + count
        return f"{date(months // 12, months % 12 + 1, 1):%B %Y}"
    monday = said_on + timedelta(days=7 * count - said_on.weekday())
    first, last = (5, 6) if period == "weekend" else (0, 6)
    return f"{_omit_year(monday + timedelta(days=first))} to {format_day(monday + timedelta(days=last))}"


def _omit_year(day: date) -> str:
    return f"{day.day} {day:%b}"
