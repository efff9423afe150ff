"""The evidence in a text that a person, an organization or a project exists, and the relations that a text states.

A capital letter alone is no evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from rem.dreams.entities.name_parsing import fold_word

PERSON, ORGANIZATION, PROJECT = "person", "organization", "project"
MIN_CONFIDENCE = 0.75
"""The confidence from which an entity becomes a row; the same value as rem_min_entity_confidence in SQL."""
EXCLUSIVE_RELATIONS = ("works_at", "reports_to", "lives_in", "married_to")
"""Relations that a person has one of at a time. A newer one ends the older one."""
_SYNONYMS = {"works_for": "works_at", "employed_by": "works_at", "employed_at": "works_at", "located_at": "located_in"}
_REL_TYPE = re.compile(r"[a-z][a-z]{1,30}(?:_[a-z]{1,30}){0,4}\Z")


class EvidenceKind(StrEnum):
    """The way in which a text names something."""

    MAILBOX = "mailbox"
    """An e-mail address with a name."""
    ADDRESS = "address"
    """An e-mail address without a name."""
    DOMAIN = "domain"
    """The organization behind an e-mail address."""
    SIGNATURE = "signature"
    HANDLE = "handle"
    WORDS = "words"
    """An introduction, such as "my colleague Sarah"."""
    TITLE = "title"
    """A title and a name, such as "Dr. Chen"."""
    SPEAKER = "speaker"
    """The author of a message."""
    TAGGED = "tagged"
    """A name that the tagger finds."""
    MODEL = "model"
    """The answer of a language model."""


_ADDRESS_KINDS = frozenset({EvidenceKind.MAILBOX, EvidenceKind.ADDRESS, EvidenceKind.DOMAIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One position in a text that names something."""

    kind: EvidenceKind
    entity_type: str
    words: tuple[str, ...] = ()
    """The words of the name; empty for an address without a name."""
    text_index: int = 0
    """The position of the text in the list of texts."""
    offset: int = 0
    """The offset of the name in its text."""
    confidence: float = 0.5
    address: str | None = None
    handle: str | None = None
    title: str | None = None
    relation: str | None = None
    """The relation of the person to the author, such as sister or colleague."""
    sentence: str = ""
    aliases: tuple[str, ...] = ()
    """Other names that the text gives for it."""

    @property
    def is_by_address(self) -> bool:
        """Return whether an e-mail address is the evidence, which is independent of the words around it."""
        return self.kind in _ADDRESS_KINDS


@dataclass(frozen=True, slots=True)
class StatedRelation:
    """A relation between two names that a text states."""

    src: tuple[str, ...]
    rel_type: str
    dst: tuple[str, ...]
    text_index: int
    weight: float = 1.0


RelationEnds: TypeAlias = tuple[Hashable, Hashable]
"""The source and the target of a relation."""


def combine_confidences(confidences: Sequence[float]) -> float:
    """Return the confidence (0 to 1) that at least one of several independent pieces of evidence is right."""
    doubt = 1.0
    for confidence in confidences:
        doubt *= 1 - confidence
    return 1 - doubt


def normalize_rel_type(label: str) -> str | None:
    """Return a relation's name as the graph stores it, such as `works_at`; None if it is not a valid name."""
    name = re.sub(r"[\s-]+", "_", label[:200].strip().lower())
    name = _SYNONYMS.get(name, name)
    return name if _REL_TYPE.match(name) else None


def ends_by_name(relation: StatedRelation) -> RelationEnds:
    """Return the names at both ends of a relation."""
    return relation.src, relation.dst


def ends_by_first_word(relation: StatedRelation) -> RelationEnds:
    """Return ends that are equal for Sarah and Sarah Chen, for use before names are resolved."""
    return fold_word(relation.src[0]) if relation.src else "", (relation.src, relation.dst)


def find_beginnings(
    relations: Iterable[StatedRelation], get_ends: Callable[[StatedRelation], RelationEnds] = ends_by_name
) -> list[StatedRelation]:
    """Return the statements with which a relation begins, in the order of the texts.

    A relation begins when it is stated first. An exclusive relation begins again when another one was stated since.
    """
    beginnings: list[StatedRelation] = []
    known: set[tuple[Hashable, str, Hashable]] = set()
    current: dict[tuple[Hashable, str], Hashable] = {}
    for relation in sorted(relations, key=lambda relation: relation.text_index):
        src, dst = get_ends(relation)
        rel_type = relation.rel_type
        has_changed = rel_type in EXCLUSIVE_RELATIONS and current.get((src, rel_type)) != dst
        if has_changed or (src, rel_type, dst) not in known:
            beginnings.append(relation)
        known.add((src, rel_type, dst))
        current[src, rel_type] = dst
    return beginnings
