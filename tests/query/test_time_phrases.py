"""Times in plain words become periods of the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from rem.query.time_phrases import find_time_phrase, format_time, resolve_time

NOW = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
"""A Monday."""


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("what happened in July?", "2026-07-01", "2026-08-01"),
        ("what happened in December?", "2025-12-01", "2026-01-01"),
        ("notes from March 2026", "2026-03-01", "2026-04-01"),
        ("notes of Jan 2026", "2026-01-01", "2026-02-01"),
        ("in 2025", "2025-01-01", "2026-01-01"),
        ("during 2026-07", "2026-07-01", "2026-08-01"),
        ("today", "2026-11-16", "2026-11-17"),
        ("yesterday", "2026-11-15", "2026-11-16"),
        ("the day before yesterday", "2026-11-14", "2026-11-15"),
        ("this morning", "2026-11-16", "2026-11-16T12:00+00:00"),
        ("last night", "2026-11-15T18:00+00:00", "2026-11-16T06:00+00:00"),
        ("this week", "2026-11-16", "2026-11-23"),
        ("last week", "2026-11-09", "2026-11-16"),
        ("last weekend", "2026-11-14", "2026-11-16"),
        ("at the weekend", "2026-11-14", "2026-11-16"),
        ("last month", "2026-10-01", "2026-11-01"),
        ("last year", "2025-01-01", "2026-01-01"),
        ("last March", "2026-03-01", "2026-04-01"),
        ("last November", "2025-11-01", "2025-12-01"),
        ("on Monday", "2026-11-09", "2026-11-10"),
        ("last Sunday", "2026-11-15", "2026-11-16"),
        ("on Friday evening", "2026-11-13T17:00+00:00", "2026-11-14"),
        ("in the last 3 days", "2026-11-13", None),
        ("over the past week", "2026-11-09", None),
        ("in the past few months", "2026-08-16", None),
        ("three days ago", "2026-11-13", "2026-11-14"),
        ("two weeks ago", "2026-11-02", "2026-11-09"),
        ("a couple of months ago", "2026-09-01", "2026-10-01"),
        ("an hour ago", "2026-11-16T07:30+00:00", "2026-11-16T09:30+00:00"),
        ("on 3 May", "2026-05-03", "2026-05-04"),
        ("on May 3rd, 2025", "2025-05-03", "2025-05-04"),
        ("on the 3rd of May", "2026-05-03", "2026-05-04"),
        ("on Dec 24", "2025-12-24", "2025-12-25"),
        ("on 29 February", "2024-02-29", "2024-03-01"),
        ("on 2026-05-03", "2026-05-03", "2026-05-04"),
        ("between 3 and 10 May", "2026-05-03", "2026-05-11"),
        ("between 28 April and 3 May 2025", "2025-04-28", "2025-05-04"),
        ("between March and May 2025", "2025-03-01", "2025-06-01"),
        ("from November to February", "2025-11-01", "2026-03-01"),
        ("3–10 May", "2026-05-03", "2026-05-11"),
        ("from Monday to Wednesday", "2026-11-09", "2026-11-12"),
        ("since Friday", "2026-11-13", None),
        ("since July 2025", "2025-07-01", None),
        ("before 2026-03-01", None, "2026-03-01"),
        ("until Friday", None, "2026-11-14"),
        ("after 5 June", "2026-06-06", None),
        ("im Juli", "2026-07-01", "2026-08-01"),
        ("am Montag", "2026-11-09", "2026-11-10"),
        ("gestern Abend", "2026-11-15T17:00+00:00", "2026-11-16"),
        ("heute früh", "2026-11-16", "2026-11-16T12:00+00:00"),
        ("vorgestern", "2026-11-14", "2026-11-15"),
        ("letzte Woche", "2026-11-09", "2026-11-16"),
        ("letzten Monat", "2026-10-01", "2026-11-01"),
        ("in den letzten drei Tagen", "2026-11-13", None),
        ("vor zwei Wochen", "2026-11-02", "2026-11-09"),
        ("seit Freitag", "2026-11-13", None),
        ("vom 3. bis 10. Mai", "2026-05-03", "2026-05-11"),
        ("zwischen dem 3. und 10. Mai", "2026-05-03", "2026-05-11"),
        ("am 3. Mai 2026", "2026-05-03", "2026-05-04"),
        ("am 03.05.2026", "2026-05-03", "2026-05-04"),
    ],
)
def test_phrase_is_a_period(text: str, since: str | None, until: str | None) -> None:
    found = find_time_phrase(text, NOW)
    assert found is not None
    bounds = (found.since, found.until)
    assert tuple(bound and format_time(bound) for bound in bounds) == (since, until)


@pytest.mark.parametrize(
    "text",
    [
        "What did April say?",
        "letters from April",
        "a letter from Jan",
        "may I ask",
        "the July report",
        "in July's report",
        "in 3 days",
        "in two weeks",
        "next week",
        "tomorrow",
        "the last name of Marta",
        "the last 5 messages",
        "version 1.2.2024",
        "room 2025",
        "on 2026-02-30",
        "9999 years ago",
        "",
        "🙂 " * 10,
    ],
)
def test_other_words_are_no_time(text: str) -> None:
    assert find_time_phrase(text, NOW) is None


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-07-01", "2026-07-01T00:00:00+00:00"),
        ("2026-07", "2026-07-01T00:00:00+00:00"),
        ("2026-07-01T10:00", "2026-07-01T10:00:00+00:00"),
        ("2026-07-01 10:00:00Z", "2026-07-01T10:00:00+00:00"),
        ("2026-07-01T10:00+02:00", "2026-07-01T10:00:00+02:00"),
        ("yesterday", "2026-11-15T00:00:00+00:00"),
        ("last week", "2026-11-09T00:00:00+00:00"),
        ("July", "2026-07-01T00:00:00+00:00"),
        ("2025", "2025-01-01T00:00:00+00:00"),
        ("7d", "2026-11-09T09:30:00+00:00"),
        ("12h", "2026-11-15T21:30:00+00:00"),
        ("3m", "2026-08-16T09:30:00+00:00"),
    ],
)
def test_time_is_the_beginning_of_a_period(text: str, moment: str) -> None:
    found = resolve_time(text, NOW)
    assert found is not None
    assert found.isoformat() == moment


@pytest.mark.parametrize("text", ["", "soon", "last week or so", "2026-13-01", "2026-07-01T25:00", "9999y", "7 days"])
def test_other_texts_name_no_time(text: str) -> None:
    assert resolve_time(text, NOW) is None


def test_day_is_that_of_the_time_zone() -> None:
    late = datetime(2026, 11, 16, 23, 30, tzinfo=UTC)
    for zone, start in (
        (UTC, "2026-11-15T00:00:00+00:00"),
        (timezone(timedelta(hours=2)), "2026-11-16T00:00:00+02:00"),
    ):
        found = resolve_time("yesterday", late.astimezone(zone))
        assert found is not None
        assert found.isoformat() == start


def test_day_with_a_clock_change_begins_at_midnight() -> None:
    monday = datetime(2026, 10, 26, 8, tzinfo=ZoneInfo("Europe/Berlin"))
    found = find_time_phrase("yesterday", monday)
    assert found is not None
    assert found.since == datetime(2026, 10, 25, tzinfo=ZoneInfo("Europe/Berlin"))
    assert found.until == datetime(2026, 10, 26, tzinfo=ZoneInfo("Europe/Berlin"))


def test_many_time_words_are_read_quickly() -> None:
    assert find_time_phrase("between " * 100_000, NOW) is None
    assert find_time_phrase("3 " * 100_000, NOW) is None


@pytest.mark.parametrize("text", ["9999-12-31", "9999-12", "December 9999"])
def test_time_after_the_last_year_is_none(text: str) -> None:
    assert resolve_time(text, datetime(2026, 11, 18, tzinfo=UTC)) is None
