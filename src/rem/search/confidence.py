"""Estimate how sure it is that the best row answers a question, from what SEARCH and the reader say together.

Neither knows it alone: a search score depends on the wording, and the reader sees one row at a time. A logistic
regression weighs both, and whether the row names what the question names. Its weights are in
`models/confidence.json`, with the command that fits them (`training/fit_confidence.py`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from rem.search.models.files import CONFIDENCE, load_tokenizer, read_file
from rem.text import FUNCTION_WORDS, fold_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from rem.search.reader import RowReading, RowText

RELEVANCE_WEIGHT = 0.06
"""The factor of the reader's logit, which is added to the score of SEARCH."""
FEATURES = ("score", "relevance", "answers", "margin", "span", "best_answers", "named", "named_nearby", "others_named")
MIN_RARE_TOKEN = 6000
"""The tokenizer's words are in the order of their frequency: later ones name something."""
COMPARED_LETTERS = 5
MAX_LOGIT = 8.0
_WORD = re.compile(r"[^\W_]+")


def choose_best(scores: Sequence[float], readings: Sequence[RowReading | None]) -> int:
    """Return the place of the row that most likely answers. Rows that were not read come after all others."""
    sums = _add_relevance(scores, readings)
    return max(range(len(sums)), key=sums.__getitem__)


def estimate_confidence(
    question: str, rows: Sequence[RowText], readings: Sequence[RowReading | None], scores: Sequence[float]
) -> float:
    """Return how sure it is that the best row (`choose_best`) answers the question, from 0 to 1; 0 without rows."""
    features = find_features(question, rows, readings, scores)
    if features is None:
        return 0.0
    weights = _load_weights()
    return 1 / (1 + math.exp(-weights["bias"] - sum(weights[name] * value for name, value in features.items())))


def find_features(
    question: str, rows: Sequence[RowText], readings: Sequence[RowReading | None], scores: Sequence[float]
) -> Mapping[str, float] | None:
    """Return what the regression weighs, or None if no row was read."""
    read = [reading for reading in readings if reading is not None]
    if not read:
        return None
    sums = _add_relevance(scores, readings)
    best = choose_best(scores, readings)
    reading = readings[best] or read[0]
    asked = list(_list_names(_load_tokenizer(), question))
    named, nearby = (_count_named(asked, text) for text in (rows[best].text, _join(rows[best])))
    values = (
        scores[best],
        bound_logit(reading.relevance),
        to_logit(reading.answers),
        sums[best] - max((total for place, total in enumerate(sums) if place != best), default=0.0),
        max(-MAX_LOGIT, reading.span_score),
        max(to_logit(other.answers) for other in read),
        named,
        nearby,
        max(_count_named(asked, _join(row)) for row in rows),
    )
    return dict(zip(FEATURES, values, strict=True))


def _add_relevance(scores: Sequence[float], readings: Sequence[RowReading | None]) -> list[float]:
    return [
        -math.inf if reading is None else score + RELEVANCE_WEIGHT * reading.relevance
        for score, reading in zip(scores, readings, strict=True)
    ]


def _join(row: RowText) -> str:
    return f"{row.heading} {row.before} {row.text}"


def _list_names(tokenizer: Tokenizer, question: str) -> Iterator[str]:
    """Yield the words of a question that name something: rare ones, numbers, and those with a capital letter."""
    for place, match in enumerate(_WORD.finditer(question)):
        word = match[0]
        folded = fold_text(word)
        if len(word) < 2 or folded in FUNCTION_WORDS:
            continue
        ids = tokenizer.encode(folded, add_special_tokens=False).ids
        is_rare = len(ids) > 1 or ids[0] >= MIN_RARE_TOKEN
        if is_rare or (place and word[0].isupper()) or any(letter.isdigit() for letter in word):
            yield folded[:COMPARED_LETTERS]


def _count_named(names: Sequence[str], text: str) -> float:
    """Return the share of names that a text has; 1 if there are none."""
    if not names:
        return 1.0
    said = {word[:COMPARED_LETTERS] for word in _WORD.findall(fold_text(text))}
    return sum(name in said for name in names) / len(names)


def bound_logit(logit: float) -> float:
    """Return a logit that is not beyond `MAX_LOGIT`."""
    return max(-MAX_LOGIT, min(MAX_LOGIT, logit))


def to_logit(share: float) -> float:
    """Return the bounded logit of a share from 0 to 1."""
    bounded = min(max(share, 1e-6), 1 - 1e-6)
    return bound_logit(math.log(bounded / (1 - bounded)))


@cache
def _load_tokenizer() -> Tokenizer:
    return load_tokenizer()


@cache
def _load_weights() -> Mapping[str, float]:
    weights: dict[str, float] = json.loads(read_file(CONFIDENCE))["weights"]
    return weights
