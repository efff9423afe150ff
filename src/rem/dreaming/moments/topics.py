"""Topics: what an episode is about, in two to five tags."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from rem.dreaming.entities.evidence import ORGANIZATION, PERSON
from rem.dreaming.entities.mentions import evidence_in
from rem.dreaming.moments.emotions import FEELING_WORDS
from rem.dreaming.secrets import without_secrets
from rem.dreaming.words import content_words, phrases, rarity

MOST_TOPICS = 5
_LONGEST_TAG = 40
_LEAST_SHARE = 0.35
"""Of the best topic's weight: what weighs less is mentioned, not a topic. Two are named in any case."""
_ACTION_ENDINGS = ("ing", "ed", "ly")
_ACTION_SHARE = 0.5
_PHRASE_SHARE = 1.6
_REMARK = re.compile(r"\[[^\]\n]{0,300}\](?!\()")
"""What somebody did while speaking, in brackets."""
_ADDRESS = re.compile(r"<?[^\s<>@]{1,64}@[^\s<>@]{1,255}>?|\b(?:https?|ftp)://\S+|\bwww\.\S+")
DOMAIN = re.compile(
    r"\b(?:[a-z0-9-]{1,63}\.){1,4}(?:com|org|net|io|ai|dev|app|co|edu|gov|example|test|local|de|at|ch|uk|eu|fr|nl|us|info)\b",
    re.IGNORECASE,
)
"""The name of a host or of whoever has it, which is no topic."""
_COMPANY_WORDS = "gmbh ltd inc llc llp plc corp ag kg ug co company limited incorporated sarl bv"
COMPANY_WORDS = frozenset(_COMPANY_WORDS.split())
"""What names of companies end in."""
_VERB_WORDS = (
    "moved named called loved liked hated brought bought sold sent paid met found lost left kept held built wrote read "
    "began begun became broke chose chosen drove driven ate eaten fell felt flew forgot forgotten grew knew led lent "
    "meant ran rode slept spent spoke spoken stood swam taught threw understood wore won lived visited arrived "
    "returned decided finished planned helped asked wanted needed tried prefer prefers preferred lives bring "
    "brings buy buys become becomes begin begins choose forget forgets happen happens remember remembers arrive "
    "arrives decide decides"
)
VERB_WORDS = frozenset(_VERB_WORDS.split())
"""What is done, which says little of what it is about."""
_FEWEST_OWN_WORDS = 2
_NUMBER_WORDS = frozenset(
    [
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "twenty",
        "thirty",
        "forty",
        "fifty",
        "sixty",
        "hundred",
        "thousand",
        "million",
        "billion",
        "half",
        "dozen",
        "couple",
        "second",
        "third",
        "fourth",
        "percent",
        "drei",
        "vier",
        "fünf",
        "zwölf",
        "cent",
        "mille",
    ]
)
_READ_FOR_NAMES = 20_000


def topics_of(texts: Iterable[tuple[str, float]], people: Iterable[str] = ()) -> list[str]:
    """The topics of texts, each of which counts for so much; the heaviest first, in kebab case.

    People are none, nor are organisations: those that are given, and those that the texts introduce. Nor are
    addresses, feelings and numbers. Where people's own words (a share of 1) have topics, what only an assistant says is
    none.
    """
    texts = [(without_secrets(text), share) for text, share in texts]
    others = {word for name in people for word in content_words(name)}
    others |= {word for text, _ in texts for word in _name_words(text[:_READ_FOR_NAMES])}
    others |= FEELING_WORDS | _NUMBER_WORDS | COMPANY_WORDS
    own: set[str] = set()
    words: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for whole, share in texts:
        text = DOMAIN.sub(" ", _ADDRESS.sub(" ", _REMARK.sub(" ", whole)))
        for word in content_words(text):
            if word not in others:
                words[word] += share  # type: ignore[assignment]
                if share >= 1:
                    own.add(word)
        for pair in phrases(text):
            if others.isdisjoint(pair):
                pairs[pair] += share  # type: ignore[assignment]
    if len(own) >= _FEWEST_OWN_WORDS:
        words = Counter({word: count for word, count in words.items() if word in own})
        pairs = Counter({pair: count for pair, count in pairs.items() if own.issuperset(pair)})
    weights = {word: _weight(word, count) for word, count in _in_singular(words).items()}
    for (first, second), count in pairs.items():
        if count >= 2:
            tag = f"{first}-{second}"
            weights[tag] = _PHRASE_SHARE * (_weight(first, count) + _weight(second, count)) / 2
    return _chosen(weights)


def _name_words(text: str) -> set[str]:
    """The words of the names of people and organisations that a text introduces."""
    return {
        word
        for evidence in evidence_in(text, 0)
        if evidence.entity_type in (PERSON, ORGANIZATION)
        for name in evidence.words
        for word in content_words(name)
    }


def _weight(word: str, count: float) -> float:
    is_action = word in VERB_WORDS or (word.isascii() and len(word) > 5 and word.endswith(_ACTION_ENDINGS))
    return (_ACTION_SHARE if is_action else 1.0) * rarity(word) * count / (count + 1.0)


def _in_singular(words: Counter[str]) -> Counter[str]:
    """The same counts with a plural under its singular, where both are there."""
    merged: Counter[str] = Counter()
    for word, count in words.items():
        singular = word[:-1] if len(word) > 3 and word.endswith("s") and word[:-1] in words else word
        merged[singular] += count
    return merged


def _chosen(weights: dict[str, float]) -> list[str]:
    chosen: list[str] = []
    # The longer of two that weigh the same says more.
    for tag, weight in sorted(weights.items(), key=lambda item: (-item[1], -len(item[0]), item[0])):
        if len(chosen) == MOST_TOPICS:
            break
        if len(chosen) >= 2 and weight < _LEAST_SHARE * weights[chosen[0]]:
            break
        parts = set(tag.split("-"))
        if len(tag) <= _LONGEST_TAG and not any(parts & set(other.split("-")) for other in chosen):
            chosen.append(tag)
    return chosen


def as_tag(text: str) -> str:
    """A label in kebab case; empty if there is nothing in it to read."""
    kept = "".join(character if character.isalnum() else " " for character in text.lower())
    return "-".join(kept.split())[:_LONGEST_TAG].strip("-")
