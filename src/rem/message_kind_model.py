"""Estimate the kind of a message that the rules take for a statement, with a small trained model.

People ask without a question mark ("wifi password cabin", "where we off to"), and talk without saying anything to
remember ("what a day"). The words that tell this are too many for rules. The model is a table of weights of words and
pairs of words, learnt from weeks of everyday use (`training/train_message_kinds.py`). It knows English only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise

from rem.models.message import MessageKind

KINDS = (MessageKind.STATEMENT, MessageKind.QUESTION, MessageKind.COMMAND, MessageKind.SMALL_TALK)
"""The kinds in the order of the weights."""
MIN_WORDS = 2
"""A single word may be the name of anything."""
MAX_WORDS = 30
"""A longer message is never a mere question or small talk without a sign of it that the rules know."""
MIN_KNOWN_SHARE = 0.5
"""Share of the words that the model must know. A text in another language has fewer."""
MAX_COUNTED_WORDS = 12
_WORD = re.compile(r"[\w']+")
_NAME = re.compile(r"(?<!\A)(?<![.!?] )\b[A-Z][a-z]")
_ENDINGS = ("ed", "ing", "s", "ly", "n't")


def estimate_kind(text: str) -> tuple[MessageKind, float]:
    """Return the likeliest kind of a message without a question mark, and its probability from 0 to 1.

    A long text, a single word, and a text with mostly unknown words is a statement with the probability 1.
    """
    plain = text.replace("’", "'").strip()
    words = _WORD.findall(plain.lower())
    weights = _load_weights()
    known = sum(f"u={word}" in weights for word in words)
    if not MIN_WORDS <= len(words) <= MAX_WORDS or known < MIN_KNOWN_SHARE * len(words):
        return MessageKind.STATEMENT, 1.0
    totals = [0.0] * len(KINDS)
    for feature in find_features(plain):
        for place, weight in enumerate(weights.get(feature, ())):
            totals[place] += weight
    best = max(range(len(KINDS)), key=totals.__getitem__)
    return KINDS[best], 1 / sum(math.exp(total - totals[best]) for total in totals)


def find_features(text: str) -> Iterator[str]:
    """Yield what the model looks at: words and pairs of words, the first and the last ones, signs and length."""
    folded = text.lower()
    words = _WORD.findall(folded)
    yield "bias"
    yield f"n={min(len(words), MAX_COUNTED_WORDS)}"
    if text.endswith((".", "!")):
        yield "end"
    if any(sign.isdigit() for sign in text):
        yield "digit"
    if _NAME.search(text):
        yield "name"
    if folded == text:
        yield "lower"
    for place, word in enumerate(words[:3]):
        yield f"w{place}={word}"
    yield f"last={words[-1] if words else ''}"
    yield f"first={' '.join(words[:2])}"
    yield f"first={' '.join(words[:3])}"
    yield from {f"u={word}" for word in words}
    yield from {f"b={first} {second}" for first, second in pairwise(words)}
    yield from {f"ends={ending}" for ending in _ENDINGS if any(word.endswith(ending) for word in words)}


@cache
def _load_weights() -> dict[str, list[float]]:
    """Return the weights of each feature for the kinds."""
    weights: dict[str, list[float]] = json.loads(
        files("rem.rules").joinpath("message_kinds.json").read_text(encoding="utf-8")
    )
    return weights
