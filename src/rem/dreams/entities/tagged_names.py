"""People whom the tagger finds in a text, and whether its author can know them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rem.dreams.entities.evidence import PERSON, Evidence, EvidenceKind
from rem.dreams.entities.explained_names import find_role, find_title, is_explained
from rem.dreams.entities.name_parsing import (
    PARTICLES,
    STOP_WORDS,
    TITLES,
    WORDLIKE_NAMES,
    fold_words,
    get_sentence_at,
    is_sentence_start,
)
from rem.dreams.text.masking import is_fiction, is_text_task, mask_quotes
from rem.knowledge.tagger import TaggedName, get_tagger
from rem.rules import alternatives, word_set

MAX_MESSAGE_CHARS = 1200
"""A longer message is probably pasted, and its people may be anyone's."""
MAX_CONTEXT_CHARS = 100
"""The distance from a name in which words can still refer to it."""
MAX_NAME_WORDS = 4
MIN_CONTEXT_CONFIDENCE, MIN_EXPLAINED_CONFIDENCE, MIN_TAG_CONFIDENCE = 0.5, 0.8, 0.9
"""The tagger is certain of most people. It is less certain of most nouns that it takes for people.

With an explanation the first is enough for a full name, and the second for a first name.
"""
MIN_ALONE_CONFIDENCE = 0.7
"""A name without its context tells less, so a less certain reading of it counts, too."""
FULL_NAME_CONFIDENCE, FIRST_NAME_CONFIDENCE = 0.8, 0.5
"""The confidence in a person with a full name and in one with a first name. One first name alone makes no person, but
one with an explanation does."""
_NAME_PREFIXES = word_set("tagged_names.name_prefixes")
_NOT_PEOPLE = word_set("tagged_names.not_people")
_PUBLIC_FIGURES = word_set("tagged_names.public_figures")
_ARTICLES = word_set("tagged_names.articles")
_CREATURE = re.compile(
    rf"\b{alternatives('tagged_names.creatures')}(?:,| is| was| heißt|'s name is)?(?: called| named| namens)? \Z",
    re.IGNORECASE,
)
"""Before the name of an animal or of a fictional character."""
_MEDIA_TOPIC = re.compile(rf"\b{alternatives('tagged_names.media_topics')}\b", re.IGNORECASE)
"""A message about these topics names public figures or invented people."""


async def tag_own_words(texts: Sequence[str]) -> list[list[TaggedName]]:
    """Return the people that the tagger finds in each text outside of quotations.

    The tagger also reads each name without its context. A single word is no person if it then is something else:
    "Vodafone called me" only sounds like a person. A full name is as certain as in the better of both readings.
    """
    tagger = get_tagger()
    found = await tagger.find_names([mask_quotes(text) for text in texts], MIN_CONTEXT_CONFIDENCE)
    labels = sorted({name.text for names in found for name in names if name.kind == PERSON})
    plain = [label.title() if label.islower() else label for label in labels]
    alone = await tagger.find_names(plain, MIN_ALONE_CONFIDENCE)
    readings = dict(zip(labels, alone, strict=True))
    return [[person for name in names if (person := _read_again(name, readings.get(name.text, [])))] for names in found]


def _read_again(name: TaggedName, alone: Sequence[TaggedName]) -> TaggedName | None:
    """Return a person with the confidence of both readings; None if it is no person."""
    if name.kind != PERSON:
        return None
    if " " not in name.text:
        return None if any(other.kind != PERSON for other in alone) else name
    is_whole = len(alone) == 1 and alone[0].kind == PERSON and len(alone[0].text) == len(name.text)
    return replace(name, confidence=max(name.confidence, alone[0].confidence)) if is_whole else name


