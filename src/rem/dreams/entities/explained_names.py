"""Tell whether a text explains who a named person is: "Bernadette, the nurse", "a lad called Sandro", "her vet, Ivo".

The tagger finds the names. Such words beside one show that it is a person whom the author has heard of, so that one
mention is enough.
"""

from __future__ import annotations

import re
from functools import cache

from rem.dreams.entities.introductions import RELATION_WORDS
from rem.dreams.entities.name_parsing import TITLES
from rem.rules import alternatives, word_set

MAX_CONTEXT_CHARS = 120
"""The distance from a name in which words can explain it."""


def is_explained(text: str, start: int, end: int) -> bool:
    """Return whether the words before or after the name at these offsets say who it is."""
    if text[start:end].lower() in _person_words():
        return False
    before, after = text[max(0, start - MAX_CONTEXT_CHARS) : start], text[end : end + MAX_CONTEXT_CHARS]
    explanation = _role_before().search(before) or _naming_before().search(before)
    if explanation is not None:
        return not _creatures().search(explanation.group())
    is_thing = _noun_before().search(before) is not None
    return not is_thing and _explanation_after().match(after) is not None


def find_role(text: str, start: int) -> str:
    """Return the words directly before the name at an offset that say what the person is; "" if there are none."""
    role = _role_before().search(text, max(0, start - MAX_CONTEXT_CHARS), start)
    return role.group() if role else ""


def find_title(text: str, start: int) -> tuple[str, int] | None:
    """Return the title before the name at an offset, as it is written in names, and its own offset."""
    match = _title_before().search(text, max(0, start - MAX_CONTEXT_CHARS), start)
    if match is None:
        return None
    word = match.group(1).lower()
    return TITLES.get(word, word.capitalize()), match.start(1)


@cache
def _person_words() -> frozenset[str]:
    """Return the nouns for what a person is: of relations, of jobs, and others such as "lad"."""
    return RELATION_WORDS | word_set("changes.occupations") | word_set("explained_names.people")


@cache
def _person_nouns() -> str:
    return "|".join(sorted(map(re.escape, _person_words()), key=lambda word: (-len(word), word))).join(("(?:", ")"))


@cache
def _role_before() -> re.Pattern[str]:
    """Return the pattern of "the nurse at the home, ", "the carer who sings with her is " and "Conductor: "."""
    place = rf"(?: (?:{alternatives('explained_names.prepositions')}|who) [^,.;:!?\n]{{1,40}}?)?"
    sign = rf"(?:,|:| then,| {alternatives('explained_names.is_words')})?(?: an?)?"
    titles = alternatives("explained_names.titles")
    return re.compile(rf"\b{_person_nouns()}{place}{sign} (?:{titles} )?\Z", re.IGNORECASE)


@cache
def _naming_before() -> re.Pattern[str]:
    """Return the pattern of "a lad from Trenta called " and "her name is "."""
    naming, name_is = alternatives("explained_names.naming_words"), alternatives("explained_names.name_is")
    return re.compile(rf"\b(?:{_person_nouns()}\b[^.!?;\n]{{0,40}} {naming}|{name_is}) \Z", re.IGNORECASE)


@cache
def _explanation_after() -> re.Pattern[str]:
    """Return the pattern of ", the nurse", " is our new buyer", ", who" and " from work"."""
    noun, is_words = _person_nouns(), alternatives("explained_names.is_words")
    owner = rf"(?:{alternatives('explained_names.determiners')}|[^\W\d_]+['’]s)"
    return re.compile(
        rf"(?:,| \(| {is_words}|['’]s) {owner} (?:[\w'’-]+ ){{0,4}}?{noun}\b"
        rf"|,? {alternatives('explained_names.clauses')}\b",
        re.IGNORECASE,
    )


@cache
def _noun_before() -> re.Pattern[str]:
    """Return the pattern of words before a thing or an animal: "the ", "a boat called "."""
    naming = alternatives("explained_names.naming_words")
    return re.compile(rf"\b(?:{naming}|{'|'.join(sorted(word_set('tagged_names.articles')))}) \Z", re.IGNORECASE)


@cache
def _creatures() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('tagged_names.creatures')}\b", re.IGNORECASE)


@cache
def _title_before() -> re.Pattern[str]:
    titles = "|".join(sorted(TITLES))
    return re.compile(rf"\b({titles}|{alternatives('explained_names.titles')})\b\.? \Z", re.IGNORECASE)
