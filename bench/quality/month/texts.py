"""Compare answers with what is expected: ignore case, format and spelt numbers, and read dates in all their forms."""

from __future__ import annotations

import calendar
import re
import unicodedata
from datetime import date
from functools import cache, lru_cache

from rem.text import collapse_spaces

DATE_PREFIX = "date:"
"""An expected text such as `date:2026-05-08` stands for all usual ways to write this day."""
_NUMBERS = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty",
)
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)}
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_NUMBERS)})\b")
_MONTHS = [name.casefold() for name in calendar.month_name[1:]]
_LINK = re.compile(r"!?\[\[(?:[^\]|]*\|)?([^\]]*)\]\]|!?\[([^\]]*)\]\([^)]*\)")
_LIST_NUMBER = re.compile(r"^\s*\d+[.)] ", re.MULTILINE)
_MARKS = re.compile(r"[*`|~#>]|(?<!\w)_+|_+(?!\w)")
_THOUSANDS = re.compile(r"(?<=\d)[,\u00a0\u202f](?=\d{3}(?!\d))")


@lru_cache(maxsize=256)
def plain(text: str, *, join_thousands: bool = True) -> str:
    """Return the text in lower case on one line, without accents, Markdown marks and separators of thousands."""
    text = _drop_marks(text)
    decomposed = unicodedata.normalize("NFKD", _THOUSANDS.sub("", text) if join_thousands else text).casefold()
    text = "".join(char for char in decomposed if not unicodedata.combining(char))
    text = re.sub("[‘’ʼ]", "'", re.sub("[“”]", '"', re.sub("[‐‑‒–—−]", "-", text)))
    return collapse_spaces(_NUMBER_WORD.sub(lambda word: _DIGITS[word[1]], text))


def visible_words(text: str) -> list[str]:
    """Return the words that a reader sees: no Markdown marks, no numbers of list items, no rules of tables."""
    return [word for word in _drop_marks(text).split() if re.search(r"\w", word)]


def _drop_marks(text: str) -> str:
    linked = _LINK.sub(lambda link: link[1] or link[2] or "", _LIST_NUMBER.sub("", text))
    return _MARKS.sub(" ", linked)


def holds(text: str, expected: str) -> bool:
    """Return whether a text contains an expected text as whole words. A `date:` is found in any of its forms."""
    pattern = _pattern(expected)
    # The commas of `beer,6,182` separate cells.
    return any(pattern.search(plain(text, join_thousands=joined)) for joined in (True, False))


@cache
def _pattern(expected: str) -> re.Pattern[str]:
    if expected.startswith(DATE_PREFIX):
        return _date_pattern(date.fromisoformat(expected.removeprefix(DATE_PREFIX)))
    words = re.escape(plain(expected))
    # A number is whole: 14 is neither in 14.50 nor in 3.14. A comma may separate the cells of a table.
    return re.compile(rf"(?<!\w)(?<!\d[.:]){words}(?!\w)(?![.:]\d)")


def _date_pattern(day: date) -> re.Pattern[str]:
    month = _MONTHS[day.month - 1]
    name = month if len(month) < 5 else rf"{month[:3]}(?:{month[3]}|{month[3:]})?\.?"
    number = rf"0?{day.day}(?:st|nd|rd|th)?\.?"
    forms = (
        rf"{number}(?: of)? {name}",
        rf"{name} (?:the )?{number}",
        day.isoformat(),
        rf"0?{day.day}([./])0?{day.month}(?:\1(?:{day.year})?)?",
    )
    return re.compile(rf"(?<![\w.])(?:{'|'.join(forms)})(?:(?!\w)|(?=t\d))")
