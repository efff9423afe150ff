"""Find names in the position of a person ("Tom told me …", "lunch with Tom"), and the traits that each use shows.

One use is not enough to make a person. Several uses together are, if they show that the name belongs to a person, that
the memory's owner has contact with that person, and that the name has a capital inside a sentence, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rem.dreaming.entities.evidence import PERSON, Evidence, EvidenceKind, UsageTrait
from rem.dreaming.entities.introductions import RELATION_WORDS
from rem.dreaming.entities.name_parsing import (
    PARTICLES,
    STOP_WORDS,
    TITLES,
    WORDLIKE_NAMES,
    get_sentence_at,
    is_capitalised,
    is_sentence_start,
)
from rem.dreaming.text.masking import is_fiction, is_text_task, mask_quotes
from rem.rules import alternatives, word_set
from rem.text import find_sentence_spans

Traits = frozenset[UsageTrait]
MAX_MESSAGE_CHARS = 1200
"""A longer message is probably pasted, and its "I" may be anyone."""
MAX_USED_NAME_WORDS = 3
MIN_WORD_CHARS = 3
MAX_CONTEXT_CHARS = 100
"""The distance from a name in which words can still refer to it."""
_WORD = re.compile(r"[^\W\d_]{1,40}(?:['’\-][^\W\d_]{1,40}){0,3}")
_CONTRACTION = re.compile(r"['’](?:s|d|m|re|ve|ll|t)?\Z", re.IGNORECASE)
_GENITIVE = re.compile(r"['’]s?\Z")
_INNER_CAPITAL = re.compile(r"(?<!\bMc)(?<!\bMac)(?<=[a-zß-öø-ÿ])[A-ZÀ-Þ]")
_FUNCTION_WORDS = STOP_WORDS | PARTICLES
_NOT_PEOPLE = word_set("name_usage.not_people")
_GIVEN_NAMES = word_set("names.given_names")
FULL_NAME_CONFIDENCE, FIRST_NAME_CONFIDENCE = 0.8, 0.5
"""The confidence in a full name and in a first name that begin with a common given name."""
_DETERMINERS = word_set("name_usage.determiners")
_POSSESSIVES = word_set("name_usage.possessives")
_NAME_PREFIXES = word_set("name_usage.name_prefixes")
_PEOPLE_NOUNS = RELATION_WORDS | word_set("name_usage.people_nouns")
_PRONOUN = re.compile(rf"\b{alternatives('name_usage.pronouns')}\b", re.IGNORECASE)
_HUMAN, _PERSONAL, _NO_TRAITS = Traits({UsageTrait.HUMAN}), Traits({UsageTrait.PERSONAL}), Traits()
_BOTH = _HUMAN | _PERSONAL

_ADVERBS = r"(?:(?:just|also|already|still|finally|always|then|now|later|really|actually|only|once|recently) )*"
_AUXILIARIES = rf"(?: (?:has|had|have|will|would|did|does|can|could|may|might)(?:n['’]t| not)?)? (?:never )?{_ADVERBS}"
_OBJECT = r"(?:me|us|my \w+|our \w+)\b"
_REPORTING_VERB = alternatives("name_usage.reporting_verbs")
_MODALS = r"(?: (?:have|had|will|would|should|must|need to|want to|have to|can|did))?"
_SUBJECT = rf"\b(?:I|we)(?:['’](?:ve|ll|d))?{_MODALS} {_ADVERBS}"
_CONTACT_VERB = alternatives("name_usage.contact_verbs")
_RELATIVE = alternatives("name_usage.relatives")
_SOME_WORDS = r" (?:(?!nie\b|niemals\b)[\w-]+ ){0,8}"
_GERMAN_PERFECT = r"\b(?:habe?|haben) (?:ich |wir )?(?:(?:gestern|heute|dann|auch|gerade|schon|neulich|vorhin) )*"


def _compile(patterns: Iterable[tuple[str, Traits]], frame: str) -> tuple[tuple[re.Pattern[str], Traits], ...]:
    return tuple((re.compile(frame.format(pattern), re.IGNORECASE), traits) for pattern, traits in patterns)


_AFTER_NAME = _compile(
    (
        (r" (?:and|or|und|&) (?:I|ich)\b", _BOTH),
        (rf"{_AUXILIARIES}{_REPORTING_VERB}\b", _NO_TRAITS),
        (rf"{_AUXILIARIES}{_REPORTING_VERB} (?:to )?{_OBJECT}", _PERSONAL),
        (
            rf"{_AUXILIARIES}(?:invited|introduced|hugged|kissed|visited|married|drove|joined|accompanied|picked)"
            rf" {_OBJECT}",
            _BOTH,
        ),
        (r"(?: is| was| will be) on (?:\w+ )?(?:leave|holiday|vacation)\b", _HUMAN),
        (r"(?: is| was) (?:ill|sick|pregnant|retired|engaged|married)\b", _HUMAN),
        (rf"{_AUXILIARIES}(?:laughed|smiled|cried|sleeps|got married|got engaged|gave birth|turned \d\d)\b", _HUMAN),
        (rf"{_AUXILIARIES}(?:(?:is )?coming over|c[ao]me over|dropped by|stopped by|is visiting (?:me|us))\b", _BOTH),
        (rf"['’]s? {_RELATIVE}\b", _HUMAN),
        (
            rf" hat (?:mir|uns){_SOME_WORDS}(?:gesagt|erzählt|geschrieben|geschickt|geholfen|versprochen|empfohlen"
            r"|gezeigt|gegeben|geantwortet|erklärt)\b",
            _PERSONAL,
        ),
        (rf" hat (?:mich|uns){_SOME_WORDS}(?:gefragt|angerufen|gebeten|erinnert)\b", _PERSONAL),
        (rf" hat (?:mich|uns){_SOME_WORDS}(?:eingeladen|besucht|umarmt|abgeholt)\b", _BOTH),
        (r" (?:sagte?|meinte?|erzählte?|fragte?|schrieb|schreibt|rief|bat|will|möchte|kommt)\b", _NO_TRAITS),
        (r" (?:sagte?|erzählte?|fragte?|schrieb|bat) (?:mir|mich|uns)\b", _PERSONAL),
        (r" ist (?:krank|schwanger|im urlaub|in elternzeit|verheiratet|verlobt)\b", _HUMAN),
        (r" kommt (?:zu besuch|vorbei)\b", _BOTH),
    ),
    "{}",
)
"""Patterns directly after a name."""
_BEFORE_NAME = _compile(
    (
        (rf"{_SUBJECT}(?:met|meet|hug|hugged|married|dated|invited?|picked up|hang out with|hung out with)", _BOTH),
        (rf"{_SUBJECT}{_CONTACT_VERB}", _PERSONAL),
        (
            r"(?:^|[.!?,;:]\s*|\b(?:please|to|and|can you|could you|(?:should|shall|do|did|must) I|let['’]s) )"
            rf"{_CONTACT_VERB}",
            _PERSONAL,
        ),
        (r"\b(?:lunch|dinner|breakfast|brunch|coffee|tea|drinks?|beers?|a walk|a date) with", _BOTH),
        (r"\b(?:my|our|a|the) (?:\w+ )?(?:call|chat|meeting|appointment|conversation|lesson) with", _PERSONAL),
        (r"\b(?:ich|wir) (?:traf|trafen|treffen?|besuchen?|heirate)(?: (?:heute|morgen|gestern))?", _BOTH),
        (r"\b(?:ich|wir) (?:fragen?|fragte|rufe|rief)", _PERSONAL),
        (r"(?:^|[.!?,;:]\s*|\bbitte )(?:frage?|ruf|schreibe?(?: an)?|sage?|erinnere)", _PERSONAL),
    ),
    r"(?:{}) \Z",
)
"""Patterns directly before a name."""
_AROUND_NAME = tuple(
    (re.compile(rf"{before}\Z", re.IGNORECASE), re.compile(rf"{_SOME_WORDS}(?:{after})\b", re.IGNORECASE), traits)
    for before, after, traits in (
        (_GERMAN_PERFECT, r"getroffen|eingeladen|kennengelernt|geheiratet|abgeholt|umarmt", _BOTH),
        (_GERMAN_PERFECT, r"angerufen|gefragt|gebeten|erinnert|besucht", _PERSONAL),
        (r"\bmit ", r"gegessen|essen|verabredet|befreundet|verheiratet|spazieren", _BOTH),
        (r"\bmit ", r"telefoniert|gesprochen|geredet|getroffen", _PERSONAL),
    )
)
"""Patterns before and after a name, for German, which has its verb at the end."""

_NOT_REAL = re.compile(rf"\b{alternatives('name_usage.unreal_words')}\b[^,;:]*\Z", re.IGNORECASE)
"""Before the verb of the owner: then the owner does not do it."""
_REACH_VERB = alternatives("name_usage.reach_verbs")
_REACHED_BEFORE_NAME = re.compile(
    rf"\b(?:{_REACH_VERB}|(?:write|wrote|writing|reply|replied|speak|spoke|talk|talked|talking|call|chat|conversation)"
    r" (?:back )?(?:to|with)) \Z",
    re.IGNORECASE,
)
_REACHED_AFTER_NAME = re.compile(rf"{_AUXILIARIES}{_REACH_VERB}\b", re.IGNORECASE)
"""With these verbs the name may be a firm, and a following "she" the person who answers for it."""
_CREATURE = re.compile(
    rf"\b{alternatives('name_usage.creatures')}(?:,| is| was| heißt|'s name is)?(?: called| named| namens)? \Z",
    re.IGNORECASE,
)
"""Before the name of an animal or of a fictional character."""
_PUBLIC_TOPIC = re.compile(rf"\b{alternatives('name_usage.public_topics')}\b", re.IGNORECASE)
"""A message about these topics can name people whom the owner does not know."""


_MEDIA_TOPIC = re.compile(rf"\b{alternatives('name_usage.media_topics')}\b", re.IGNORECASE)
"""A message about these topics names public figures or invented people."""


@dataclass(frozen=True, slots=True)
class _Name:
    """Consecutive words that may be a name."""

    words: tuple[str, ...]
    start: int
    end: int


def find_name_uses(text: str, text_index: int, whole_text: str = "") -> Iterator[Evidence]:
    """Yield the uses of names as those of persons, animals or fictional characters in the statements of a message.

    `whole_text` is the message with its questions and commands, if `text` is without them.
    """
    if len(text) > MAX_MESSAGE_CHARS:
        return
    whole_text = whole_text or text
    is_about_own_life = _PUBLIC_TOPIC.search(whole_text) is None and not is_text_task(whole_text)
    own_words = mask_quotes(text)
    spans = list(find_sentence_spans(own_words))
    for number, (start, end) in enumerate(spans):
        next_end = spans[number + 1][1] if number + 1 < len(spans) else end
        for name in _find_names(own_words, start, end):
            traits = _find_traits(own_words, name, start, end, next_end)
            if traits is not None and (is_about_own_life or UsageTrait.OTHER in traits):
                yield Evidence(
                    kind=EvidenceKind.USE,
                    entity_type=PERSON,
                    words=name.words,
                    text_index=text_index,
                    offset=name.start,
                    confidence=0.0,
                    traits=traits,
                    sentence=get_sentence_at(text, name.start),
                )


def is_about_own_life(whole_text: str) -> bool:
    """Return whether the people in a message can be those whom its author knows."""
    return len(whole_text) <= MAX_MESSAGE_CHARS and not _MEDIA_TOPIC.search(whole_text) and not is_text_task(whole_text)


def is_given_name(words: Sequence[str]) -> bool:
    """Return whether a name begins with a common given name."""
    return bool(words) and words[0].lower() in _GIVEN_NAMES


def find_given_names(text: str, text_index: int) -> Iterator[Evidence]:
    """Yield the names in the statements of a message that begin with a common given name."""
    own_words = mask_quotes(text)
    for start, end in find_sentence_spans(own_words):
        for name in _find_names(own_words, start, end):
            person = _start_at_given_name(own_words, name)
            if person is None or not _may_be_acquaintance(own_words, person, start):
                continue
            is_full = len([word for word in person.words if word not in PARTICLES]) > 1
            yield Evidence(
                kind=EvidenceKind.GIVEN_NAME,
                entity_type=PERSON,
                words=person.words,
                text_index=text_index,
                offset=person.start,
                confidence=FULL_NAME_CONFIDENCE if is_full else FIRST_NAME_CONFIDENCE,
                sentence=get_sentence_at(text, person.start),
            )


def _start_at_given_name(text: str, name: _Name) -> _Name | None:
    """Return the name from its given name on. At the start of a sentence, another word can be before it."""
    if name.words[0].lower() in _GIVEN_NAMES:
        is_word = name.words[0].lower() in WORDLIKE_NAMES and is_sentence_start(text, name.start)
        return None if is_word and len(name.words) == 1 else name
    if len(name.words) > 1 and name.words[1].lower() in _GIVEN_NAMES and is_sentence_start(text, name.start):
        return _Name(name.words[1:], text.index(name.words[1], name.start + len(name.words[0])), name.end)
    return None


def _may_be_acquaintance(text: str, name: _Name, start: int) -> bool:
    """Return whether a name is not that of an animal, of a building ("the Maria clinic") or of the author."""
    before = text[max(start, name.start - MAX_CONTEXT_CHARS) : name.start]
    previous = before.split()[-1].strip(".,:").lower() if before.split() else ""
    if previous in _DETERMINERS - _POSSESSIVES or previous in TITLES or previous in _NAME_PREFIXES:
        return False
    return not _CREATURE.search(before)


def is_about_fiction(texts: Sequence[str]) -> bool:
    """Return whether one of the texts is about something invented."""
    return any(map(is_fiction, texts))


def _find_traits(text: str, name: _Name, start: int, end: int, next_end: int) -> Traits | None:
    """Return the traits of a name in a sentence; None if it is not in the position of a person.

    The sentence is from `start` to `end`, and the next sentence ends at `next_end`.
    """
    before, after = text[max(start, name.start - MAX_CONTEXT_CHARS) : name.start], text[name.end : end]
    previous = before.split()[-1].strip(".,:").lower() if before.split() else ""
    if _CREATURE.search(before):
        return Traits({UsageTrait.OTHER})
    if previous in _DETERMINERS or previous in TITLES:
        return None
    matches = [traits for pattern, traits in _AFTER_NAME if pattern.match(after)]
    if not _NOT_REAL.search(before):
        matches += [traits for pattern, traits in _BEFORE_NAME if pattern.search(before)]
        matches += [traits for left, right, traits in _AROUND_NAME if left.search(before) and right.match(after)]
    if not matches:
        return None
    is_reached = _REACHED_BEFORE_NAME.search(before) or _REACHED_AFTER_NAME.match(after)
    if not is_reached and _continues_with_pronoun(text[name.end : next_end]):
        matches.append(_HUMAN)
    if not is_sentence_start(text, name.start):
        matches.append(Traits({UsageTrait.INSIDE}))
    return Traits().union(*matches)


def _continues_with_pronoun(following: str) -> bool:
    """Return whether the text after a name has a pronoun that can refer only to that name."""
    pronoun = _PRONOUN.search(following[:MAX_CONTEXT_CHARS])
    if pronoun is None:
        return False
    between = [word.group() for word in _WORD.finditer(following, 0, pronoun.start())]
    other_names = [word for word in between if is_capitalised(word) and word.lower() not in STOP_WORDS]
    return not other_names and not any(word.lower() in _PEOPLE_NOUNS for word in between)


def _find_names(text: str, start: int, end: int) -> Iterator[_Name]:
    """Yield the consecutive capitalised words in a sentence that may be names."""
    run: list[re.Match[str]] = []
    for word in _WORD.finditer(text, start, end):
        if run and (text[run[-1].end() : word.start()] != " " or _GENITIVE.search(run[-1].group())):
            yield from _parse_name(run)
            run = []
        if is_capitalised(word.group()) or (run and word.group() in PARTICLES):
            run.append(word)
        else:
            yield from _parse_name(run)
            run = []
    yield from _parse_name(run)


def _parse_name(run: Sequence[re.Match[str]]) -> Iterator[_Name]:
    words = [word.group() for word in run]
    first, end = 0, len(words)
    while first < end and _is_function_word(words[first]):
        first += 1
    while end > first and _is_function_word(words[end - 1]):
        end -= 1
    if end == first:
        return
    genitive = _GENITIVE.search(words[end - 1])
    name = [*words[first : end - 1], _GENITIVE.sub("", words[end - 1])]
    if _may_be_name(name):
        genitive_chars = len(genitive.group()) if genitive else 0
        yield _Name(tuple(name), run[first].start(), run[end - 1].end() - genitive_chars)


def _is_function_word(word: str) -> bool:
    """Return whether a word, or a contraction such as I'll, has only a grammatical function."""
    return _CONTRACTION.sub("", word.lower()) in _FUNCTION_WORDS


def _may_be_name(words: Sequence[str]) -> bool:
    main_words = [word for word in words if word not in PARTICLES]
    return (
        0 < len(main_words) <= MAX_USED_NAME_WORDS
        and main_words[0].lower() not in TITLES
        and all(word.lower() not in _NOT_PEOPLE and not _INNER_CAPITAL.search(word) for word in main_words)
        and not any(map(_is_function_word, main_words))
        and (len(main_words) > 1 or len(main_words[0]) >= MIN_WORD_CHARS)
        and any(len(word) >= MIN_WORD_CHARS for word in main_words)
    )
