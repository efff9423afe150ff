"""Cookies are read in linear time, and no header hides or changes one."""

from __future__ import annotations

import time

import pytest

from rem.auth.headers import read_cookie


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("rem_session=abc", "abc"),
        ("a=1; rem_session=abc; b=2", "abc"),
        (" rem_session = abc ;", "abc"),
        ("rem_session=first; rem_session=second", "first"),
        ("rem_session=a=b==", "a=b=="),
        ("rem_session", None),
        ("not_rem_session=abc; x=rem_session", None),
        ("", None),
    ],
)
def test_cookie_is_found_by_its_exact_name(header: str, value: str | None) -> None:
    assert read_cookie(header, "rem_session") == value


@pytest.mark.parametrize("part", ["\\\\", "\\1", ";", "rem_session;", '"', "a=", "&"])
def test_hostile_header_takes_linear_time(part: str) -> None:
    started = time.process_time()
    read_cookie('rem_session="' + part * (60_000 // len(part)) + '"; ', "rem_session")
    assert time.process_time() - started < 0.5
