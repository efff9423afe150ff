"""Find the names of those whom a question calls by what they are: "the conductor" is Ilse, "my brother" is Vasco.

People ask with the role and tell with the name: "What does the conductor want?" is answered by "Ilse wants me to sing".
The rows that the question finds first often say who it is. The rules are English.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import islice

from rem.rules import word_set, word_sets
from rem.text import STOP_WORDS, split_words

MAX_ROLES = 3
MAX_NAMES = 2
"""A role that more people have says little about one of them."""
_NAME = r"(?:(?:[Dd]r|[Mm]rs?|[Mm]s|[Mm]iss|[Pp]rof|[Ff]ather|[Ff]rau|[Hh]err)\.? )?(?P<{}>[^\W\d_a-z][\w'’-]+)"
_WORD = r"(?P<{}>[a-z][\w-]+)"
_MENTIONED = re.compile(r"\b(?:the|my|our|his|her|their|whos|who's)((?: [a-z-]+){1,3})")
"""Words for somebody known: "the new buyer", but not "a buyer"."""
_CALLED = re.compile(r"\b((?:[^\W\d_a-z][\w-]+ )*[^\W\d_]{3,}),? (?:is |was )?(?:called|named) ([^\W\d_a-z][\w'’-]+)")
"""Any thing with its name: "a Great Dane named Ulisses"."""
_VAGUE_WORDS = frozenset({"old", "year-old", "someone", "somebody", "person", "couple", "head", "removal"})
"""Words for people that many have, or that describe things, too."""
_LOWER_CASE = re.compile(r"\A[^A-Z]*\Z")


def find_role_names(question: str, texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the roles in a question, and the names, in lower case, of those who have them by the texts."""
    mentioned = (match[1] for match in _MENTIONED.finditer(question.lower().replace("’", "'")))
    roles = list(islice((word for words in mentioned for word in words.split() if word in _roles()), MAX_ROLES))
    texts = list(texts)
    asked = frozenset(split_words(question))
    found = {role: frozenset(_find_names(role, texts)) - asked for role in roles}
    for text in texts:
        for thing, name in _CALLED.findall(text):
            for word in asked.intersection(split_words(thing)) - STOP_WORDS:
                found[word] = found.get(word, frozenset()) | ({name.lower()} - asked)
    return {role: names for role, names in found.items() if 0 < len(names) <= MAX_NAMES}


def _find_names(role: str, texts: list[str]) -> Iterable[str]:
    for text in texts:
        pattern = _lower_case_pattern(role) if _LOWER_CASE.match(text) else _pattern(role)
        for match in pattern.finditer(text.replace("’", "'")):
            name = next(group for group in match.groups() if group)
            if name.lower() not in STOP_WORDS | _roles():
                yield name.lower().removesuffix("'s")


@cache
def _pattern(role: str) -> re.Pattern[str]:
    """Return the pattern of "my brother Dele", "the conductor is Ilse", "Marta, the head nurse", and of a title."""
    who = rf"(?i:{re.escape(role)})"
    return re.compile(
        rf"\b(?<!'s ){who}(?: is| was| will be|:)?(?: called| named)? {_NAME.format('a')}"
        rf"|\b(?<!'s ){who}, {_NAME.format('d')}(?: [^\W\d_a-z][\w'-]+)?(?=[,.;:!?)]|\Z)"
        rf"|{_NAME.format('b')}(?: [^\W\d_a-z][\w'-]+)?(?:,| is| was| starts as| works as| became)"
        rf" (?:my|our|the|an?)(?: [a-z-]+){{0,2}} {who}\b(?! of (?:my|his|her))"
        rf"|\A\s*# {_NAME.format('c')}(?: [^\W\d_a-z][\w'-]+)?\s+(?:[Mm]y|[Oo]ur|[Tt]he|[Aa]n?)? ?(?:[a-z]+ )?{who}\b"
    )


@cache
def _lower_case_pattern(role: str) -> re.Pattern[str]:
    """Return the pattern of texts without capitals, where a name is marked only by the words around it."""
    who = re.escape(role)
    return re.compile(
        rf"\b{who}(?:,? (?:is )?(?:called|named)| is(?: (?:dr|mr|mrs|ms|frau|herr))?|:| =) {_WORD.format('a')}"
        rf"|(?:\A|[.,;] ){_WORD.format('b')}(?: is|,) (?:my|our|the|a)(?: [a-z-]+)? {who}\b"
    )


@cache
def _roles() -> frozenset[str]:
    """Return the nouns for what somebody is to the author, does for a living, or what an animal is."""
    relations = frozenset().union(*word_sets("introductions.relations").values())
    others = word_set("changes.occupations") | word_set("explained_names.people") | word_set("tagged_names.creatures")
    return (relations | others) - STOP_WORDS - _VAGUE_WORDS
