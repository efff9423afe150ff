"""Recognise English queries about time, and texts that mention a time. Other languages are not recognised."""

from __future__ import annotations

import re

# "Last week" is relative to the day of the query. The texts about it use other words.
_RELATIVE_TIME = re.compile(r"\b(ago|days?|weeks?|months?|years?|last|past|recent|recently|times?)\b", re.IGNORECASE)
_TIME_QUESTION = re.compile(
    r"\bwhen\b|how long|how many (days|weeks|months|years)|what (date|day|time|year|month)", re.IGNORECASE
)
_PERIOD = r"(days?|weeks?|weekends?|months?|years?)"
_SEASON = r"(spring|summer|fall|autumn|winter)"
_WEEKDAY = r"((mon|tues|wednes|thurs|fri|satur|sun)day)"
_MONTH = r"(jan(uary)?|feb(ruary)?|march|april|june|july|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)"
_NUMBER = r"(a|one|two|three|four|five|six|few|couple|\d+)"
_TIME_EXPRESSION = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|ago|recently|since"
    rf"|(last|next|this) ({_PERIOD}|{_SEASON}|{_WEEKDAY}|night|morning)"
    rf"|{_MONTH}|(19|20)\d\d|{_NUMBER} (of )?{_PERIOD})\b",
    re.IGNORECASE,
)


def asks_for_time(question: str) -> bool:
    """Return whether a query asks for a time."""
    return _TIME_QUESTION.search(question) is not None


def find_relative_time_words(question: str) -> str:
    """Return the words of relative time in a query ("last", "week"), joined by spaces."""
    return " ".join(match.group() for match in _RELATIVE_TIME.finditer(question))


def mentions_time(text: str) -> bool:
    """Return whether a text mentions a time."""
    return _TIME_EXPRESSION.search(text) is not None
