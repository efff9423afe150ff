"""Tags: the topics and emotions of a text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from rem.dreams.entities.evidence import ORGANIZATION, PERSON
from rem.dreams.entities.rule_extraction import extract_evidence
from rem.dreams.text.secrets import mask_secrets
from rem.dreams.text.words import compute_rarity, extract_content_words, extract_phrases
from rem.rules import word_set, word_sets

MAX_TOPICS = 5
MAX_TAG_CHARS = 40
MIN_TOPIC_WEIGHT_SHARE = 0.35
"""Of the best topic's weight: a word with less is only mentioned. The two best words are topics in any case."""
ACTION_ENDINGS = ("ing", "ed", "ly")
ACTION_WEIGHT = 0.5
"""Of the weight of a noun: an action says less about the topic."""
PHRASE_WEIGHT = 1.6
"""Of the mean weight of its two words: a phrase is a better tag than either of them."""
MAX_NAME_TEXT_CHARS = 20_000
"""Characters of a text that are read for names."""
MAX_EMOTIONS = 3
MAX_EMOTION_TEXT_CHARS = 20_000
NEGATION_WORDS_BEFORE = 3
"""A negation among so many words before it cancels an emotion: "not really happy"."""
COMPANY_WORDS = word_set("tags.company_words")
"""Words at the end of company names."""
VERB_WORDS = word_set("tags.verbs")
"""Common verbs, which say little about the topic."""
HOST_NAME = re.compile(
    r"\b(?:[a-z0-9-]{1,63}\.){1,4}(?:com|org|net|io|ai|dev|app|co|edu|gov|example|test|local|de|at|ch|uk|eu|fr|nl|us|info)\b",
    re.IGNORECASE,
)
_ACTION_IN_BRACKETS = re.compile(r"\[[^\]\n]{0,300}\](?!\()")
""" "[laughs]" in a transcript. """
_ADDRESS = re.compile(r"<?[^\s<>@]{1,64}@[^\s<>@]{1,255}>?|\b(?:https?|ftp)://\S+|\bwww\.\S+")
_CONTRACTION = re.compile(r"['’](?:ll|ve|re|d|m|t)\Z")
_NUMBER_WORDS = word_set("tags.numbers")
_EMOTIONS = {word: emotion for emotion, words in word_sets("tags.emotions").items() for word in words}
_EMOTION_PHRASES = word_sets("tags.emotion_phrases")
"""Phrases of emotions in scripts without spaces."""
_NEGATIONS = word_set("tags.negations")
_WORD = re.compile(r"[a-zà-ÿ]+(?:['’][a-z]+)?")
_QUESTION = re.compile(r"(?<![^.!?。！？\n])[^.!?。！？\n]*[?？]")


def extract_topics(texts: Iterable[str], people: Iterable[str] = ()) -> list[str]:
    """Return the topics of texts in kebab case, the heaviest first.

    Names of people and organisations (those in `people`, and those that the texts introduce), addresses, emotions and
    numbers are no topics.
    """
    texts = [mask_secrets(text) for text in texts]
    excluded = {word for name in people for word in extract_content_words(name)}
    excluded |= {word for text in texts for word in _find_name_words(text[:MAX_NAME_TEXT_CHARS])}
    excluded |= _EMOTIONS.keys() | _NUMBER_WORDS | COMPANY_WORDS
    words: Counter[str] = Counter()
    phrases: Counter[tuple[str, str]] = Counter()
    for text in texts:
        plain = HOST_NAME.sub(" ", _ADDRESS.sub(" ", _ACTION_IN_BRACKETS.sub(" ", text)))
        words.update(
            word for word in extract_content_words(plain) if word not in excluded and not _is_contraction(word)
        )
        phrases.update(
            phrase
            for phrase in extract_phrases(plain)
            if excluded.isdisjoint(phrase) and not any(map(_is_contraction, phrase))
        )
    weights = {word: _weigh_word(word, count) for word, count in _merge_plurals(words).items()}
    for (first, second), count in phrases.items():
        if count >= 2:
            mean = (_weigh_word(first, count) + _weigh_word(second, count)) / 2
            weights[f"{first}-{second}"] = PHRASE_WEIGHT * mean
    return _select_topics(weights)


def _find_name_words(text: str) -> set[str]:
    """Return the words of the names of people and organisations that a text introduces."""
    return {
        word
        for evidence in extract_evidence(text, 0)
        if evidence.entity_type in (PERSON, ORGANIZATION)
        for name in evidence.words
        for word in extract_content_words(name)
    }


def _is_contraction(word: str) -> bool:
    """Return whether a word is a pronoun with a verb, such as "he'll"."""
    return _CONTRACTION.search(word) is not None


def _weigh_word(word: str, count: float) -> float:
    is_action = word in VERB_WORDS or (word.isascii() and len(word) > 5 and word.endswith(ACTION_ENDINGS))
    return (ACTION_WEIGHT if is_action else 1.0) * compute_rarity(word) * count / (count + 1.0)


def _merge_plurals(words: Counter[str]) -> Counter[str]:
    """Return the counts with each plural counted under its singular, if both occur."""
    merged: Counter[str] = Counter()
    for word, count in words.items():
        singular = word[:-1] if len(word) > 3 and word.endswith("s") and word[:-1] in words else word
        merged[singular] += count
    return merged


def _select_topics(weights: dict[str, float]) -> list[str]:
    """Return the heaviest tags that share no word with each other."""
    topics: list[str] = []
    # The longer of two tags with the same weight says more.
    for tag, weight in sorted(weights.items(), key=lambda item: (-item[1], -len(item[0]), item[0])):
        if len(topics) == MAX_TOPICS:
            break
        if len(topics) >= 2 and weight < MIN_TOPIC_WEIGHT_SHARE * weights[topics[0]]:
            break
        parts = set(tag.split("-"))
        if len(tag) <= MAX_TAG_CHARS and not any(parts & set(other.split("-")) for other in topics):
            topics.append(tag)
    return topics


def to_tag(text: str) -> str:
    """Return a label in kebab case; empty if it has no letter or digit."""
    letters = "".join(character if character.isalnum() else " " for character in text.lower())
    return "-".join(letters.split())[:MAX_TAG_CHARS].strip("-")


def extract_emotions(texts: Iterable[str]) -> list[str]:
    """Return the emotions that a person's texts state, the most frequent first. Questions state none."""
    counts: Counter[str] = Counter()
    for text in texts:
        statements = _QUESTION.sub(" ", text[:MAX_EMOTION_TEXT_CHARS])
        counts.update(_find_emotion_words(statements))
        counts.update(_find_emotion_phrases(statements))
    return [emotion for emotion, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_EMOTIONS]]


def _find_emotion_words(text: str) -> Iterable[str]:
    words = [match.group().replace("’", "'") for match in _WORD.finditer(text.lower())]
    for position, word in enumerate(words):
        emotion = _EMOTIONS.get(word)
        if emotion and _NEGATIONS.isdisjoint(words[max(0, position - NEGATION_WORDS_BEFORE) : position]):
            yield emotion


def _find_emotion_phrases(text: str) -> Iterable[str]:
    for emotion, phrases in _EMOTION_PHRASES.items():
        if any(phrase in text for phrase in phrases):
            yield emotion
