"""Evidence: what in a text tells that someone or something of a name exists. A capital letter does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from rem.dreaming.entities.name_parsing import fold_word

PERSON, ORGANIZATION, PROJECT = "person", "organization", "project"
MIN_CONFIDENCE = 0.75
"""As rem_min_entity_confidence has it."""


class EvidenceKind(StrEnum):
    """How a name was met."""

    MAILBOX = "mailbox"
    """An address with a name."""
    ADDRESS = "address"
    """An address alone."""
    DOMAIN = "domain"
    """The organisation behind an address."""
    SIGNATURE = "signature"
    HANDLE = "handle"
    WORDS = "words"
    """Somebody says who or what it is."""
    TITLE = "title"
    """Dr. Chen."""
    SPEAKER = "speaker"
    """Who says it."""
    MODEL = "model"
    """A language model says so."""
    USE = "use"
    """It stands where a person stands. By itself that makes nobody known: see rem_name_usage_confidence."""


class UsageTrait(StrEnum):
    """What uses of a name tell of it."""

    HUMAN = "human"
    """Nothing but a person is spoken of like this."""
    PERSONAL = "personal"
    """The owner has to do with it."""
    INSIDE = "inside"
    """It stands inside a sentence, where words that are no names have no capital."""
    OTHER = "other"
    """It is an animal, or made up."""


_BY_ADDRESS = frozenset({EvidenceKind.MAILBOX, EvidenceKind.ADDRESS, EvidenceKind.DOMAIN})
"""Independent of what the words around it say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One place where something is named."""

    kind: EvidenceKind
    entity_type: str
    words: tuple[str, ...] = ()
    """The name; empty if only an address is given."""
    place: int = 0
    """Which of the texts."""
    start: int = 0
    confidence: float = 0.5
    address: str | None = None
    handle: str | None = None
    title: str | None = None
    relation: str | None = None
    """What a person is to the one who talks: sister, colleague."""
    says: str = ""
    """The sentence."""
    aliases: tuple[str, ...] = ()
    """Other names that are given with it."""
    traits: frozenset[UsageTrait] = frozenset()
    """Of a use."""

    @property
    def is_by_address(self) -> bool:
        """Whether an address tells it, and not words."""
        return self.kind in _BY_ADDRESS


@dataclass(frozen=True, slots=True)
class StatedRelation:
    """That the words state how two names relate."""

    src: tuple[str, ...]
    rel_type: str
    dst: tuple[str, ...]
    place: int
    weight: float = 1.0


def combine_confidences(shares: list[float]) -> float:
    """How sure several pieces of evidence make one together."""
    left = 1.0
    for share in shares:
        left *= 1 - share
    return 1 - left


EXCLUSIVE_RELATIONS = ("works_at", "reports_to", "lives_in", "married_to")
"""A newer one ends the older."""
_SYNONYMS = {"works_for": "works_at", "employed_by": "works_at", "employed_at": "works_at", "located_at": "located_in"}
_READABLE = re.compile(r"[a-z][a-z]{1,30}(?:_[a-z]{1,30}){0,4}\Z")


def normalize_rel_type(label: str) -> str | None:
    """A relation's name as the graph writes it; None if it cannot be one."""
    name = re.sub(r"[\s-]+", "_", label[:200].strip().lower())
    name = _SYNONYMS.get(name, name)
    return name if _READABLE.match(name) else None


RelationEnds: TypeAlias = tuple[Hashable, Hashable]
"""What a relation leads from, and where to."""


def _ends_by_name(one: StatedRelation) -> RelationEnds:
    return one.src, one.dst


def find_beginnings(
    stated: Iterable[StatedRelation], ends: Callable[[StatedRelation], RelationEnds] = _ends_by_name
) -> list[StatedRelation]:
    """When each thing that was stated began to hold, in the order of time: when it was said first; and if something
    else held between, also when it was said first since."""
    begun: list[StatedRelation] = []
    known: set[tuple[Hashable, str, Hashable]] = set()
    current: dict[tuple[Hashable, str], Hashable] = {}
    for one in sorted(stated, key=lambda one: one.place):
        src, dst = ends(one)
        is_back = one.rel_type in EXCLUSIVE_RELATIONS and current.get((src, one.rel_type)) != dst
        if is_back or (src, one.rel_type, dst) not in known:
            begun.append(one)
        known.add((src, one.rel_type, dst))
        current[src, one.rel_type] = dst
    return begun


def ends_by_first_word(one: StatedRelation) -> RelationEnds:
    """Before it is known who is who: Sarah and Sarah Chen may be one."""
    return fold_word(one.src[0]) if one.src else "", (one.src, one.dst)
