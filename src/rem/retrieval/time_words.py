"""Questions about time, and texts that answer them; in English, elsewhere nothing is recognised and nothing lost."""

from __future__ import annotations

import re

# "Last week" in a question is seen from when it is asked, and the texts that it is about say something else.
_RELATIVE = re.compile(r"\b(ago|days?|weeks?|months?|years?|last|past|recent|recently|times?)\b", re.IGNORECASE)
_ASKS = re.compile(
    r"\bwhen\b|how long|how many (days|weeks|months|years)|what (date|day|time|year|month)", re.IGNORECASE
)
_PERIOD = r"(days?|weeks?|weekends?|months?|years?)"
_SEASON = r"(spring|summer|fall|autumn|winter)"
_WEEKDAY = r"((mon|tues|wednes|thurs|fri|satur|sun)day)"
_MONTH = r"(jan(uary)?|feb(ruary)?|march|april|june|july|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)"
_NUMBER = r"(a|one|two|three|four|five|six|few|couple|\d+)"
_TELLS = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|ago|recently|since"
    rf"|(last|next|this) ({_PERIOD}|{_SEASON}|{_WEEKDAY}|night|morning)"
    rf"|{_MONTH}|(19|20)\d\d|{_NUMBER} (of )?{_PERIOD})\b",
    re.IGNORECASE,
)


def asks_for_time(question: str) -> bool:
    """Whether a question is about a time."""
    return _ASKS.search(question) is not None


def find_relative_time_words(question: str) -> str:
    """The words of a question that say little about the texts that answer it."""
    return " ".join(found.group() for found in _RELATIVE.finditer(question))


def mentions_time(text: str) -> bool:
    """Whether a text says when something was or will be."""
    return _TELLS.search(text) is not None
