"""Uses: names that stand where a person stands ("Tom told me …", "lunch with Tom"), and what that tells of the name.

One use makes nobody known. What several of them show together does: that it is a person, that it is one of those whom
the memory's owner deals with, and that it is a name also inside a sentence, where a capital tells something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rem.dreaming.entities.evidence import PERSON, Evidence, Kind, Trait
from rem.dreaming.entities.introductions import RELATION_WORDS
from rem.dreaming.entities.name_words import (
    PARTICLES,
    STOP_WORDS,
    TITLES,
    is_capitalised,
    sentence_around,
    starts_sentence,
    word_set,
)
from rem.dreaming.entities.use_patterns import AFTER, AROUND, BEFORE, CREATURE, NOT_LIFE, NOT_SO, REACHED, Traits
from rem.dreaming.own_words import is_tale, is_task, without_quotes
from rem.dreaming.sentences import sentence_spans

_LONGEST_MESSAGE = 1200
"""What is longer was pasted rather than said, and its "I" is anyone's."""
_LONGEST_NAME = 3
_SHORTEST_WORD = 3
_WORD = re.compile(r"[^\W\d_]{1,40}(?:['’\-][^\W\d_]{1,40}){0,3}")
_IN_SHORT = re.compile(r"['’](?:s|d|m|re|ve|ll|t)?\Z", re.IGNORECASE)
_GENITIVE = re.compile(r"['’]s?\Z")
_INNER_CAPITAL = re.compile(r"(?<!\bMc)(?<!\bMac)(?<=[a-zß-öø-ÿ])[A-ZÀ-Þ]")
_GRAMMAR = STOP_WORDS | PARTICLES
_NO_NAME = word_set(
    """
    alexa siri cortana chatgpt claude gemini copilot bixby gpt bot
    mom mum mommy mama mutti mami dad daddy papa vati papi oma opa omi opi grandma grandpa granny nana mother father
    mutter vater tante onkel auntie aunt uncle sis bro bruder schwester boss chef chefin kollege kollegin kollegen
    kunde kundin kunden nachbar nachbarin nachbarn vermieter vermieterin lehrer lehrerin arzt ärztin freund freundin
    freunde leute jemand niemand einer keiner alle frau mann kind kinder eltern geschwister doctor doc nurse teacher
    professor coach sir madam lady lord king queen prince princess president mayor captain king santa jesus
    god gott allah satan lord jesus moses nobody everyone everybody someone somebody anyone people customers students
    street road avenue lane square bridge park hill river lake valley station airport straße weg platz gasse allee
    brücke bahnhof inc ltd llc corp gmbh ag bank airways airlines university institute college school academy hospital
    clinic church council club agency ministry department office team group labs lab company hotel restaurant cafe
    times post journal party support service services center centre store shop insurance embassy court police federal
    bahn versicherung amt verein stadt gemeinde universität schule klinik praxis firma
    english german french spanish italian american british european christmas easter weihnachten ostern spring summer
    autumn winter frühling sommer herbst apparently yesterday luckily sadly maybe perhaps anyway meanwhile although
    because since while once later well sorry great gestern heute leider dann als wenn weil vielleicht endlich neulich
    """
)
"""What has a capital where a person may stand, and is none of the owner's people."""
_BEFORE_NO_NAME = word_set(
    """
    the a an this that these those my our your his her their its every each some any no another der die das den dem
    des ein eine einen einem einer eines mein meine meinen meinem meiner unser unsere unseren unserem dein deine
    ihre ihr ihren seine sein seinen kein keine keinen
    """
)
_PRONOUN = re.compile(r"\b(?:he|she|his|her|him|himself|herself|er|ihm|seine[mnrs]?)\b", re.IGNORECASE)
_PEOPLE_NOUNS = RELATION_WORDS | word_set(
    "man woman guy girl boy lady kid driver agent clerk representative employee advisor someone somebody"
)
_LONGEST_WAY = 100
"""So far from a name something may still be about it."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A run of words that may be a name."""

    words: tuple[str, ...]
    start: int
    end: int


