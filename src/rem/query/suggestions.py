"""The nearest valid form of what is nearly right."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST_KEYWORD = 24


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that the word is most likely a misspelling of."""
    if len(word) > _LONGEST_KEYWORD:
        return None
    by_upper = {choice.upper(): choice for choice in choices}
    # Two letters swapped weigh too much in a short word.
    swapped = [choice for choice in by_upper if sorted(choice) == sorted(word.upper())]
    close = swapped or get_close_matches(word.upper(), by_upper, n=1, cutoff=0.75)
    return by_upper[close[0]] if close else None


def nearest_number(word: str, low: float, high: float, fallback: float) -> float:
    """The number of a range that the word comes closest to."""
    try:
        number = abs(float(word.rstrip("%,").replace(",", "." if high == 1 else "")))
    except ValueError:
        return fallback
    if not math.isfinite(number):
        return high
    if high == 1 and 10 <= number <= 100:
        number /= 100  # a percentage
    return min(max(number, low), high)


def in_quotes(text: str) -> str:
    """The text as a string of the language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
