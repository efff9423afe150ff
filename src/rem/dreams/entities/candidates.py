"""Merge the evidence of one conversation into candidates: one for each person or thing, with all its names.

Two names become one candidate only if the conversation links them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rem.dreams.entities.emails import address_fits_name
from rem.dreams.entities.evidence import (
    ORGANIZATION,
    PERSON,
    Evidence,
    EvidenceKind,
    combine_confidences,
)
from rem.dreams.entities.introductions import FAMILY_RELATIONS, strip_legal_form
from rem.dreams.entities.name_parsing import TITLES, fold_word, fold_words, is_capitalised

MAX_CONFIDENCE = 0.99
"""The confidence of a candidate never reaches 1, because rules can be wrong."""
_NO_INTRODUCTIONS = (EvidenceKind.ADDRESS, EvidenceKind.HANDLE, EvidenceKind.TAGGED)
_HANDLE_SEPARATORS = re.compile(r"[._-]+")


@dataclass(slots=True)
class Candidate:
    """A person or thing that a conversation names, with all evidence for it."""

    entity_type: str
    words: tuple[str, ...]
    evidence: list[Evidence] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    """Unique aliases: e-mail addresses, handles and domains."""
    relation: str | None = None
    is_single: bool = False
    """Only a first name is known."""

    @property
    def name(self) -> str:
        """Return the fullest name. A lone first name gets its relation, as in "Sarah (sister)"."""
        name = " ".join(self.words)
        return f"{name} ({self.relation})" if self.is_single and self.relation else name

    @property
    def is_full_name(self) -> bool:
        """Return whether more than a first name is known, and the first name is no initial or title."""
        first = self.words[0] if self.words else ""
        is_name = len(first) > 2 and not first.endswith(".") and is_capitalised(first)
        return len(self.words) > 1 and is_name and first.lower() not in TITLES

    @property
    def related_name(self) -> str | None:
        """Return the first name with the relation, as in "Sarah (sister)"; None if the relation is not known."""
        return f"{self.words[0]} ({self.relation})" if self.words and self.relation else None

    @property
    def folded_words(self) -> tuple[str, ...]:
        """Return the words of the name, folded for comparison."""
        return fold_words(self.words)

    @property
    def unique_names(self) -> list[str]:
        """Return the name and the unique aliases."""
        return [self.name, *sorted(self.keys)]

    @property
    def text_indexes(self) -> list[int]:
        """Return the indexes of the texts with evidence, in order."""
        return sorted({item.text_index for item in self.evidence})

    @property
    def confidence(self) -> float:
        """Return the combined confidence of all texts."""
        confidences = [self.confidence_in_text(text_index) for text_index in self.text_indexes]
        return min(MAX_CONFIDENCE, combine_confidences(confidences))

    def confidence_in_text(self, text_index: int) -> float:
        """Return the confidence from one text. All its words count once, and each e-mail address once."""
        evidence = [item for item in self.evidence if item.text_index == text_index]
        by_words = max((item.confidence for item in evidence if not item.is_by_address), default=0.0)
        by_address: dict[str | None, float] = defaultdict(float)
        for item in evidence:
            if item.is_by_address:
                by_address[item.address] = max(by_address[item.address], item.confidence)
        return combine_confidences([by_words, *by_address.values()])

    @property
    def is_tagged_only(self) -> bool:
        """Return whether the tagger alone has found it."""
        return all(item.kind is EvidenceKind.TAGGED for item in self.evidence)

    @property
    def sentences(self) -> list[tuple[int, str]]:
        """Return the sentences that are evidence for it, each with the index of its text, in the order of the texts."""
        ordered = sorted(self.evidence, key=lambda item: (item.text_index, item.offset))
        return [(item.text_index, item.sentence) for item in ordered if item.sentence]

    @property
    def labels(self) -> set[str]:
        """Return the names under which the conversation speaks of it, without addresses."""
        return {label for label in (" ".join(self.words), *self.aliases) if "@" not in label and "(" not in label}

    def add_evidence(self, item: Evidence, *aliases: str) -> None:
        """Add a piece of evidence with the names in it, and further aliases."""
        self.evidence.append(item)
        self.relation = self.relation or item.relation
        if item.address and self.entity_type == PERSON:
            self.keys.add(item.address)
        if item.handle:
            self.keys.add(f"@{item.handle}")
        self.aliases |= {alias for alias in (*aliases, *item.aliases) if alias}


def build_candidates(evidence: Sequence[Evidence], texts: Sequence[str]) -> list[Candidate]:
    """Return the people and things that the texts of one conversation name, each once."""
    things = _merge_things([item for item in evidence if item.entity_type != PERSON])
    people = _PeopleMerger([item for item in evidence if item.entity_type == PERSON]).merge(texts)
    things_by_words = {"".join(thing.folded_words) for thing in things if not thing.is_tagged_only}
    people = [
        person for person in people if not person.is_tagged_only or "".join(person.folded_words) not in things_by_words
    ]
    names = {person.folded_words for person in people} | {person.folded_words[:1] for person in people}
    return people + [
        thing
        for thing in things
        if thing.entity_type != ORGANIZATION or not _is_person_or_own_domain(thing, names, people)
    ]


def _is_person_or_own_domain(organization: Candidate, names: set[tuple[str, ...]], people: Iterable[Candidate]) -> bool:
    """Return whether an organization is in fact a person, or the private domain of a person."""
    if organization.folded_words in names:
        return True
    family_names = {person.folded_words[-1] for person in people if len(person.folded_words) > 1}
    is_domain_only = all(item.kind is EvidenceKind.DOMAIN for item in organization.evidence)
    return "".join(organization.folded_words) in family_names and is_domain_only


class _PeopleMerger:
    """Merge evidence of people: addresses with names that fit, first names with the only full name that has it.

    Each step takes one piece of evidence, and returns whether it has used it.
    """

    def __init__(self, evidence: Sequence[Evidence]) -> None:
        self._evidence = evidence
        self._by_full_name: dict[tuple[str, ...], Candidate] = {}
        self._by_single_name: dict[tuple[str, str], Candidate] = {}
        """By a qualifier (a title, a relation, "@" or nothing) and a word."""
        self._used: set[int] = set()

    def merge(self, texts: Sequence[str]) -> list[Candidate]:
        """Return the people, each once."""
        for step in (
            self._merge_full_name,
            self._merge_speaking_address,
            self._merge_address,
            self._merge_handle,
            self._merge_titled_name,
            self._merge_first_name,
            self._merge_tagged_name,
        ):
            for number, item in enumerate(self._evidence):
                if number not in self._used and step(item):
                    self._used.add(number)
        people = self._all_people()
        self._add_first_name_aliases(texts)
        return people

    def _all_people(self) -> list[Candidate]:
        return [*self._by_full_name.values(), *self._by_single_name.values()]

    def _merge_full_name(self, item: Evidence) -> bool:
        name = fold_words(item.words)
        is_unspaced_name = item.kind is EvidenceKind.MAILBOX and bool(name) and not item.words[0].isascii()
        if item.kind is EvidenceKind.ADDRESS or not (len(name) > 1 or is_unspaced_name):
            return False
        person = self._by_full_name.setdefault(name, Candidate(PERSON, _normalize_case(item.words)))
        person.add_evidence(item, f"{item.title} {item.words[-1]}" if item.title else "")
        return True

    def _merge_speaking_address(self, item: Evidence) -> bool:
        """Merge sarah.chen@… with the only name that fits, or make it Sarah Chen."""
        if item.kind is not EvidenceKind.ADDRESS or not item.words:
            return False
        person = self._find_by_address(item)
        if person is None:
            person = self._by_full_name.setdefault(fold_words(item.words), Candidate(PERSON, item.words))
        person.add_evidence(item)
        return True

    def _merge_address(self, item: Evidence) -> bool:
        """Merge s.chen@…, sarah@…, or a display name of one word, with the only full name that fits."""
        if item.address is None:
            return False
        person = next((person for person in self._by_full_name.values() if item.address in person.keys), None)
        person = person or self._find_by_address(item)
        if person is None:
            return False
        person.add_evidence(item, " ".join(item.words))
        return True

    def _merge_handle(self, item: Evidence) -> bool:
        if item.handle is None:
            return False
        handle = item.handle
        person = self._find_only(lambda person: address_fits_name(handle, person.folded_words))
        if person is None:
            parts = tuple(part.capitalize() for part in _HANDLE_SEPARATORS.split(handle) if part)
            is_name = len(parts) > 1 and all(part.isalpha() and len(part) > 1 for part in parts)
            new = Candidate(PERSON, parts if is_name else (handle,))
            person = self._by_single_name.setdefault(("@", handle.lower()), new)
        person.add_evidence(item)
        return True

    def _merge_titled_name(self, item: Evidence) -> bool:
        """Merge Dr. Chen with the only person of this family name."""
        name = fold_words(item.words)
        if item.title is None or len(name) != 1:
            return False
        person = self._find_only(lambda person: person.folded_words[-1:] == name and len(person.folded_words) > 1)
        if person is None:
            if any(person.folded_words[-1:] == name for person in self._by_full_name.values()):
                return False
            new = Candidate(PERSON, (item.title, item.words[0]))
            person = self._by_single_name.setdefault((item.title, name[0]), new)
        person.add_evidence(item, f"{item.title} {item.words[0]}")
        return True

    def _merge_first_name(self, item: Evidence) -> bool:
        """Merge a first name with the only person who has it. Without one, it needs a relation to be a person."""
        name = fold_words(item.words)
        if len(name) != 1 or item.kind in _NO_INTRODUCTIONS:
            return False
        people = [
            person
            for person in self._by_full_name.values()
            if person.folded_words[:1] == name and _relations_agree(person, item)
        ]
        if people:
            if len(people) > 1:
                return False
            people[0].add_evidence(item, item.words[0])
            return True
        needs_no_relation = item.kind in (EvidenceKind.SPEAKER, EvidenceKind.MAILBOX, EvidenceKind.MODEL)
        qualifier = "" if needs_no_relation else item.relation
        if qualifier is None:
            return False
        new = Candidate(PERSON, item.words, is_single=True, relation=qualifier or None)
        person = self._by_single_name.setdefault((qualifier, name[0]), new)
        person.add_evidence(item, item.words[0] if qualifier else "")
        if not qualifier:
            person.relation = None
        return True

    def _merge_tagged_name(self, item: Evidence) -> bool:
        """Merge a first name that the tagger found with the only person who has it, whatever is known of them."""
        name = fold_words(item.words)
        if item.kind is not EvidenceKind.TAGGED or len(name) != 1:
            return False
        people = [person for person in self._all_people() if person.folded_words[:1] == name]
        if len(people) > 1:
            return False
        if people:
            person = people[0]
        else:
            person = self._by_single_name.setdefault(("", name[0]), Candidate(PERSON, item.words))
            person.is_single = True
        person.add_evidence(item)
        return True

    def _add_first_name_aliases(self, texts: Sequence[str]) -> None:
        """Add the first name as an alias where a text uses it alone, and only one person has it."""
        by_first_name: dict[str, list[Candidate]] = defaultdict(list)
        for person in self._all_people():
            by_first_name[person.folded_words[0] if person.folded_words else ""].append(person)
        for person in self._by_full_name.values():
            first_name = person.words[0]
            is_unique = len(by_first_name[fold_word(first_name)]) == 1 and len(person.words) > 1
            if is_unique and len(first_name) > 2 and not first_name.endswith("."):
                second = re.escape(person.words[1])
                alone = re.compile(rf"(?<![\w@.<-]){re.escape(first_name)}(?![\w@-])(?!\.\w)(?! {second})")
                if is_capitalised(first_name) and any(alone.search(text) for text in texts):
                    person.aliases.add(first_name)

    def _find_by_address(self, item: Evidence) -> Candidate | None:
        local_part = (item.address or "").partition("@")[0]
        return self._find_only(lambda person: address_fits_name(local_part, person.folded_words))

    def _find_only(self, condition: Callable[[Candidate], bool]) -> Candidate | None:
        """Return the person with a full name who meets a condition; None if there is none or more than one."""
        people = [person for person in self._by_full_name.values() if condition(person)]
        return people[0] if len(people) == 1 else None


def _relations_agree(person: Candidate, item: Evidence) -> bool:
    """Return whether two relations can belong to one person. A sister is not also a colleague."""
    if item.relation is None or person.relation is None or item.relation == person.relation:
        return True
    return item.relation not in FAMILY_RELATIONS and person.relation not in FAMILY_RELATIONS


def _merge_things(evidence: Sequence[Evidence]) -> list[Candidate]:
    """Merge organizations and projects whose names have the same letters."""
    things: dict[tuple[str, str], Candidate] = {}
    # Written names come before names that were made from a domain.
    for item in sorted(evidence, key=lambda item: (item.kind is EvidenceKind.DOMAIN, item.text_index, item.offset)):
        words = strip_legal_form(item.words) if item.entity_type == ORGANIZATION else item.words
        letters = "".join(fold_words(words))
        if not letters:
            continue
        thing = things.setdefault((item.entity_type, letters), Candidate(item.entity_type, words))
        thing.add_evidence(item, " ".join(item.words) if item.words != words else "")
        if item.kind is EvidenceKind.DOMAIN and item.address:
            thing.keys.add(item.address.partition("@")[2])
    return list(things.values())


def _normalize_case(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return Sarah Chen for SARAH CHEN, without a leading title."""
    name = words[1:] if words and words[0].lower().rstrip(".") in TITLES and len(words) > 2 else words
    return tuple(word.title() if word.isupper() and len(word) > 2 else word for word in name)
