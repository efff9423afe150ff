"""Aliases: which names of one conversation are names of the same thing. Only what is linked is merged."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rem.dreaming.entities.emails import address_fits_name
from rem.dreaming.entities.evidence import (
    MIN_CONFIDENCE,
    ORGANIZATION,
    PERSON,
    Evidence,
    EvidenceKind,
    UsageTrait,
    combine_confidences,
)
from rem.dreaming.entities.introductions import FAMILY_RELATIONS, strip_legal_form
from rem.dreaming.entities.name_parsing import TITLES, fold_word, fold_words, is_capitalised

_HANDLE_PARTS = re.compile(r"[._-]+")
_SMALL_WORD = re.compile(r"(?<![^\s(\[\"'“„])[^\W\d_A-Z]{3,40}(?![\w@-]|\.\w)")
MAX_DESCRIPTION_SENTENCES = 2
MAX_CONFIDENCE = 0.99


@dataclass(slots=True)
class Candidate:
    """Something that a conversation names, with all that speaks for it there."""

    entity_type: str
    words: tuple[str, ...]
    evidence: list[Evidence] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    """Those of its aliases that nothing else has: addresses, handles."""
    relation: str | None = None
    is_single: bool = False
    """Whether it is known by a first name only."""

    @property
    def name(self) -> str:
        """The fullest name."""
        plain = " ".join(self.words)
        return f"{plain} ({self.relation})" if self.is_single and self.relation else plain

    @property
    def folded_words(self) -> tuple[str, ...]:
        """Its words, for comparing."""
        return fold_words(self.words)

    @property
    def unique_names(self) -> list[str]:
        """What is this thing and no other."""
        return [self.name, *sorted(self.keys)]

    @property
    def text_indexes(self) -> list[int]:
        """The texts that speak for it."""
        return sorted({one.place for one in self.evidence})

    @property
    def confidence(self) -> float:
        """How sure all of it is together. In one text, words count once, and addresses beside them."""
        return min(MAX_CONFIDENCE, combine_confidences([self.confidence_in_text(place) for place in self.text_indexes]))

    def confidence_in_text(self, place: int) -> float:
        """How sure one text makes it."""
        here = [one for one in self.evidence if one.place == place]
        words = max((one.confidence for one in here if not one.is_by_address), default=0.0)
        by_address: dict[str | None, float] = defaultdict(float)
        for one in here:
            if one.is_by_address:
                by_address[one.address] = max(by_address[one.address], one.confidence)
        return combine_confidences([words, *by_address.values()])

    @property
    def is_usage_only(self) -> bool:
        """Whether nothing but how its name is used speaks for it."""
        return all(one.kind is EvidenceKind.USE for one in self.evidence)

    @property
    def usage(self) -> tuple[int, list[UsageTrait]]:
        """In how many texts its name is used as a person's, and what that tells of it."""
        found = [one for one in self.evidence if one.kind is EvidenceKind.USE]
        return len({one.place for one in found}), sorted({trait for one in found for trait in one.traits})

    @property
    def surest(self) -> float:
        """How sure it can be at most."""
        return MAX_CONFIDENCE

    @property
    def description(self) -> str:
        """What was said of it, in short, in its order; what somebody asks is not said."""
        told = [one for one in self.evidence if one.says and not one.says.endswith("?")]
        told.sort(key=lambda one: (one.is_by_address, one.place, one.start))
        sayings: dict[str, tuple[int, int]] = {}
        for one in told:
            sayings.setdefault(one.says, (one.place, one.start))
        return "\n".join(sorted(list(sayings)[:MAX_DESCRIPTION_SENTENCES], key=lambda says: sayings[says]))

    def add_evidence(self, one: Evidence, *aliases: str) -> None:
        """Take a piece of evidence, and the names that it brings."""
        self.evidence.append(one)
        self.relation = self.relation or one.relation
        if one.address and self.entity_type == PERSON:
            self.keys.add(one.address)
        if one.handle:
            self.keys.add(f"@{one.handle}")
        self.aliases |= {alias for alias in (*aliases, *one.aliases) if alias}


def candidates(evidence: Sequence[Evidence], texts: Sequence[str]) -> list[Candidate]:
    """What the texts of one conversation name, each thing once."""
    things = _merge_things([one for one in evidence if one.entity_type != PERSON])
    people = _PeopleMerger([one for one in evidence if one.entity_type == PERSON]).merge(texts)
    if any(person.is_usage_only for person in people):
        taken = {"".join(thing.folded_words) for thing in things} | _find_uncapitalised_words(texts)
        people = [one for one in people if not one.is_usage_only or "".join(one.folded_words) not in taken]
    sure = [person for person in people if not person.is_usage_only]
    named = {person.folded_words for person in sure} | {person.folded_words[:1] for person in sure}
    return people + [
        thing
        for thing in things
        if thing.entity_type != ORGANIZATION or not _is_person_or_own_domain(thing, named, sure)
    ]