def find_people(
    text: str, text_index: int, names: Sequence[TaggedName], *, is_own_life: bool = True
) -> Iterator[Evidence]:
    """Yield the people in the statements of a text. `names` are those of the whole text, with the same offsets.

    A text about the media names anyone. Of it, only those count who have a role of everyday life: "Ben's drummer Piet".
    """
    for name in map(_keep_first_line, names):
        words = _split_name(name.text)
        is_stated = text[name.start : name.end] == name.text
        if name.kind != PERSON or not is_stated or not words:
            continue
        is_full = len([word for word in words if word not in PARTICLES]) > 1
        is_known = is_explained(text, name.start, name.end)
        if not is_own_life and (not is_known or not _has_everyday_role(text, name)):
            continue
        least = MIN_CONTEXT_CONFIDENCE if is_full else MIN_EXPLAINED_CONFIDENCE
        if name.confidence < (least if is_known else MIN_TAG_CONFIDENCE):
            continue
        title = _find_unread_title(text, name, words, is_known=is_known)
        if title is None and not _may_be_acquaintance(text, name, words):
            continue
        yield Evidence(
            kind=EvidenceKind.TITLE if title else EvidenceKind.TAGGED,
            entity_type=PERSON,
            words=words,
            text_index=text_index,
            offset=name.start,
            confidence=FULL_NAME_CONFIDENCE if is_full or is_known or title else FIRST_NAME_CONFIDENCE,
            title=title,
            sentence=get_sentence_at(text, name.start),
        )


def is_person_at(names: Sequence[TaggedName], text: str, words: Sequence[str]) -> bool:
    """Return whether the tagger takes words of a text for a person's name."""
    label = fold_words(tuple(words))
    return any(name.kind == PERSON and label[:1] == fold_words(tuple(name.text.split()))[:1] for name in names)


def may_name_acquaintances(whole_text: str) -> bool:
    """Return whether a text is of its author, and not pasted or to be edited."""
    return len(whole_text) <= MAX_MESSAGE_CHARS and not is_text_task(whole_text)


def is_about_own_life(whole_text: str) -> bool:
    """Return whether the people in a message can be those whom its author knows."""
    return may_name_acquaintances(whole_text) and not _MEDIA_TOPIC.search(whole_text)


def is_about_fiction(texts: Sequence[str]) -> bool:
    """Return whether one of the texts is about something invented."""
    return any(map(is_fiction, texts))


def _has_everyday_role(text: str, name: TaggedName) -> bool:
    role = find_role(text, name.start)
    return bool(role) and not _MEDIA_TOPIC.search(role)


def _keep_first_line(name: TaggedName) -> TaggedName:
    """Return a name without the next line: the heading of a note ends without a full stop."""
    line = name.text.partition("\n")[0].rstrip()
    return replace(name, text=line, end=name.start + len(line)) if len(line) < len(name.text) else name


def _find_unread_title(text: str, name: TaggedName, words: Sequence[str], *, is_known: bool) -> str | None:
    """Return a title before a single name that is read only here: "frau Wendt", or "Father Ivo" with an explanation."""
    found = find_title(text, name.start) if len(words) == 1 else None
    if found is None:
        return None
    title, offset = found
    is_sure = title in TITLES.values()
    return title if (text[offset].islower() if is_sure else is_known) else None


def _split_name(name: str) -> tuple[str, ...]:
    """Return the words of a name with capitals, however it is written; none if it cannot be a person's."""
    words = name.split()
    if len(words) > MAX_NAME_WORDS or not any(map(str.isalpha, name)) or len(name) < 2:
        return ()
    if name.islower() or (name.isupper() and len(name) > 3):
        words = [word if word in PARTICLES else word.title() for word in words]
    return tuple(words)


def _may_be_acquaintance(text: str, name: TaggedName, words: Sequence[str]) -> bool:
    """Return whether a name is not that of an animal, a building ("the Maria clinic") or a public figure."""
    before = text[max(0, name.start - MAX_CONTEXT_CHARS) : name.start]
    previous = before.split()[-1].strip(".,:").lower() if before.strip() else ""
    if previous in _ARTICLES or previous in TITLES or previous in _NAME_PREFIXES or _CREATURE.search(before):
        return False
    if len(words) == 1 and _is_word(text, name, words[0].lower()):
        return False
    is_address = "@" in name.text or text[name.end : name.end + 1] == "@"
    is_public = words[-1].lower() in _PUBLIC_FIGURES
    return not is_address and not is_public and not any(word.lower() in _NOT_PEOPLE for word in words)


def _is_word(text: str, name: TaggedName, word: str) -> bool:
    """Return whether a name is a day or a month, or a word such as "Hope" where every word has a capital."""
    return word in STOP_WORDS or (word in WORDLIKE_NAMES and is_sentence_start(text, name.start))
