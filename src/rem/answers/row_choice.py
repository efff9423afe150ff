"""Choose the rows of a table that a question is about, from what the reader says of each row and the words it shares.

The reader sees one row at a time, so that its figures tell rows of one table apart, but not where to cut. A logistic
regression compares each row with the others of its table; another one says whether the table answers at all. Their
weights are in `search/models/tables.json`, with the command that fits them (`training/fit_tables.py`).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from rem.search.confidence import COMPARED_LETTERS, bound_logit, to_logit
from rem.search.models.files import TABLES, read_file
from rem.search.reader import MessageType, RowReading
from rem.text import FUNCTION_WORDS, fold_text, split_words

SINGLE = (MessageType.FACT, MessageType.YES_NO)
"""Questions that one row answers, mostly."""
ROW_FEATURES = (
    *("answers", "below best", "above mean", "relevance", "relevance below best", "relevance above mean"),
    *("shared", "shared below best", "many", "many, below best", "many, above mean", "many, shared below best"),
    *("spread", "many, spread", "place between", "many, place between", "no shared words"),
)
TABLE_FEATURES = ("answers", "relevance", "above mean", "shared", "known words", "single")


def find_row_features(
    question: str, kind: MessageType, texts: Sequence[str], readings: Sequence[RowReading]
) -> list[tuple[float, ...]]:
    """Return the features of each row; `texts` are the rows as they are read."""
    answers = [to_logit(reading.answers) for reading in readings]
    relevance = [bound_logit(reading.relevance) for reading in readings]
    shared = count_shared(question, texts)
    best, mean = max(answers), sum(answers) / len(answers)
    spread = best - min(answers)
    relevant, usual = max(relevance), sum(relevance) / len(relevance)
    most = max(shared)
    many = float(kind not in SINGLE)
    return [
        (
            *(a, a - best, a - mean, r, r - relevant, r - usual, s, s - most),
            *(many, many * (a - best), many * (a - mean), many * (s - most)),
            *(spread, many * spread, (a - best) / (spread + 1), many * (a - best) / (spread + 1), float(most == 0)),
        )
        for a, r, s in zip(answers, relevance, shared, strict=True)
    ]


def find_table_features(
    question: str, kind: MessageType, caption: str, texts: Sequence[str], readings: Sequence[RowReading]
) -> tuple[float, ...]:
    """Return the features of a table."""
    answers = [to_logit(reading.answers) for reading in readings]
    asked = _list_words(question)
    known = _list_words(" ".join([caption, *texts]))
    return (
        max(answers),
        max(bound_logit(reading.relevance) for reading in readings),
        max(answers) - sum(answers) / len(answers),
        max(count_shared(question, texts)),
        len(asked & known) / len(asked) if asked else 0.0,
        float(kind in SINGLE),
    )


def choose_rows(question: str, kind: MessageType, texts: Sequence[str], readings: Sequence[RowReading]) -> list[float]:
    """Return for each row how sure it is that the question is about it, from 0 to 1."""
    weights = _load_weights()["row"]
    return [_weigh(weights, ROW_FEATURES, row) for row in find_row_features(question, kind, texts, readings)]


def estimate_table(
    question: str, kind: MessageType, caption: str, texts: Sequence[str], readings: Sequence[RowReading]
) -> float:
    """Return how sure it is that the rows of a table answer the question, from 0 to 1."""
    features = find_table_features(question, kind, caption, texts, readings)
    return _weigh(_load_weights()["table"], TABLE_FEATURES, features)


def count_shared(question: str, texts: Sequence[str]) -> list[float]:
    """Return for each row how many of the question's words it has, of those that tell rows apart, from 0 to 1."""
    asked = _list_words(question)
    rows = [_list_words(text) & asked for text in texts]
    counts = Counter(word for row in rows for word in row)
    weights = {word: math.log(len(rows) / count) for word, count in counts.items() if count < len(rows)}
    total = sum(weights.values())
    return [sum(weights.get(word, 0.0) for word in row) / total if total else 0.0 for row in rows]


def _list_words(text: str) -> set[str]:
    words = (word for word in split_words(fold_text(text)) if word not in FUNCTION_WORDS)
    return {word[:COMPARED_LETTERS] for word in words}


def _weigh(weights: Mapping[str, float], names: Sequence[str], values: Sequence[float]) -> float:
    logit = weights["bias"] + sum(weights[name] * value for name, value in zip(names, values, strict=True))
    return 1 / (1 + math.exp(-bound_logit(logit)))


@cache
def _load_weights() -> Mapping[str, Mapping[str, float]]:
    weights: dict[str, dict[str, float]] = json.loads(read_file(TABLES))["weights"]
    return weights
