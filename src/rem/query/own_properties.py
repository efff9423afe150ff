"""Tell which property of its author a question asks for, or a text states: where they live, where they work.

"Where do I live?" is answered by "We moved to Aarhus", and not by where somebody else lives. The rules are English.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import islice

from rem.rules import alternatives, word_set, word_sets
from rem.text import find_sentence_spans, restore_apostrophes, split_words

AUTHOR = "author"
"""The owner of what a sentence says of its author."""
MAX_SENTENCES = 20
"""Sentences of a text that are looked at."""
_ABOUT_AUTHOR = re.compile(
    r"\b(?:do|did|am|have|will) (?:i|we)\b|\b(?:my|our) (?:new )?(?:address|job|employer|birthday)\b", re.I
)
_DUTY = re.compile(
    r"\b(?:have to|need to|must|supposed to|when|(?:which|what) (?:day|time|date)|how (?:long|often|much))\b"
)
"""In a question: it asks for a single day of work or the like, and not for a property."""
_EMPLOYMENT = re.compile(
    r"\b(?:work(?:s|ed|ing)? (?:at|for|as|with|in)|(?:new|a|an|first|old) (?:\w+ )?job|job (?:at|as|with|in)"
    r"|joined|quit|hired|employ(?:ed|er))\b"
)
_OWN_VERBS = "live|living|moved|moving|relocated|work|working|joined|quit|hired"
_OWN_NOUNS = "job|address|birthday|employer"
_ABOUT_SELF = re.compile(
    rf"\b(?:i|we)(?:'m|'ve|'re|'d|'ll)?(?: \w+){{0,3}}? (?:{_OWN_VERBS})\b"
    rf"|\b(?:i|we)\b[^.;]{{0,40}}\b(?:{_OWN_NOUNS})\b|\b(?:my|our) (?:new )?(?:{_OWN_NOUNS})\b"
)
_OWN_THING = re.compile(r"\b(?:my|our) ([\w-]+)")
_OTHERS_THING = re.compile(r"\b(?:his|her|their|your) ([\w-]+)")


def find_asked_properties(question: str) -> frozenset[str]:
    """Return the properties of its author that a question asks for."""
    text = question.lower().replace("’", "'")
    return _find_properties(text) if _ABOUT_AUTHOR.search(text) and not _DUTY.search(text) else frozenset()


def _find_properties(text: str) -> frozenset[str]:
    words = set(split_words(text))
    return frozenset(name for name, verbs in _properties().items() if verbs & words)


def find_stated_properties(text: str) -> frozenset[str]:
    """Return the properties that a sentence states. "It's not my job" states no employer."""
    found = _find_properties(text)
    return found if _EMPLOYMENT.search(text) else found - {"employer"}


def asks_for_property(question: str) -> bool:
    """Return whether a question asks for a property of its author, such as "Where do I live?"."""
    return bool(find_asked_properties(question))


def states_asked_property(question: str, text: str) -> bool:
    """Return whether a text states the property of its author that a question asks for, such as the residence."""
    asked = find_asked_properties(question)
    sentences = (text[start:end] for start, end in islice(find_sentence_spans(text), MAX_SENTENCES))
    folded = (restore_apostrophes(sentence.lower().replace("’", "'")) for sentence in sentences)
    return any(
        (asked & find_stated_properties(sentence) and find_owner(sentence) == AUTHOR)
        or ("employer" in asked and _occupation().search(sentence))
        for sentence in folded
    )


def is_about_other_owner(question: str, text: str) -> bool:
    """Return whether a text is about the thing of somebody else: "her exam" for a question about "my exam"."""
    own = set(_OWN_THING.findall(question.lower())) - _relation_words()
    folded = text.lower()
    return any(thing in own for thing in _OTHERS_THING.findall(folded)) and own.isdisjoint(_OWN_THING.findall(folded))


def find_owner(text: str) -> str:
    """Return whom a sentence is about: the author, or the first word of it."""
    words = split_words(text)
    if _ABOUT_SELF.search(text):
        return AUTHOR
    return words[0] if words else ""


@cache
def _occupation() -> re.Pattern[str]:
    """Return the pattern of "I'm Ada, a nurse on ward 3" and of "I run the kitchen at the Crown"."""
    nouns = word_set("changes.occupations") | word_set("introductions.relations.colleague")
    verbs = alternatives("changes.occupation_verbs")
    place = r"\b[^.!?]{0,40}\b(?:at|in|on|for|with|of)\b"
    return re.compile(rf"\bi(?:'m| am)\b[^.!?]{{0,60}}\b(?:{'|'.join(sorted(nouns))}){place}|\bi {verbs}{place}")


@cache
def _relation_words() -> frozenset[str]:
    """Return the words for people, who belong to nobody: her brother can be my son."""
    return frozenset().union(*word_sets("introductions.relations").values())


@cache
def _properties() -> dict[str, frozenset[str]]:
    return word_sets("changes.properties")
