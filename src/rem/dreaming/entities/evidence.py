"""Evidence: what in a text tells that someone or something of a name exists. A capital letter does not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PERSON, ORGANIZATION, PROJECT = "person", "organization", "project"
ENOUGH = 0.75
"""As rem_enough_evidence has it."""


class Kind(StrEnum):
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
    """It stands where a person stands. By itself that makes nobody known: see rem_use_confidence."""


class Trait(StrEnum):
    """What uses of a name tell of it."""

    HUMAN = "human"
    """Nothing but a person is spoken of like this."""
    PERSONAL = "personal"
    """The owner has to do with it."""
    INSIDE = "inside"
    """It stands inside a sentence, where words that are no names have no capital."""
    OTHER = "other"
    """It is an animal, or made up."""


_BY_ADDRESS = frozenset({Kind.MAILBOX, Kind.ADDRESS, Kind.DOMAIN})
"""Independent of what the words around it say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One place where something is named."""

    kind: Kind
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
    traits: frozenset[Trait] = frozenset()
    """Of a use."""

    @property
    def is_by_address(self) -> bool:
        """Whether an address tells it, and not words."""
        return self.kind in _BY_ADDRESS


@dataclass(frozen=True, slots=True)
class Stated:
    """That the words state how two names relate."""

    src: tuple[str, ...]
    rel_type: str
    dst: tuple[str, ...]
    place: int
    weight: float = 1.0


def combined(shares: list[float]) -> float:
    """How sure several pieces of evidence make one together."""
    left = 1.0
    for share in shares:
        left *= 1 - share
    return 1 - left