def uses(text: str, place: int) -> Iterator[Evidence]:
    """Where a text that somebody says uses a name as that of a person; or as that of an animal or a figure."""
    if len(text) > _LONGEST_MESSAGE:
        return
    is_life = NOT_LIFE.search(text) is None and not is_task(text)
    said = without_quotes(text)
    spans = list(sentence_spans(said))
    for number, (start, end) in enumerate(spans):
        until = spans[number + 1][1] if number + 1 < len(spans) else end
        for name in _names(said, start, end):
            traits = _traits(said, name, start, end, until)
            if traits is not None and (is_life or Trait.OTHER in traits):
                yield Evidence(
                    kind=Kind.USE,
                    entity_type=PERSON,
                    words=name.words,
                    place=place,
                    start=name.start,
                    confidence=0.0,
                    traits=traits,
                    says=sentence_around(text, name.start),
                )


def tells_tale(texts: Sequence[str]) -> bool:
    """Whether a conversation is about something made up."""
    return any(map(is_tale, texts))


def _traits(text: str, name: _Name, start: int, end: int, until: int) -> Traits | None:
    """What a use tells of the name; None if it is not used as a person's."""
    before, after = text[max(start, name.start - _LONGEST_WAY) : name.start], text[name.end : end]
    previous = before.split()[-1].strip(".,:").lower() if before.split() else ""
    if CREATURE.search(before):
        return Traits({Trait.OTHER})
    if previous in _BEFORE_NO_NAME or previous in TITLES:
        return None
    found = [traits for pattern, traits in AFTER if pattern.match(after)]
    if not NOT_SO.search(before):
        found += [traits for pattern, traits in BEFORE if pattern.search(before)]
        found += [traits for left, right, traits in AROUND if left.search(before) and right.match(after)]
    if not found:
        return None
    is_reached = REACHED[0].search(before) or REACHED[1].match(after)
    if not is_reached and _is_he_or_she(text[name.end : until]):
        found.append(Traits({Trait.HUMAN}))
    if not starts_sentence(text, name.start):
        found.append(Traits({Trait.INSIDE}))
    return Traits().union(*found)


def _is_he_or_she(following: str) -> bool:
    """Whether what follows a name goes on with a pronoun that can mean nobody else."""
    found = _PRONOUN.search(following[:_LONGEST_WAY])
    if found is None:
        return False
    between = [word.group() for word in _WORD.finditer(following, 0, found.start())]
    others = [word for word in between if is_capitalised(word) and word.lower() not in STOP_WORDS]
    return not others and not any(word.lower() in _PEOPLE_NOUNS for word in between)


def _names(text: str, start: int, end: int) -> Iterator[_Name]:
    """The runs of words with capitals in a sentence that may be names."""
    run: list[re.Match[str]] = []
    for found in _WORD.finditer(text, start, end):
        if run and (text[run[-1].end() : found.start()] != " " or _GENITIVE.search(run[-1].group())):
            yield from _name(run)
            run = []
        if is_capitalised(found.group()) or (run and found.group() in PARTICLES):
            run.append(found)
        else:
            yield from _name(run)
            run = []
    yield from _name(run)


def _name(run: Sequence[re.Match[str]]) -> Iterator[_Name]:
    words = [found.group() for found in run]
    first = 0
    while first < len(words) and _is_grammar(words[first]):
        first += 1
    last = len(words)
    while last > first and _is_grammar(words[last - 1]):
        last -= 1
    if last == first:
        return
    ending = _GENITIVE.search(words[last - 1])
    plain = [*words[first : last - 1], _GENITIVE.sub("", words[last - 1])]
    if _is_name(plain):
        yield _Name(tuple(plain), run[first].start(), run[last - 1].end() - (len(ending.group()) if ending else 0))


def _is_grammar(word: str) -> bool:
    """Whether it is a word of the grammar, also in short: I'll, That's."""
    return _IN_SHORT.sub("", word.lower()) in _GRAMMAR


def _is_name(words: Sequence[str]) -> bool:
    own = [word for word in words if word not in PARTICLES]
    return (
        0 < len(own) <= _LONGEST_NAME
        and own[0].lower() not in TITLES
        and all(word.lower() not in _NO_NAME and not _INNER_CAPITAL.search(word) for word in own)
        and not any(map(_is_grammar, own))
        and (len(own) > 1 or len(own[0]) >= _SHORTEST_WORD)
        and any(len(word) >= _SHORTEST_WORD for word in own)
    )
