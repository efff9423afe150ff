"""Find times in plain words: "in July", "last week", "two weeks ago", "between 3 and 10 May", "seit Freitag".

A phrase stands for a period: days, weeks (from Monday), months or years of the calendar in the time zone of `now`,
which the caller gives. The words are in `rem/rules`, section `time`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache
from typing import NamedTuple, TypeVar

from rem.rules import word_set, word_sets

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_COUNTS = {**{word: count for count, word in enumerate(_NUMBERS, start=1)}, "couple": 2, "few": 3}
_DAY_PARTS = {"morning": (0, 12), "afternoon": (12, 18), "evening": (17, 24), "night": (18, 30)}
"""The first hour of a part of a day, and the hour after the last. A night ends in the morning of the next day."""
_SHORT_UNITS = {"h": "hour", "d": "day", "w": "week", "m": "month", "y": "year"}
_DAY_WORDS = ("today", "yesterday", "before_yesterday")
_OPEN_PERIODS = ("since", "after", "before", "until")
_LISTS = (
    *_DAY_WORDS,
    *_OPEN_PERIODS,
    *("this", "last", "past", "ago", "ago_before", "between", "unclear_months", "articles"),
    *("of_words", "in_words", "on_words", "from_words", "and_words", "to_words"),
)
MAX_PHRASE_CHARS = 2_000
"""The rest of a longer text is not looked at."""
_JOINING_SIGNS = ("-", "'", "’", "/")
_YEARS = range(1900, 2100)
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?\Z")
_SHORT_SPAN = re.compile(r"(\d{1,4}) ?([hdwmy])\Z", re.IGNORECASE)
_TOKEN = re.compile(
    r"(?P<iso>\d{4}-\d\d(?:-\d\d)?(?![\w-]))|(?P<dotted>\d{1,2}\.\d{1,2}\.\d{4}(?!\d))"
    r"|(?P<number>\d{1,4})(?:st|nd|rd|th|\.(?=\s))?(?![\w.,]\w)(?!\w)|(?P<word>[^\W\d_]+)|(?P<sign>[-–])|(?P<other>\S)"
)

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Period:
    """A time from `since` to before `until`. None: it is open on this side."""

    since: datetime | None
    until: datetime | None


def resolve_time(text: str, now: datetime) -> datetime | None:
    """Return the time that a text names, or None. A word for a period, such as "last week", names its beginning."""
    text = " ".join(text.split())
    if _ISO_TIME.match(text):
        return _parse_iso_time(text, now)
    if short := _SHORT_SPAN.match(text):
        return _catch_overflow(lambda: _shift(now, _SHORT_UNITS[short[2].lower()], -int(short[1])))
    if len(text) > MAX_PHRASE_CHARS:
        return None
    reader = _Reader(text, now)
    found = _catch_overflow(lambda: reader.read_period(0, is_marked=True))
    return found.period.since if found is not None and found.next == len(reader.tokens) else None


def is_time_word(word: str) -> bool:
    """Return whether a word, in lower case, occurs in times."""
    sections = ("months", "short_months", "weekdays", "units", "numbers")
    return any(word in words for words in _vocabulary().values()) or any(word in _labels(name) for name in sections)


def find_time_phrase(text: str, now: datetime) -> Period | None:
    """Return the period of the first time in a text, or None.

    The name of a month or day counts only after a word such as "in".
    """
    reader = _Reader(text[:MAX_PHRASE_CHARS], now)
    for index in range(len(reader.tokens)):
        found = reader.read_phrase(index)
        if found is not None and not reader.is_part_of_word(index, found.next):
            return found.period
    return None


def format_time(moment: datetime) -> str:
    """Return a time for SINCE and UNTIL: the date alone if it is the beginning of a day."""
    return moment.date().isoformat() if moment.time() == time.min else moment.isoformat(timespec="minutes")


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Found(NamedTuple):
    """A period, and the index of the token after it."""

    period: Period
    next: int


class _Reader:
    """Reads the times in one text. Each method takes the index of a token and returns None if nothing fits there."""

    def __init__(self, text: str, now: datetime) -> None:
        self._text = text
        self._now = now
        self._today = datetime.combine(now.date(), time.min, now.tzinfo)
        self.tokens = [
            _Token(match.lastgroup or "", match[match.lastgroup or 0].casefold(), match.start(), match.end())
            for match in _TOKEN.finditer(text)
        ]

    def is_part_of_word(self, start: int, end: int) -> bool:
        """Return whether the tokens are joined with others, as in "July's" and "mid-July"."""
        first, last = self.tokens[start].start, self.tokens[end - 1].end
        return self._text[first - 1 : first] in _JOINING_SIGNS or self._text[last : last + 1] in _JOINING_SIGNS

    def read_phrase(self, index: int) -> _Found | None:
        """Read a period with the preposition before it."""
        return _catch_overflow(lambda: self._read_phrase(index))

    def _read_phrase(self, index: int) -> _Found | None:
        found = self._read_two_ends(index)
        if found is not None:
            return found
        if any(self._is(index, words) for words in _OPEN_PERIODS):
            found = self.read_period(index + 1, is_marked=True)
            words = next(words for words in _OPEN_PERIODS if self._is(index, words))
            if found is not None:
                return _Found(_open(found.period, words), found.next)
        if self._is(index, "from_words") and self._is(index + 1, "unclear_months") and not self._is_number(index + 2):
            return None
        if any(self._is(index, words) for words in ("in_words", "on_words", "from_words")):
            found = self.read_period(index + 1, is_marked=True)
        return found or self.read_period(index, is_marked=False)

    def _read_two_ends(self, index: int) -> _Found | None:
        """Read "between 3 and 10 May", "from March to May 2026" or "3–10 May"."""
        is_between = self._is(index, "between")
        is_from = self._is(index, "from_words")
        first = self._skip_article(index + 1 if is_between or is_from else index)
        day = self._get_day(first)
        found = self.read_period(first, is_marked=is_between or is_from)
        for start, after in ((None, first + 1) if day else (None, 0), (found, found.next if found else 0)):
            is_joined = self._is(after, "and_words" if is_between else "to_words") or self._get(after).kind == "sign"
            if not after or not is_joined or (start is None and not day):
                continue
            last = self.read_period(self._skip_article(after + 1), is_marked=True)
            if last is None or last.period.since is None or (start is not None and not (is_between or is_from)):
                continue
            beginning = self._read_beginning(first, day if start is None else None, last.period.since)
            if beginning is not None and last.period.until is not None and beginning < last.period.until:
                return _Found(Period(beginning, last.period.until), last.next)
        return None

    def _read_beginning(self, index: int, day: int | None, end: datetime) -> datetime | None:
        """Return the first of two ends. What it leaves out, such as the month or the year, is that of the other end."""
        if day is not None:
            return _make_day(end, end.year, end.month, day)
        reader = _Reader(self._text, end)
        found = reader.read_period(index, is_marked=True)
        own = self.read_period(index, is_marked=True)
        is_relative = not self._has_month(index)
        chosen = own if is_relative else found
        return chosen.period.since if chosen is not None else None

    def _has_month(self, index: int) -> bool:
        return any(self._get_month(position) for position in range(index, index + 3))

    def read_period(self, index: int, *, is_marked: bool) -> _Found | None:
        """Read a period without a preposition. `is_marked`: one stands before it, so that a name alone is a time."""
        start = self._skip_article(index)
        has_article = start > index
        for read in (self._read_date, self._read_day_word, self._read_this_or_last, self._read_ago):
            found = read(start)
            if found is not None:
                return found
        if not is_marked:
            return None
        return self._read_name(start) if not has_article or self._get_unit(start) == "weekend" else None

    def _read_date(self, index: int) -> _Found | None:
        token = self._get(index)
        if token.kind == "iso":
            year, month, *days = map(int, token.text.split("-"))
            if days:
                return self._found_day(_make_day(self._today, year, month, days[0]), index + 1)
            return self._found_month(_make_day(self._today, year, month, 1), index + 1)
        if self._get_day(index):
            after = index + 2 if self._is(index + 1, "of_words") else index + 1
            month = self._get_month(after, with_short=True)
            return self._read_day_of_month(month, self._get_day(index), after + 1) if month else None
        month = self._get_month(index, with_short=True)
        if month and self._get_day(index + 1):
            return self._read_day_of_month(month, self._get_day(index + 1), index + 2)
        after = index + 2 if self._is(index + 1, "of_words") else index + 1
        if month and (year := self._get_year(after)):
            return self._found_month(_make_day(self._today, year, month, 1), after + 1)
        return None

    def _read_day_of_month(self, month: int, day: int, after: int) -> _Found | None:
        """Read the year of a date. Without a year it is the latest such day that is not in the future."""
        if self._get(after).text == "," and self._get_year(after + 1):
            after += 1
        if year := self._get_year(after):
            return self._found_day(_make_day(self._today, year, month, day), after + 1)
        for year in range(self._now.year, self._now.year - 9, -1):
            found = _make_day(self._today, year, month, day)
            if found is not None and found <= self._now:
                return self._found_day(found, after)
        return None

    def _read_day_word(self, index: int) -> _Found | None:
        """Read "today", "yesterday evening" or "the day before yesterday"."""
        days = next((back for back, words in enumerate(_DAY_WORDS) if self._is(index, words)), None)
        after = index + 1
        if self._get_unit(index) == "day" and self._is(index + 1, "before") and self._is(index + 2, "yesterday"):
            days, after = 2, index + 3
        if days is None:
            return None
        return self._read_day_part(self._today - timedelta(days=days), after)

    def _read_day_part(self, day: datetime, after: int) -> _Found:
        part = self._label_of(after, "day_parts")
        if part is None:
            return _Found(_make_days(day, 1), after)
        first, last = _DAY_PARTS[part]
        return _Found(Period(day + timedelta(hours=first), day + timedelta(hours=last)), after + 1)

    def _read_this_or_last(self, index: int) -> _Found | None:
        is_this, is_last, is_past = (self._is(index, words) for words in ("this", "last", "past"))
        if not (is_this or is_last or is_past):
            return None
        after = index + 1
        if not is_this:
            count, after = self._read_count(after)
            unit = self._get_unit(after)
            if unit and unit != "weekend" and (count or is_past):
                return _Found(Period(self._go_back(unit, count or 1), None), after + 1)
            if count:
                return None
        if part := self._label_of(after, "day_parts"):
            # "Last night" began yesterday.
            day = self._today - timedelta(days=1) if not is_this else self._today
            return self._read_day_part(day, after) if is_this or part == "night" else None
        if unit := self._get_unit(after):
            return self._read_unit(unit, after + 1, back=0 if is_this else 1) if unit != "hour" else None
        if month := self._get_month(after):
            return self._read_last_month(month, after + 1, is_this=is_this)
        weekday = self._label_of(after, "weekdays")
        if weekday is None:
            return None
        if is_this:
            monday = self._today - timedelta(days=self._today.weekday())
            return self._read_day_part(monday + timedelta(days=_WEEKDAYS.index(weekday)), after + 1)
        return self._read_weekday(weekday, after + 1)

    def _read_last_month(self, month: int, after: int, *, is_this: bool) -> _Found | None:
        beginning = self._today.replace(day=1, month=month)
        if not is_this and (self._today.year, month) >= (self._today.year, self._today.month):
            beginning = beginning.replace(year=beginning.year - 1)
        return self._found_month(beginning, after)

    def _read_unit(self, unit: str, after: int, back: int) -> _Found:
        """Return this week, last month and so on, as a period of the calendar."""
        if unit == "weekend":
            saturday = self._today - timedelta(days=self._today.weekday() - 5 + 7 * back)
            return _Found(_make_days(saturday, 2), after)
        beginning = _shift(_truncate(self._today, unit), unit, -back)
        return _Found(Period(beginning, _shift(beginning, unit, 1)), after)

    def _read_ago(self, index: int) -> _Found | None:
        """Read "two weeks ago" or "vor zwei Wochen" as the week of that day; "three days ago" is that day."""
        is_before = self._is(index, "ago_before")
        count, after = self._read_count(index + 1 if is_before else index)
        unit = self._get_unit(after)
        if not count or unit is None or unit == "weekend" or not (is_before or self._is(after + 1, "ago")):
            return None
        after += 1 if is_before else 2
        if unit == "hour":
            hour, moment = timedelta(hours=1), self._now - timedelta(hours=count)
            return _Found(Period(moment - hour, moment + hour), after)
        beginning = _truncate(_shift(self._today, unit, -count), unit)
        return _Found(Period(beginning, _shift(beginning, unit, 1)), after)

    def _read_name(self, index: int) -> _Found | None:
        """Read what is a time only after a preposition: a month, a weekday, a year, "the weekend" or 3.5.2026."""
        if self._get(index).kind == "dotted":
            day, month, year = map(int, self._get(index).text.split("."))
            return self._found_day(_make_day(self._today, year, month, day), index + 1)
        if month := self._get_month(index):
            beginning = self._today.replace(day=1, month=month)
            if beginning > self._now:
                beginning = beginning.replace(year=beginning.year - 1)
            return self._found_month(beginning, index + 1)
        if (weekday := self._label_of(index, "weekdays")) is not None:
            return self._read_weekday(weekday, index + 1)
        if year := self._get_year(index):
            return _Found(Period(_make_day(self._today, year, 1, 1), _make_day(self._today, year + 1, 1, 1)), index + 1)
        if self._get_unit(index) == "weekend":
            return self._read_unit("weekend", index + 1, back=0 if self._today.weekday() >= 5 else 1)
        return None

    def _read_weekday(self, weekday: str, after: int) -> _Found:
        """Return the last such day before today."""
        days = (self._today.weekday() - _WEEKDAYS.index(weekday)) % 7 or 7
        return self._read_day_part(self._today - timedelta(days=days), after)

    def _read_count(self, index: int) -> tuple[int, int]:
        """Return a number in digits or words and the index after it; 0 if there is none."""
        token = self._get(index)
        if token.kind == "number":
            return int(token.text), index + 1
        if (label := self._label_of(index, "numbers")) is None:
            return 0, index
        count = _COUNTS[label]
        # "a couple of weeks", "a few days"
        following = self._label_of(index + 1, "numbers") if label == "one" else None
        if following is not None:
            count, index = _COUNTS[following], index + 1
        return count, index + 2 if self._is(index + 1, "of_words") else index + 1

    def _go_back(self, unit: str, count: int) -> datetime:
        """Return the beginning of the last `count` days, weeks and so on, which end now."""
        return _shift(self._now if unit == "hour" else self._today, unit, -count)

    def _skip_article(self, index: int) -> int:
        return index + 1 if self._is(index, "articles") else index

    def _get(self, index: int) -> _Token:
        return self.tokens[index] if 0 <= index < len(self.tokens) else _Token("", "", 0, 0)

    def _is(self, index: int, words: str) -> bool:
        return self._get(index).text in _vocabulary()[words]

    def _is_number(self, index: int) -> bool:
        return self._get(index).kind == "number"

    def _label_of(self, index: int, section: str) -> str | None:
        return _labels(section).get(self._get(index).text)

    def _get_unit(self, index: int) -> str | None:
        return self._label_of(index, "units")

    def _get_day(self, index: int) -> int:
        """Return the number of a day in a month, or 0."""
        token = self._get(index)
        return int(token.text) if token.kind == "number" and len(token.text) <= 2 and 1 <= int(token.text) <= 31 else 0

    def _get_year(self, index: int) -> int:
        token = self._get(index)
        return int(token.text) if token.kind == "number" and token.text.isdigit() and int(token.text) in _YEARS else 0

    def _get_month(self, index: int, *, with_short: bool = False) -> int:
        """Return the number of a month, or 0. A short name, such as "Jan", may also be the name of a person."""
        label = self._label_of(index, "months") or (self._label_of(index, "short_months") if with_short else None)
        return _MONTHS.index(label) + 1 if label else 0

    def _found_day(self, day: datetime | None, after: int) -> _Found | None:
        return _Found(_make_days(day, 1), after) if day is not None else None

    def _found_month(self, beginning: datetime | None, after: int) -> _Found | None:
        if beginning is None:
            return None
        return _Found(Period(beginning, _shift(beginning, "month", 1)), after)


@cache
def _vocabulary() -> dict[str, frozenset[str]]:
    return {name: word_set(f"time.{name}") for name in _LISTS}


@cache
def _labels(section: str) -> dict[str, str]:
    """Return the label of each word of a section: "juli" is `july`."""
    return {word: label for label, words in word_sets(f"time.{section}").items() for word in words}


def _open(period: Period, words: str) -> Period:
    """Return the time since, after, before or until a period."""
    match words:
        case "since":
            return Period(period.since, None)
        case "after":
            return Period(period.until, None)
        case "before":
            return Period(None, period.since)
    return Period(None, period.until)


def _parse_iso_time(text: str, now: datetime) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)


def _make_day(like: datetime, year: int, month: int, day: int) -> datetime | None:
    """Return the beginning of a day in the time zone of `like`, or None if there is no such day."""
    try:
        return datetime.combine(date(year, month, day), time.min, like.tzinfo)
    except ValueError:
        return None


def _make_days(first: datetime, count: int) -> Period:
    return Period(first, first + timedelta(days=count))


def _truncate(day: datetime, unit: str) -> datetime:
    """Return the beginning of the week, month or year of a day."""
    match unit:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "year":
            return day.replace(day=1, month=1)
    return day


def _shift(moment: datetime, unit: str, count: int) -> datetime:
    """Return the time some hours, days, weeks, months or years later. A day that a month lacks becomes its last day."""
    if unit in ("month", "year"):
        months = moment.year * 12 + moment.month - 1 + count * (12 if unit == "year" else 1)
        year, month = divmod(months, 12)
        for day in range(moment.day, moment.day - 4, -1):
            try:
                return moment.replace(year=year, month=month + 1, day=day)
            except ValueError:
                continue
        raise OverflowError
    return moment + timedelta(**{f"{unit}s": count})


def _catch_overflow(compute: Callable[[], _T]) -> _T | None:
    """Return None if a time is out of range, such as 9999 years ago."""
    try:
        return compute()
    except (OverflowError, ValueError):
        return None
