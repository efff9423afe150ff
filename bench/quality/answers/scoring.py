"""Score answers: read the verdict of a judge, and compare words with the correct answer (F1)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_LABEL = re.compile(r'"?label"?\s*[:=]\s*"?(correct|wrong)\b', re.IGNORECASE)
_YES_NO = re.compile(r"\b(yes|no|correct|wrong|incorrect)\b", re.IGNORECASE)
_NO_ANSWER = re.compile(
    r"no information|not (?:mentioned|available|stated|said|known)|(?:do|does) not (?:know|say|tell|mention)|"
    r"don't know|doesn't (?:say|tell|mention)|unknown|cannot (?:be answered|tell|say)",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_ARTICLES = frozenset({"a", "an", "the", "and"})


def parse_verdict(text: str) -> bool | None:
    """Return what a judge decided: `yes`, `no`, or a label CORRECT or WRONG; None if the text says neither."""
    match = _LABEL.search(text) or _YES_NO.search(text)
    return None if match is None else match[1].lower() in ("yes", "correct")


def says_unknown(response: str) -> bool:
    """Return whether a response says that the information is missing."""
    return _NO_ANSWER.search(response) is not None


def split_words(text: str) -> list[str]:
    """Return the words of an answer in lower case, without articles and punctuation. `1,000` is one word."""
    words = _WORD.findall(text.replace(",", "").lower())
    return [word for word in words if word not in _ARTICLES]


def token_f1(response: Sequence[str], answer: Sequence[str]) -> float:
    """Return the harmonic mean of the precision and the recall of the words of a response."""
    common = sum((Counter(response) & Counter(answer)).values())
    if not common:
        return 0.0
    precision, recall = common / len(response), common / len(answer)
    return 2 * precision * recall / (precision + recall)


def list_f1(response: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]) -> float:
    """Return the mean over the parts of the correct answer of the best F1 of any part of the response."""
    if not answers:
        return 0.0
    return sum(max((token_f1(part, answer) for part in response), default=0.0) for answer in answers) / len(answers)
