"""The time when a file was written: in its text, in its name, or from the disk."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rem.ingest.dates import find_day_in_name, find_day_in_title, find_written_at
from rem.ingest.models import FetchedFile
from rem.ingest.readers.markdown import read_markdown

DAY = datetime(2026, 11, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "name",
    [
        "2026-11-09.md",
        "daily/2026_11_09.md",
        "2026.11.09.md",
        "2026-11-09-call.md",
        "call 20261109.txt",
        "2026-11-09 α.md",
    ],
)
def test_name_begins_or_ends_with_a_day(name: str) -> None:
    assert find_day_in_name(name) == DAY


@pytest.mark.parametrize(
    "name",
    [
        "notes.md",
        "2026-11-09/plan.md",
        "2026-13-09.md",
        "2026-02-30.md",
        "2026-1109.md",
        "120261109.md",
        "202611091.md",
        "part-12345678.md",
        "1970-01-01.md",
        "a-2026-11-09-b.md",
        "٢٠٢٦-١١-٠٩.md",
        "",
    ],
)
def test_other_numbers_in_a_name_are_no_day(name: str) -> None:
    assert find_day_in_name(name) is None


@pytest.mark.parametrize(
    ("text", "modified_at", "written_at"),
    [
        ("Text.", datetime(2026, 11, 16, 9, tzinfo=UTC), DAY),
        ("Text.", None, DAY),
        # Written on that day: the time of day is known, too.
        ("Text.", datetime(2026, 11, 9, 18, tzinfo=UTC), datetime(2026, 11, 9, 18, tzinfo=UTC)),
        # A plan for a day that was still to come.
        ("Text.", datetime(2026, 11, 2, 18, tzinfo=UTC), datetime(2026, 11, 2, 18, tzinfo=UTC)),
        ("---\ndate: 2026-10-01\n---\nText.", datetime(2026, 11, 16, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)),
    ],
)
def test_written_at_of_a_dated_note(text: str, modified_at: datetime | None, written_at: datetime) -> None:
    file = FetchedFile("daily/2026-11-09.md", "file:///daily/2026-11-09.md", text.encode(), modified_at=modified_at)
    assert find_written_at(file, read_markdown(file)) == written_at


@pytest.mark.parametrize(
    "title",
    [
        "2026-11-09",
        "Standup 2026-11-09",
        "9 November 2026",
        "Monday, 9 November 2026: planning",
        "Mon 9 Nov 2026",
        "November 9, 2026",
        "Nov. 9th, 2026 call with Ada",
        "Notes of 9th Nov 2026",
    ],
)
def test_title_begins_or_ends_with_a_day(title: str) -> None:
    assert find_day_in_title(title) == DAY


@pytest.mark.parametrize(
    "title",
    [
        "",
        "Notes",
        "November 2026",
        "9 November",
        "What happened on 9 November 2026 in Rome",
        "31 February 2026",
        "9 May 1203",
    ],
)
def test_other_words_in_a_title_are_no_day(title: str) -> None:
    assert find_day_in_title(title) is None


def test_first_heading_dates_a_note_that_was_copied_later() -> None:
    copied_at = datetime(2026, 11, 16, 9, tzinfo=UTC)
    file = FetchedFile("notes/call.md", "file:///notes/call.md", b"# Call, 9 Nov 2026\nText.", modified_at=copied_at)
    assert find_written_at(file, read_markdown(file)) == DAY
