"""Relative dates of a sentence are resolved against the day on which it was said."""

from __future__ import annotations

from datetime import date

import pytest

from rem.answers.dates import add_dates, resolve

WEDNESDAY = date(2026, 11, 18)


@pytest.mark.parametrize(
    ("expression", "day"),
    [
        ("yesterday", "17 Nov 2026"),
        ("tonight", "18 Nov 2026"),
        ("Tomorrow", "19 Nov 2026"),
        ("the day before yesterday", "16 Nov 2026"),
        ("last Friday", "13 Nov 2026"),
        ("last Wednesday", "11 Nov 2026"),
        ("last Monday", "16 Nov 2026"),
        ("next Friday", "27 Nov 2026"),
        ("last week", "9 Nov to 15 Nov 2026"),
        ("next weekend", "28 Nov to 29 Nov 2026"),
        ("last month", "October 2026"),
        ("next month", "December 2026"),
        ("last year", "2025"),
        ("three days ago", "15 Nov 2026"),
        ("2 weeks ago", "2 Nov to 8 Nov 2026"),
        ("11 months ago", "December 2025"),
        ("in two days", "20 Nov 2026"),
        ("in 14 months", "January 2028"),
    ],
)
def test_relative_expression_becomes_a_date(expression: str, day: str) -> None:
    assert resolve(expression, WEDNESDAY) == day


@pytest.mark.parametrize("text", ["on Friday", "in July", "12 May 2026", "some day", ""])
def test_what_has_two_meanings_or_no_relative_date_stays(text: str) -> None:
    assert resolve(text, WEDNESDAY) is None
    assert add_dates(text, WEDNESDAY) == text


def test_date_before_the_first_year_is_not_resolved() -> None:
    assert resolve("999 years ago", date(500, 1, 1)) is None


def test_date_stands_behind_each_expression() -> None:
    text = "We moved last Friday, and the piano comes tomorrow."
    assert add_dates(text, WEDNESDAY) == (
        "We moved last Friday (13 Nov 2026), and the piano comes tomorrow (19 Nov 2026)."
    )
