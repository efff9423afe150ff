"""The words of a question with content, and which of them a text has, also in other forms and as synonyms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from types import MappingProxyType

from rem.query.value_kinds import ValueKind, find_value_kinds, find_wanted_kinds, join_genitives
from rem.retrieval.synonyms import find_synonyms
from rem.rules import word_set
from rem.text import STOP_WORDS, find_sentence_spans, split_words

MAX_SENTENCES = 20
"""Sentences of a text that are looked at."""
_MEASURE = re.compile(r"\bhow (?:much|many|old|long|often|high|tall|big|far|deep|warm|heavy|hot|large)\b")
_WHO_IS = re.compile(
    r"\b[Ww]ho(?:'s| is| are| was)\s+"
    r"((?:(?:Mr|Mrs|Ms|Dr|Prof|Frau|Herr|Father)\.? )?(?:[A-ZÀ-ÞĀ-Ž][\w'-]*\s*)+)[?.!]*\s*\Z"
)
_WHO_IS_IN_LOWER_CASE = re.compile(
    r"\bwho(?:'s|s| is| was) (?:(?:mr|mrs|ms|dr|prof|frau|herr)\.? )?(\w{2,})[?.!]*\s*\Z"
)
_HYPHENATED = re.compile(r"\b[^\W\d_]+-[^\W\d_]+\b")
MIN_STEM_CHARS = 3
PREFIX_CHARS = 6
"""Words with the same first letters are forms of one word: rehearsal, rehearse."""


@dataclass(frozen=True, slots=True)
class QuestionPart:
    """What a part of a text has of a question: its words, and the kinds of its values."""

    covered: frozenset[str]
    kinds: frozenset[ValueKind]


_NO_PART = QuestionPart(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """What a question asks about, and for."""

    words: frozenset[str]
    """The stems of its words with content."""
    synonyms: tuple[tuple[str, frozenset[str]], ...]
    """Each of the words with the stems of its synonyms."""
    kinds: frozenset[ValueKind]
    """The kinds of values of which one answers it; empty if any."""

    @classmethod
    def of(cls, question: str, names: Mapping[str, frozenset[str]] = MappingProxyType({})) -> QuestionWords:
        """Return the words of a question. `names` has other words for some of them, such as the names of a role."""
        # "How long" asks for a number, and "long" is no topic.
        topic = _MEASURE.sub(" ", question.lower())
        words = {stem_word(word): find_synonyms(word) for word in split_words(join_genitives(topic))}
        wanted = find_content_words(topic)
        synonyms = ((word, find_content_words(others)) for word, others in words.items() if word in wanted)
        named = ((stem_word(word), frozenset(map(stem_word, others))) for word, others in names.items())
        known = (pair for pair in named if pair[0] in wanted)
        return cls(wanted, (*synonyms, *known), find_wanted_kinds(question))

    def find_part(self, text: str, known: frozenset[str] = frozenset()) -> QuestionPart:
        """Return what one sentence, or two one after the other, have of the question: those that have most of it.

        `known` are words of the question that stand before the text: they are its subject.
        """
        spans = islice(find_sentence_spans(text), MAX_SENTENCES)
        sentences = [(find_content_words(text[start:end]), find_value_kinds(text[start:end])) for start, end in spans]
        pairs = ((first[0] | second[0], first[1] | second[1]) for first, second in pairwise(sentences))
        parts = [QuestionPart(self.find_in(words) | known, kinds) for words, kinds in (*sentences, *pairs)]
        return max(parts, key=self._count_fit, default=_NO_PART)

    def _count_fit(self, part: QuestionPart) -> tuple[int, bool]:
        """Return how many words of the question a part has. Beside one, a value of the asked kind counts as a word."""
        has_value = bool(part.covered) and not self.kinds.isdisjoint(part.kinds)
        return len(part.covered) + has_value, has_value

    def find_in(self, words: frozenset[str]) -> frozenset[str]:
        """Return the words of the question that are among the words of a text, themselves or by a synonym."""
        beginnings = {word[:PREFIX_CHARS] for word in words if len(word) >= PREFIX_CHARS}
        alike = {word for word in self.words if len(word) >= PREFIX_CHARS and word[:PREFIX_CHARS] in beginnings}
        return (self.words & words) | alike | {word for word, others in self.synonyms if not others.isdisjoint(words)}


def find_asked_name(question: str) -> str | None:
    """Return the last word of the name in "Who is Ms. Tremblay?", or None."""
    question = question.replace("’", "'")
    asked = _WHO_IS.search(question) or (_WHO_IS_IN_LOWER_CASE.search(question) if question.islower() else None)
    name = asked[1].split()[-1].strip(".,?!") if asked else None
    return None if name in _empty_words() else name


def find_content_words(text: str) -> frozenset[str]:
    """Return the stems of the words with content. Days and months are content here. Wi-Fi is also wifi."""
    plain = join_genitives(text)
    words = (*split_words(plain), *(word.replace("-", "").lower() for word in _HYPHENATED.findall(plain)))
    return frozenset(stem_word(word) for word in words if word not in _empty_words())


def stem_word(word: str) -> str:
    """Return a word in lower case without its ending: bike and bikes, move, moved and moving, marry and married."""
    if word.endswith(("ies", "ied")) and len(word) > MIN_STEM_CHARS + 3:
        return f"{word[:-3]}y"
    for ending in ("ing", "ed", "s"):
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= MIN_STEM_CHARS:
            word = word[: -len(ending)]
            break
    return word[:-1] if word.endswith("e") and len(word) > MIN_STEM_CHARS else word


@cache
def _empty_words() -> frozenset[str]:
    """Return the words without content. "Ive" is what is left of "I've"."""
    contracted = frozenset(word.replace("'", "") for word in STOP_WORDS)
    times = word_set("names.calendar_words") | word_set("message_kinds.time_words")
    return (STOP_WORDS | contracted) - times - {"work", "place"}
