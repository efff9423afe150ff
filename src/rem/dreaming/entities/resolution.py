"""Resolution: which stored entity each name of a conversation stands for, if any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from rem.dreaming.entities.aliases import Candidate
from rem.dreaming.entities.evidence import ENOUGH, PERSON, Stated
from rem.dreaming.entities.introductions import FAMILY
from rem.dreaming.entities.known_names import ANYTHING, Known, KnownNames, one_of
from rem.dreaming.entities.name_words import fold, folded


@dataclass(frozen=True, slots=True)
class Target:
    """What a candidate is."""

    known: Known | None = None
    is_refused: bool = False
    """Whether its owner does not want it."""
    is_linked: bool = False
    """Whether it is known under another name."""
    is_mention: bool = False
    """Whether it is no evidence, only a mention."""

    @property
    def may_be_claimed(self) -> bool:
        """Whether the conversation may speak for its row."""
        return not self.is_refused and not self.is_mention and (self.known is None or self.known.is_dreamt)

    def may_be_used(self, candidate: Candidate) -> bool:
        """Whether it may speak for it by what it is; a name that is only used tells nothing of other names."""
        return self.may_be_claimed and not (candidate.is_only_used and self.is_linked)


@dataclass(slots=True)
class Resolution:
    """The candidates of one subject, each with what it is."""

    candidates: Sequence[Candidate]
    targets: list[Target]
    others: dict[str, list[Known]]
    """What answers to names that are no candidates."""
    outdone: set[UUID] = field(default_factory=set)
    """Entities that a candidate is, under a fuller name."""

    def holder(self, words: tuple[str, ...]) -> tuple[Candidate | None, Known | None]:
        """Who or what a name in this conversation means."""
        name = folded(words)
        matching = [number for number, one in enumerate(self.candidates) if "".join(one.folded) == "".join(name)]
        if not matching and len(name) == 1:
            matching = [
                number
                for number, one in enumerate(self.candidates)
                if one.entity_type == PERSON and one.folded[:1] == name
            ]
        if len(matching) == 1:
            return self.candidates[matching[0]], self.targets[matching[0]].known
        if matching:
            return None, None
        label = " ".join(words)
        found = [known for known in self.others.get(label, []) if len(name) > 1 or known.is_called(label)]
        return None, one_of(found, label)

    def is_established(self, words: tuple[str, ...]) -> bool:
        """Whether a name means something that there is, or enough evidence for it is in this conversation."""
        candidate, known = self.holder(words)
        return known is not None or (candidate is not None and candidate.confidence >= ENOUGH)


async def resolve(names: KnownNames, candidates: Sequence[Candidate], stated: Sequence[Stated]) -> Resolution:
    """Look up what the names of a conversation are."""
    labels = {label for one in candidates for label in one.labels}
    labels |= {one.words[0] for one in candidates if one.is_single}
    others = {" ".join(words) for one in stated for words in (one.src, one.dst)}
    if not labels | others:
        return Resolution(candidates, [], {})
    known = await names.find(labels | others, ANYTHING)
    taken = await names.taken_back(labels) if labels else {}
    resolution = Resolution(candidates, [], {label: known.get(label, []) for label in others})
    for candidate in candidates:
        is_owner = any(map(names.is_owners, candidate.keys))
        target = Target(is_refused=True) if is_owner else _target(candidate, known, taken, resolution.outdone)
        resolution.targets.append(target)
    return resolution


def _target(
    candidate: Candidate, known: dict[str, list[Known]], taken: dict[str, Known | None], outdone: set[UUID]
) -> Target:
    hits = [
        (label, one)
        for label in candidate.labels
        for one in known.get(label, [])
        if one.ref.type != "resources" or label == candidate.name
    ]
    if any(one.is_owner for _, one in hits):
        return Target(is_refused=True)
    for label, one in hits:
        if not one.is_dreamt:
            return Target(one, is_linked=label != candidate.name)
    refused = [label for label in candidate.labels if label in taken]
    if refused:
        corrected = next((now for label in refused if (now := taken[label]) is not None), None)
        return Target(corrected, is_refused=corrected is None, is_linked=corrected is not None)
    first = _by_first_name(candidate, known)
    if first is not None:
        return Target(first, is_linked=True, is_mention=True)
    return _dreamt_target(candidate, hits, outdone)


def _dreamt_target(candidate: Candidate, hits: Sequence[tuple[str, Known]], outdone: set[UUID]) -> Target:
    """The one with the fullest name of those that share an address and may be the same."""
    if candidate.is_only_used and len({one.key for _, one in hits}) > 1:
        return Target(is_refused=True)
    fitting = [(label, one) for label, one in hits if label == candidate.name or one.may_be(candidate.words)]
    own = next((one for _, one in fitting if fold(one.name) == fold(candidate.name)), None)
    if not fitting:
        return Target()
    best = min((one for _, one in fitting), key=lambda one: (-len(one.words), -len(one.name), one.key))
    if fold(best.name) != fold(candidate.name) and _is_fuller(candidate, best):
        outdone |= {one.ref.id for _, one in fitting if own is None or one.ref != own.ref}
        return Target(own)
    outdone |= {one.ref.id for _, one in fitting if one.ref != best.ref}
    return Target(best, is_linked=fold(best.name) != fold(candidate.name))


def _is_fuller(candidate: Candidate, known: Known) -> bool:
    return (len(candidate.folded), len(candidate.name)) >= (len(known.words), len(known.name))


def _by_first_name(candidate: Candidate, known: dict[str, list[Known]]) -> Known | None:
    """My colleague Sarah is Sarah Chen, if no other Sarah is known. My sister Sarah need not be."""
    if not candidate.is_single or not candidate.relation or candidate.relation in FAMILY:
        return None
    first = candidate.words[0]
    bearers = [one for one in known.get(first, []) if one.is_called(first)]
    full = {one.key: one for one in bearers if one.is_full_name}
    others = [one for one in bearers if not one.is_full_name and fold(one.name) != fold(candidate.name)]
    return next(iter(full.values())) if len(full) == 1 and not others else None
