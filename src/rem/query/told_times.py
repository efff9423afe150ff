"""Find what somebody told about a time later: "Yesterday I went to the dentist" for "What did I do on Tuesday?"."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rem.query.answer_rows import get_text
from rem.query.list_questions import LONG_AGO
from rem.query.row_times import get_time
from rem.query.syntax_tree import Search
from rem.query.time_phrases import Period, find_time_phrase
from rem.text import split_sentences

MAX_DAYS = 8
"""Of a longer time, everybody tells something."""
MAX_SEARCHED_ROWS = 50
MAX_CONTENT_CHARS = 300
MAX_READ_SENTENCES = 20
"""Reading more of all rows would hold up other requests."""
_RELATIVE = "yesterday today tonight morning afternoon evening night week weekend"
_TABLES = ("messages", "resources")


def make_time_search(period: Period | None) -> Search | None:
    """Return a search for texts with words for the days of a period; None if it is too long, or open."""
    if period is None or period.since is None or period.until is None:
        return None
    days = (period.until - period.since).total_seconds() / timedelta(days=1).total_seconds()
    if not 0 < days <= MAX_DAYS:
        return None
    dates = [period.since + timedelta(days=number) for number in range(max(1, round(days)))]
    words = dict.fromkeys(word for date in dates for word in (f"{date:%A}", f"{date:%B}", str(date.day)))
    return Search(f"{_RELATIVE} {' '.join(words)}", mode="text", limit=MAX_SEARCHED_ROWS)


def list_told_rows(rows: list[dict[str, Any]], period: Period) -> list[dict[str, Any]]:
    """Return the rows that tell something about a period, in the columns of a list, oldest first."""
    told = [row for row in rows if row["table"] in _TABLES and _tells_about(row, period)]
    columns = ("table", "key", "happened_at")
    listed = [{**{name: row[name] for name in columns}, "content": get_text(row)[:MAX_CONTENT_CHARS]} for row in told]
    return sorted(listed, key=lambda row: get_time(row) or LONG_AGO)


def _tells_about(row: dict[str, Any], period: Period) -> bool:
    said_at = get_time(row)
    if said_at is None:
        return False
    sentences = split_sentences(get_text(row))[:MAX_READ_SENTENCES]
    phrases = (find_time_phrase(sentence, said_at) for sentence in sentences)
    return any(phrase is not None and _is_same_time(phrase.period, period) for phrase in phrases)


def _is_same_time(told: Period, asked: Period) -> bool:
    """Return whether a time is a part of another. "In November" tells nothing about one day of it."""
    if told.since is None or told.until is None or asked.since is None or asked.until is None:
        return False
    return asked.since < told.since + (told.until - told.since) / 2 < asked.until