def _find_uncapitalised_words(texts: Sequence[str]) -> set[str]:
    """The words that are written without a capital: where they have one, they are no names."""
    return {word for text in texts for word in _SMALL_WORD.findall(text)}


def _is_person_or_own_domain(thing: Candidate, named: set[tuple[str, ...]], people: Iterable[Candidate]) -> bool:
    """Whether what looks like an organisation is somebody, or only somebody's own domain."""
    if thing.folded_words in named:
        return True
    family = {person.folded_words[-1] for person in people if len(person.folded_words) > 1}
    return "".join(thing.folded_words) in family and all(one.kind is EvidenceKind.DOMAIN for one in thing.evidence)


class _PeopleMerger:
    """Merges what is linked: address and display name, address and full name, first name and the one who has it."""

    def __init__(self, evidence: Sequence[Evidence]) -> None:
        self._evidence = evidence
        self._full: dict[tuple[str, ...], Candidate] = {}
        self._lone: dict[tuple[str, str], Candidate] = {}
        self._used: set[int] = set()

    def merge(self, texts: Sequence[str]) -> list[Candidate]:
        for step in (
            self._merge_full_name,
            self._merge_speaking_address,
            self._merge_address,
            self._merge_handle,
            self._merge_titled_name,
            self._merge_first_name,
            self._merge_used_full_name,
            self._merge_used_first_name,
        ):
            for number, one in enumerate(self._evidence):
                if number not in self._used and step(one):
                    self._used.add(number)
        people = [*self._full.values(), *self._lone.values()]
        self._add_first_name_aliases(texts)
        for person in people:
            if person.confidence >= MIN_CONFIDENCE:
                # Who is known for sure is not made surer, and should not go with what only uses the name.
                person.evidence = [one for one in person.evidence if one.kind is not EvidenceKind.USE]
        return people

    def _merge_full_name(self, one: Evidence) -> bool:
        name = fold_words(one.words)
        is_full = len(name) > 1 or (one.kind is EvidenceKind.MAILBOX and bool(name) and not one.words[0].isascii())
        if one.kind in (EvidenceKind.ADDRESS, EvidenceKind.USE) or not is_full:
            return False
        person = self._full.setdefault(name, Candidate(PERSON, _normalize_case(one.words)))
        person.add_evidence(one, f"{one.title} {one.words[-1]}" if one.title else "")
        return True

    def _merge_speaking_address(self, one: Evidence) -> bool:
        """sarah.chen@…: Sarah Chen, if it is nobody who is named otherwise."""
        if one.kind is not EvidenceKind.ADDRESS or not one.words:
            return False
        owner = self._find_only(
            lambda person: address_fits_name(_local_part(one), person.folded_words)
        ) or self._full.setdefault(fold_words(one.words), Candidate(PERSON, one.words))
        owner.add_evidence(one)
        return True

    def _merge_address(self, one: Evidence) -> bool:
        """s.chen@…, sarah@…, or a display name of one word: of the one whose full name fits, if it is one."""
        if one.address is None:
            return False
        owner = next((person for person in self._full.values() if one.address in person.keys), None)
        owner = owner or self._find_only(lambda person: address_fits_name(_local_part(one), person.folded_words))
        if owner is None:
            return False
        owner.add_evidence(one, " ".join(one.words))
        return True

    def _merge_handle(self, one: Evidence) -> bool:
        if one.handle is None:
            return False
        handle = one.handle
        owner = self._find_only(lambda person: address_fits_name(handle, person.folded_words))
        if owner is None:
            parts = tuple(part.capitalize() for part in _HANDLE_PARTS.split(handle) if part)
            is_name = len(parts) > 1 and all(part.isalpha() and len(part) > 1 for part in parts)
            owner = self._lone.setdefault(("@", handle.lower()), Candidate(PERSON, parts if is_name else (handle,)))
        owner.add_evidence(one)
        return True

    def _merge_titled_name(self, one: Evidence) -> bool:
        name = fold_words(one.words)
        if one.title is None or len(name) != 1:
            return False
        label = f"{one.title} {one.words[0]}"
        owner = self._find_only(lambda person: person.folded_words[-1:] == name and len(person.folded_words) > 1)
        if owner is None:
            if any(person.folded_words[-1:] == name for person in self._full.values()):
                return False
            owner = self._lone.setdefault((one.title, name[0]), Candidate(PERSON, (one.title, one.words[0])))
        owner.add_evidence(one, label)
        return True

    def _merge_first_name(self, one: Evidence) -> bool:
        """A first name: of the one in the conversation who has it; else it needs a relation to be somebody."""
        name = fold_words(one.words)
        if len(name) != 1 or one.kind in (EvidenceKind.ADDRESS, EvidenceKind.HANDLE, EvidenceKind.USE):
            return False
        bearers = [
            person
            for person in self._full.values()
            if person.folded_words[:1] == name and _relations_agree(person, one)
        ]
        if bearers:
            if len(bearers) > 1:
                return False
            bearers[0].add_evidence(one, one.words[0])
            return True
        qualifier = "" if one.kind in (EvidenceKind.SPEAKER, EvidenceKind.MAILBOX, EvidenceKind.MODEL) else one.relation
        if qualifier is None:
            return False
        lone = self._lone.setdefault(
            (qualifier, name[0]), Candidate(PERSON, one.words, is_single=True, relation=qualifier or None)
        )
        lone.add_evidence(one, one.words[0] if qualifier else "")
        if not qualifier:
            lone.relation = None
        return True

    def _merge_used_full_name(self, one: Evidence) -> bool:
        name = fold_words(one.words)
        if len(name) < 2:
            return False
        self._full.setdefault(name, Candidate(PERSON, one.words)).add_evidence(one)
        return True

    def _merge_used_first_name(self, one: Evidence) -> bool:
        """Of the one in the conversation who has it, however that one is known."""
        name = fold_words(one.words)
        if len(name) != 1:
            return False
        bearers = [person for person in (*self._full.values(), *self._lone.values()) if person.folded_words[:1] == name]
        if len(bearers) > 1:
            return False
        bearer = bearers[0] if bearers else self._lone.setdefault(("", name[0]), Candidate(PERSON, one.words))
        bearer.is_single = bearer.is_single or not bearers
        bearer.add_evidence(one)
        return True

    def _add_first_name_aliases(self, texts: Sequence[str]) -> None:
        """Who is also called by the first name alone, in the same conversation."""
        bearers: dict[str, list[Candidate]] = defaultdict(list)
        for person in (*self._full.values(), *self._lone.values()):
            bearers[person.folded_words[0] if person.folded_words else ""].append(person)
        for person in self._full.values():
            first = person.words[0]
            if (
                len(bearers[fold_word(first)]) == 1
                and len(person.words) > 1
                and len(first) > 2
                and not first.endswith(".")
            ):
                last = re.escape(person.words[1])
                alone = re.compile(rf"(?<![\w@.<-]){re.escape(first)}(?![\w@-])(?!\.\w)(?! {last})")
                if is_capitalised(first) and any(alone.search(text) for text in texts):
                    person.aliases.add(first)

    def _find_only(self, condition: Callable[[Candidate], bool]) -> Candidate | None:
        fitting = [person for person in self._full.values() if condition(person)]
        return fitting[0] if len(fitting) == 1 else None


