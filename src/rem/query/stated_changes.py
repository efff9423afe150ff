"""Read what a sentence says about what, and whether it says that something has changed.

"We moved the standup to ten" is about the standup, has a time as its value, and is a change. The rules are English.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from rem.message_kinds import refers_back
from rem.query.own_properties import find_owner, find_stated_properties
from rem.query.question_words import QuestionWords, find_content_words, stem_word
from rem.query.value_kinds import ValueKind, find_names, find_value_kinds
from rem.rules import alternatives, patterns, word_set
from rem.text import restore_apostrophes

_SUBJECT = re.compile(
    r"(?:(?:and|but|so|ok|okay|well|also|btw|by the way|fyi|actually|sorry|no|update|correction)[,:]?\s+)*"
    r"(?P<subject>[^,;]{2,80}?)\s*"
    r"(?:\b(?:is|are|was|were|will be|has been|have been|goes|starts|takes place|happens)\b|'s\b|:)\s+(?P<value>.+)",
    re.DOTALL,
)
_REVOCATION = re.compile(
    r"\b(?:cancel\w*|called off|dropped|scrapped|revoked|sold|quit|no longer|any ?more|after all)\b"
    r"|\b(?:stays? as (?:it is|they are)|unchanged)\b|\bnot (?:going|getting)\b"
    r"|(?:\b(?:is|are|was|were|it's)|'s) (?:all )?(?:off|over|done|gone)\b"
)
_STATE = re.compile(r"(?<!from )\bnow\b|\bno longer\b|\bany ?more\b|\bback (?:again|already)\b")
_NEGATED = re.compile(
    r"\b(?:not|isn't|aren't|wasn't|no longer|instead of|rather than)\s+(?:the\s+|a\s+|in\s+|on\s+|at\s+)?([\w-]+)"
)

_RENEWED = re.compile(r"\bnew ((?:[\w-]+ ?){1,3})")
MAX_REPLACEMENT_CHARS = 400
"""A longer text is a note, and no statement that something was replaced."""
_VALUE = r"(?:(?:the|our|my|his|her|their|using|with|an?) )*\w[\w.+#'-]*(?: \w[\w+#'-]*){0,2}?"


@dataclass(frozen=True, slots=True)
class Sentence:
    """What one sentence of a row says about what."""

    words: frozenset[str]
    thing: frozenset[str]
    """The words without those of change."""
    subject: frozenset[str]
    value: frozenset[str]
    shapes: frozenset[ValueKind]
    """The kinds of its value: a time, a day, a number, a place."""
    all_shapes: frozenset[ValueKind]
    """The same of the whole sentence."""
    properties: frozenset[str]
    negated: frozenset[str]
    has_change: bool
    is_revocation: bool
    is_revision: bool
    """Whether it clearly revises what was said before, unlike "new" and "now", which say little."""
    is_state: bool
    """Whether it says how something is now."""
    refers_back: bool
    is_adjustment: bool
    """Whether it changes a value of "it": "they put it up to 455"."""
    is_succession: bool
    """Whether it says that somebody took the place of somebody else."""
    is_return: bool
    is_absence: bool
    """Whether it says that somebody has a thing of somebody else, or that a thing is brought back."""
    owner: str
    renewed: frozenset[str]
    """The words after "new": "a new password"."""
    names: frozenset[str]
    """The stems of its names."""


@dataclass(frozen=True, slots=True)
class Part:
    """One or two sentences of a row: those that fit the question best."""

    sentences: tuple[Sentence, ...]
    covered: frozenset[str]
    """The words of the question that they have."""

    @property
    def words(self) -> frozenset[str]:
        """The words of all sentences."""
        return frozenset().union(*(sentence.words for sentence in self.sentences))

    @property
    def shapes(self) -> frozenset[ValueKind]:
        """The kinds of values in all sentences."""
        return frozenset().union(*(sentence.all_shapes for sentence in self.sentences))

    @property
    def names(self) -> frozenset[str]:
        """The stems of the names in all sentences."""
        return frozenset().union(*(sentence.names for sentence in self.sentences))

    @property
    def has_change(self) -> bool:
        """Whether one of the sentences has a word of change."""
        return any(sentence.has_change for sentence in self.sentences)

    @property
    def is_revision(self) -> bool:
        """Whether one of the sentences clearly revises what was said before."""
        return any(sentence.is_revision for sentence in self.sentences)

    @property
    def is_revocation(self) -> bool:
        """Whether one of the sentences says that something is over."""
        return any(sentence.is_revocation for sentence in self.sentences)


def pick_part(sentences: Sequence[Sentence], asked: QuestionWords, kinds: frozenset[ValueKind]) -> Part:
    """Return the sentence, or the two sentences one after the other, with most words of the question.

    A value of the asked kind counts as a word. Two sentences: "The concert was moved. It's on the 25th now."
    """
    parts = [(sentence,) for sentence in sentences] + list(pairwise(sentences))

    def fit(part: tuple[Sentence, ...]) -> tuple[int, bool, int]:
        words = asked.find_in(frozenset().union(*(sentence.words for sentence in part)))
        shapes = frozenset().union(*(sentence.all_shapes for sentence in part))
        has_value = bool(kinds & shapes)
        return len(words) + has_value, has_value, -len(part)

    best = max(parts, key=fit, default=())
    return Part(best, asked.find_in(frozenset().union(*(sentence.words for sentence in best))))


def parse_sentence(sentence: str) -> Sentence:
    """Return what a sentence says."""
    text = restore_apostrophes(" ".join(sentence.lower().replace("’", "'").split()))
    changed = _object_of_change().search(text)
    stated = _SUBJECT.match(text)
    subject: frozenset[str] = frozenset()
    value = text
    if changed is not None:
        subject, value = find_content_words(changed["object"] or changed["thing"]), changed["value"] or ""
    elif stated is not None:
        subject, value = find_content_words(stated["subject"]), stated["value"]
    words = find_content_words(text)
    return Sentence(
        words=words,
        thing=find_content_words(_cues().sub(" ", text)) - filler_words(),
        subject=subject - filler_words(),
        value=find_content_words(value),
        shapes=find_value_kinds(value),
        all_shapes=find_value_kinds(sentence),
        properties=find_stated_properties(text),
        negated=find_content_words(" ".join(_NEGATED.findall(text))),
        has_change=_cues().search(text) is not None,
        is_revocation=_REVOCATION.search(text) is not None,
        is_revision=_revisions().search(text) is not None,
        is_state=_STATE.search(text) is not None,
        refers_back=refers_back(text),
        is_adjustment=_adjustments().search(text) is not None,
        is_succession=_successions().search(text) is not None,
        is_return=_returned().search(text) is not None,
        is_absence=_absent().search(text) is not None,
        owner=find_owner(text),
        renewed=find_content_words(" ".join(_RENEWED.findall(text))),
        names=frozenset(map(stem_word, find_names(sentence))),
    )


def find_replaced_values(text: str) -> frozenset[str]:
    """Return the words of the values that a text names as dropped beside a new one: "We ditched Slack for Zulip".

    Days and numbers are left out: many things have the same ones.
    """
    folded = restore_apostrophes(" ".join(text[:MAX_REPLACEMENT_CHARS].lower().replace("’", "'").split()))
    values = (match["old"] for pattern in _replacements() for match in pattern.finditer(folded))
    words = frozenset(word for value in values for word in find_content_words(value) if not word.isdigit())
    return words - general_words() - filler_words()


@cache
def filler_words() -> frozenset[str]:
    """Return the words that are no part of the thing that a sentence is about."""
    return frozenset(stem_word(word) for word in word_set("changes.fillers")) | word_set("changes.fillers")


@cache
def _cues() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('changes.cues')}\b")


@cache
def _revisions() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('changes.revisions')}\b")


@cache
def calendar_words() -> frozenset[str]:
    """Return the stems of the names of days and months."""
    return frozenset(map(stem_word, word_set("names.calendar_words")))


@cache
def general_words() -> frozenset[str]:
    """Return the stems of words in questions that say nothing about the thing: number, kind, day."""
    return frozenset(map(stem_word, word_set("changes.general_words"))) | calendar_words()


@cache
def _successions() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('changes.successions')}\b")


@cache
def _adjustments() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('changes.adjustments')}\b")


@cache
def _returned() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('changes.returns')}\b")


@cache
def _absent() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('changes.absences')}\b")


@cache
def _replacements() -> tuple[re.Pattern[str], ...]:
    """Return the patterns of texts that name an old value and a new one."""
    clause = alternatives("changes.replacement_clauses")
    named = {
        "OLD": rf"(?P<old>{_VALUE})",
        "NEXT": rf"(?:\s?[,;.:–-]| and| so| but)(?: and| so| but| instead)* {clause}",
    }
    return tuple(
        re.compile(rf"\b{re.sub('OLD|NEXT', lambda name: named[name[0]], pattern)}")
        for pattern in patterns("changes.replacements")
    )


@cache
def _object_of_change() -> re.Pattern[str]:
    """Return the pattern of "we moved OBJECT to VALUE" and of "THING moved to VALUE"."""
    verb = alternatives("changes.change_verbs")
    value = r"(?:\s+(?:to|with|by|until|for|from .{1,40}? to)\s+(?P<value>.+))?"
    owned = r"(?:my|our|the|his|her|their)"
    by_person = rf"\b(?:i|we|they|he|she)(?:'ve| have| has| had| just)*\s+{verb}\s+(?P<object>{owned}\s.{{2,60}}?)"
    by_itself = (
        rf"(?P<thing>{owned}?\s?.{{2,50}}?)\s+(?:has |have |got |was |is |been |just )*{verb}(?: back| forward)?"
    )
    return re.compile(rf"(?:{by_person}|{by_itself}){value}[.!]*\Z")
