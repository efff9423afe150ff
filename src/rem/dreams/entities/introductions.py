"""Find introductions in a text: "my colleague …", "… works at …", "project …", "Dr. …"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from rem.dreams.entities.evidence import (
    ORGANIZATION,
    PERSON,
    PROJECT,
    Evidence,
    EvidenceKind,
    StatedRelation,
)
from rem.dreams.entities.name_parsing import (
    TITLES,
    fold_words,
    get_sentence_at,
    is_capitalised,
    parse_name_after,
    parse_name_before,
)
from rem.rules import alternatives, word_set, word_sets

MAX_ORGANIZATION_WORDS = 5
MAX_ADDRESS_CHARS = 120
MAX_PRONOUN_DISTANCE = 400
"""Characters before "his" or "her" in which the person is named."""
_CAPITALISED = re.compile(r"\b[^\W\d_a-z][^\W\d_]+")
_GIVEN_NAMES = word_set("names.given_names")
_RELATION_BY_WORD = {
    word: relation for relation, words in word_sets("introductions.relations").items() for word in words
}
RELATION_WORDS = frozenset(_RELATION_BY_WORD)
FAMILY_RELATIONS = frozenset(
    {
        *("wife", "husband", "partner", "sister", "brother", "mother", "father", "daughter", "son"),
        *("grandmother", "grandfather", "aunt", "uncle", "cousin", "niece", "nephew"),
    }
)
_BUSINESS_PARTNERS = word_set("introductions.business_partners")
_LEGAL_FORMS = word_set("introductions.legal_forms")
_NOT_PROJECTS = word_set("introductions.not_projects")
_NOT_ORGANIZATIONS = word_set("introductions.not_organizations")
_NOT_FAMILY_NAMES = word_set("introductions.not_family_names")


def _longest_first(words: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, words), key=lambda word: (-len(word), word)))


_MY_NOUN = (
    rf"{alternatives('introductions.my_words')} (?:[^\W\d_]{{2,14}} ){{0,2}}"
    rf"({_longest_first(RELATION_WORDS)}|{_longest_first(_BUSINESS_PARTNERS)})"
)
"""A phrase such as "my new colleague". Its group is the noun."""
_MY_RELATION = re.compile(rf"\b{_MY_NOUN}(?:,| is| is called| is named| heißt| namens|:)? +(?=[^\W\d_])", re.IGNORECASE)
_THEIR_RELATION = re.compile(
    rf"\b(?:(?P<owner>[^\W\d_][^\W\d_]{{1,30}})['’]s|(?P<pronoun>{alternatives('introductions.their_words')}))"
    rf" (?:[^\W\d_]{{2,14}} )?(?P<noun>{_longest_first(FAMILY_RELATIONS | {'friend', 'girlfriend', 'boyfriend'})}),? +"
    r"(?=[^\W\d_])",
    re.IGNORECASE,
)
"""A phrase such as "Ana's brother" or "his son" before a name."""
_IS_MY_RELATION = re.compile(rf"(?: is| was| ist| est| es|,) {_MY_NOUN}\b", re.IGNORECASE)
_HIRED = re.compile(r"\b(?:we|i)(?: have|'ve|’ve)?(?: just| finally| recently)? hired +", re.IGNORECASE)
_WORKS_AT = re.compile(rf"\b{alternatives('introductions.works_at')} +(?=[^\W\d_])", re.IGNORECASE)
_PROJECT = re.compile(rf"\b({alternatives('introductions.project_words')}) +(?=[\"“„«']?[^\W\d_])", re.IGNORECASE)
_PROJECT_KEY = re.compile(r"(?<![\w/.@#-])project-([a-z0-9]{2,30}(?:-[a-z0-9]{1,30}){0,3})(?![\w/@-])")
_TITLE = re.compile(rf"\b({'|'.join(TITLES)})\b\.? +(?=[^\W\d_])", re.IGNORECASE)
_LEGAL_FORM = re.compile(rf" {alternatives('introductions.legal_forms')}\b")


def is_family(relation: str | None) -> bool:
    """Return whether a relation is one of a family: the author's ("brother") or another's ("Ana's brother")."""
    return (relation or "").rpartition(" ")[2] in FAMILY_RELATIONS


def find_introductions(text: str, text_index: int, *, is_own_words: bool) -> Iterator[Evidence]:
    """Yield the people and things that a text introduces.

    Without `is_own_words`, "my" may be anyone's, so only full names of people count.
    """
    for item in chain(
        _find_relations(text), _find_hired(text), _find_titled(text), _find_projects(text), _find_organizations(text)
    ):
        is_full_name = item.entity_type != PERSON or (len(item.words) > 1 and item.title is None)
        # "Ana's brother" is the same person whoever writes it.
        if is_own_words or is_full_name or "'s " in (item.relation or ""):
            yield replace(item, text_index=text_index, sentence=get_sentence_at(text, item.offset))


def _find_relations(text: str) -> Iterator[Evidence]:
    for match in _MY_RELATION.finditer(text):
        if "business" in match.group().lower():
            # A business partner is a firm more often than a person.
            continue
        words, _ = parse_name_after(text, match.end(), max_words=5)
        yield from _build_related(match.group(1), words, match.end())
    for match in _THEIR_RELATION.finditer(text):
        yield from _build_relative(text, match)
    for match in _IS_MY_RELATION.finditer(text):
        yield from _build_related(match.group(1), parse_name_before(text, match.start()), match.start())


def _build_related(noun: str, words: list[str], offset: int) -> Iterator[Evidence]:
    if not words:
        return
    relation = _RELATION_BY_WORD.get(noun.lower())
    if relation is None:
        if may_be_organization(words):
            yield Evidence(kind=EvidenceKind.WORDS, entity_type=ORGANIZATION, words=tuple(words), offset=offset)
        return
    title = TITLES.get(words[0].lower().rstrip("."))
    if title and len(words) > 1:
        yield Evidence(
            kind=EvidenceKind.TITLE,
            entity_type=PERSON,
            words=tuple(words[1:]),
            title=title,
            relation=relation,
            offset=offset,
        )
    elif not title:
        yield Evidence(
            kind=EvidenceKind.WORDS, entity_type=PERSON, words=tuple(words[:4]), relation=relation, offset=offset
        )


def _build_relative(text: str, match: re.Match[str]) -> Iterator[Evidence]:
    """Yield somebody else's relative. The relation names that person, because "son" alone would be the author's."""
    words, _ = parse_name_after(text, match.end(), max_words=3)
    owner = match["owner"] or _find_last_name(text[: match.start()])
    if not words or (match["owner"] and not is_capitalised(match["owner"])) or words[0].lower() in TITLES:
        return
    possessive = f"{owner}'s" if owner else match["pronoun"].lower()
    yield Evidence(
        kind=EvidenceKind.WORDS,
        entity_type=PERSON,
        words=tuple(words),
        relation=f"{possessive} {match['noun'].lower()}",
        offset=match.end(),
    )


def _find_last_name(text: str) -> str | None:
    """Return the last common given name shortly before a pronoun, whom it stands for."""
    names = [word for word in _CAPITALISED.findall(text[-MAX_PRONOUN_DISTANCE:]) if word.lower() in _GIVEN_NAMES]
    return names[-1] if names else None


def _find_hired(text: str) -> Iterator[Evidence]:
    for match in _HIRED.finditer(text):
        words, _ = parse_name_after(text, match.end())
        if len(words) > 1:
            yield Evidence(
                kind=EvidenceKind.WORDS,
                entity_type=PERSON,
                words=tuple(words),
                relation="colleague",
                offset=match.end(),
            )


def _find_titled(text: str) -> Iterator[Evidence]:
    for match in _TITLE.finditer(text):
        if not match.group(1)[0].isupper():
            continue
        words, _ = parse_name_after(text, match.end(), max_words=3)
        if words and words[0].lower() not in _NOT_FAMILY_NAMES:
            title = TITLES[match.group(1).lower()]
            yield Evidence(
                kind=EvidenceKind.TITLE, entity_type=PERSON, words=tuple(words), title=title, offset=match.start()
            )


def _find_projects(text: str) -> Iterator[Evidence]:
    for match in _PROJECT.finditer(text):
        words, _ = parse_name_after(text, match.end(), max_words=3, allow_capitals=True)
        words = words[:2]
        if not words or words[0].lower() in _NOT_PROJECTS or (words[0].isupper() and match.group(1).isupper()):
            continue
        if words[-1].lower() in _NOT_PROJECTS:
            words = words[:-1]
        # Every German noun has a capital, so a German project needs a second piece of evidence.
        confidence = 0.4 if match.group(1).lower() == "projekt" else 0.5
        yield _build_project(words, match.start(), confidence)
    for match in _PROJECT_KEY.finditer(text):
        if match.group(1) not in _NOT_PROJECTS and match.group(1).partition("-")[0] not in _NOT_PROJECTS:
            yield _build_project([part.capitalize() for part in match.group(1).split("-")], match.start())


def _build_project(words: list[str], offset: int, confidence: float = 0.5) -> Evidence:
    return Evidence(
        kind=EvidenceKind.WORDS,
        entity_type=PROJECT,
        words=("Project", *words),
        confidence=confidence,
        offset=offset,
    )


def _find_organizations(text: str) -> Iterator[Evidence]:
    for match in _WORKS_AT.finditer(text):
        words = _parse_organization_after(text, match.end())
        if may_be_organization(words):
            yield Evidence(kind=EvidenceKind.WORDS, entity_type=ORGANIZATION, words=tuple(words), offset=match.end())
            person = _find_person_before(text, match.start())
            if len(person) > 1:
                yield Evidence(
                    kind=EvidenceKind.WORDS, entity_type=PERSON, words=tuple(person), offset=match.start() - 1
                )
    for match in _LEGAL_FORM.finditer(text):
        words = parse_name_before(text, match.start(), max_words=4)
        if words and may_be_organization(words):
            name = (*words, match.group().strip())
            yield Evidence(kind=EvidenceKind.WORDS, entity_type=ORGANIZATION, words=name, offset=match.start())


def find_employments(text: str, text_index: int) -> Iterator[StatedRelation]:
    """Yield the relations `works_at` that a text states."""
    for match in _WORKS_AT.finditer(text):
        words = _parse_organization_after(text, match.end())
        person = _find_person_before(text, match.start())
        if person and may_be_organization(words):
            yield StatedRelation(tuple(person), "works_at", strip_legal_form(tuple(words)), text_index)


def _parse_organization_after(text: str, start: int) -> list[str]:
    words, _ = parse_name_after(text, start, allow_capitals=True, max_words=MAX_ORGANIZATION_WORDS)
    return words


def _find_person_before(text: str, end: int) -> list[str]:
    """Return the name before a verb. An e-mail address may be between them."""
    if text[:end].rstrip().endswith(">"):
        end = text.rfind("<", max(0, end - MAX_ADDRESS_CHARS), end)
    return parse_name_before(text, end) if end > 0 else []


def may_be_organization(words: list[str]) -> bool:
    """Return whether words in the position of an employer can be its name. "Night" cannot."""
    return bool(words) and words[0].lower() not in _NOT_ORGANIZATIONS and bool(fold_words(words))


def strip_legal_form(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return an organization's name without its legal form, such as GmbH or Inc."""
    name = list(words)
    while len(name) > 1 and name[-1].rstrip(".") in _LEGAL_FORMS:
        name.pop()
    return tuple(name)