def _relations_agree(person: Candidate, one: Evidence) -> bool:
    """A sister is no colleague: such two are two."""
    if one.relation is None or person.relation is None or one.relation == person.relation:
        return True
    return one.relation not in FAMILY_RELATIONS and person.relation not in FAMILY_RELATIONS


def _local_part(one: Evidence) -> str:
    return (one.address or "").partition("@")[0]


def _merge_things(evidence: Sequence[Evidence]) -> list[Candidate]:
    """Organisations and projects: the same letters are the same name."""
    found: dict[tuple[str, str], Candidate] = {}
    # Names as they are written come before those that were made of a domain.
    for one in sorted(evidence, key=lambda one: (one.kind is EvidenceKind.DOMAIN, one.place, one.start)):
        words = strip_legal_form(one.words) if one.entity_type == ORGANIZATION else one.words
        letters = "".join(fold_words(words))
        if not letters:
            continue
        thing = found.setdefault((one.entity_type, letters), Candidate(one.entity_type, words))
        written = " ".join(one.words)
        thing.add_evidence(one, written if one.words != words else "")
        if one.kind is EvidenceKind.DOMAIN and one.address:
            thing.keys.add(one.address.partition("@")[2])
    return list(found.values())


def _normalize_case(words: tuple[str, ...]) -> tuple[str, ...]:
    """SARAH CHEN is Sarah Chen."""
    plain = words[1:] if words and words[0].lower().rstrip(".") in TITLES and len(words) > 2 else words
    return tuple(word.title() if word.isupper() and len(word) > 2 else word for word in plain)
