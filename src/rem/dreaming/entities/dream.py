"""Entities: people, organisations and projects that conversations and texts name become rows that LOOKUP finds.

Evidence makes them, not capital letters: addresses, signatures, introductions, how a name is used, and with a language
model its reading. A weak piece of evidence makes nothing yet; two from different places do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from rem.db.sql import query
from rem.dreaming.claim import Claim, EdgeClaim, RowClaim, Source
from rem.dreaming.entities.aliases import Candidate, candidates
from rem.dreaming.entities.evidence import ORGANIZATION, Evidence, Stated, combined
from rem.dreaming.entities.introductions import statements_of_work
from rem.dreaming.entities.known_names import DREAM, Known, KnownNames, Link, ToldElsewhere, one_of
from rem.dreaming.entities.mentions import evidence_in, possible_names
from rem.dreaming.entities.name_words import fold, folded
from rem.dreaming.entities.reading import Reading, read
from rem.dreaming.entities.relations import EXCLUSIVE, beginnings, by_first_word
from rem.dreaming.entities.resolution import Resolution, Target, resolve
from rem.dreaming.entities.subjects import (
    Passage,
    Subject,
    naming_subjects,
    new_moments,
    new_subjects,
    passages_of,
    standing_of,
    woken_subjects,
)
from rem.dreaming.entities.uses import tells_tale, uses
from rem.memory.retry import when_busy
from rem.models import Edge, Ontology

if TYPE_CHECKING:
    from rem.dreaming.night import Night

_MOST_CANDIDATES = 200
_MOST_MENTIONS = 200
_MOST_SOURCES = 20
_FIRST_NAME_WEIGHT = 0.6
_STATED = 0.8
"""How sure an organisation is of which an established person is said to work there."""


@dataclass(slots=True)
class Findings:
    """What a subject names, before anything was looked up."""

    passages: list[Passage]
    """What was read. The places of all that was found are places in here: what is read later may be others."""
    candidates: list[Candidate]
    stated: list[Stated]
    mentioned: list[tuple[Known, int]] = field(default_factory=list)


class EntitiesDream:
    """Who and what is named, under one key each."""

    name = DREAM

    async def dream(self, night: Night) -> None:
        """Say what the new conversations and texts name."""
        await _EntityNight(night).run()


async def mention_in_moments(night: Night) -> None:
    """Say which known things the new moments mention; they are made after the rest was looked at."""
    await _EntityNight(night).mention(await new_moments(night))


class _EntityNight:
    """One night. First all subjects say what they have evidence of; then what there is by that is linked."""

    def __init__(self, night: Night) -> None:
        self._night = night
        self._names = KnownNames(night)
        self._findings: dict[Subject, Findings] = {}
        self._outdone: set[UUID] = set()
        self._left: set[UUID] = set()
        """Sessions of which a stretch waits for another night: what comes after it waits, too."""

    async def run(self) -> None:
        await self._reopen()
        subjects = await new_subjects(self._night)
        await self._night.each(DREAM, subjects, self._name)
        woken = await woken_subjects(self._night, subjects, self._outdone)
        await self._night.each(DREAM, woken, self._name)
        for subject in filter(self._may_know_better, subjects):
            await self._name(subject)
        await self._night.each(DREAM, [*subjects, *woken], self._relate)
        for subject in await naming_subjects(self._night, [*subjects, *woken]):
            await self._mention_again(subject)

    async def mention(self, moments: Sequence[Subject]) -> None:
        """Link moments with what there is."""
        for subject in moments:
            self._findings[subject] = await self._found(subject, await passages_of(self._night, subject))
            await self._relate(subject)

    def _may_know_better(self, subject: Subject) -> bool:
        """Whether a subject has something to say that counts otherwise, now that all have spoken."""
        findings = self._findings.get(subject)
        return findings is not None and bool(findings.stated or (self._outdone and findings.candidates))

    async def _reopen(self) -> None:
        """Let hold again what something newer had ended that is gone."""
        scope = self._night.scope

        async def work() -> None:
            async with self._night.store.transaction() as store, store.executor.connection() as connection:
                rows = await connection.fetch(
                    query("entities_dream", "reopen"), scope.tenant_id, scope.user_id, DREAM, list(EXCLUSIVE)
                )
                places: tuple[list[Any], list[Any]] = [row[0] for row in rows], [row[1] for row in rows]
                if rows:
                    await connection.fetch(query("dreaming", "project"), scope.tenant_id, *places)

        await when_busy(work)

    async def _name(self, subject: Subject) -> None:
        """Say which rows a subject speaks for; its edges stay as they are for the moment, and it is not seen yet."""
        if subject not in self._findings:
            self._findings[subject] = await self._found(subject, await passages_of(self._night, subject))
        findings = self._findings[subject]
        passages = findings.passages
        standing = [said for said in await standing_of(self._night, subject, passages) if said.kind == "row"]
        if not findings.candidates and not standing:
            return
        resolution = await resolve(self._names, findings.candidates, findings.stated)
        self._outdone |= resolution.outdone
        rows = await self._rows(subject, passages, findings, resolution)
        only = [said.id for said in standing]
        marks = not subject.is_conversation
        await self._night.say(DREAM, subject.ref, rows, only=only, seen_index=subject.seen_before, marks=marks)

    async def _relate(self, subject: Subject) -> None:
        """Say all of a subject: its rows, what it mentions, and what it states of them."""
        if subject not in self._findings or subject.ref.id in self._left:
            self._left.add(subject.ref.id)
            return
        passages = await passages_of(self._night, subject)
        if passages != self._findings[subject].passages:
            # Somebody has deleted a message meanwhile, or brought one back.
            self._findings[subject] = await self._found(subject, passages)
            await self._name(subject)
        findings = self._findings.pop(subject)
        resolution = await resolve(self._names, findings.candidates, findings.stated)
        claims: list[Claim] = [*await self._rows(subject, passages, findings, resolution)]
        claims += await self._mentions(subject, passages, findings, resolution)
        claims += self._relations(passages, findings, resolution)
        standing = await standing_of(self._night, subject, passages)
        seen = max(subject.last, subject.seen_before) if subject.is_conversation else None
        only = [said.id for said in standing]
        # Also if there is nothing to say: a row that came back may have edges of before.
        changes = await self._night.say(DREAM, subject.ref, claims, only=only, seen_index=seen, stretch=subject.stretch)
        if changes.vanished:
            self._left.add(subject.ref.id)

    async def _mention_again(self, subject: Subject) -> None:
        """Let something of earlier nights mention what is known since then. What else is said of it stays as it is."""
        passages = await passages_of(self._night, subject)
        findings = await self._found(subject, passages, asks=False)
        resolution = await resolve(self._names, findings.candidates, findings.stated)
        standing = {said.name for said in await standing_of(self._night, subject, passages)}
        mentions = await self._mentions(subject, passages, findings, resolution)
        new = [claim for claim in mentions if _name_of_edge(claim) not in standing]
        if new:
            await self._night.say(DREAM, subject.ref, new, only=[], marks=False)

    async def _found(self, subject: Subject, passages: list[Passage], *, asks: bool = True) -> Findings:
        if subject.is_derived:
            return Findings(passages, [], [])
        evidence: list[Evidence] = []
        stated: list[Stated] = []
        for place, passage in enumerate(passages):
            evidence += evidence_in(passage.text, place, speaker=passage.speaker, is_own_words=subject.is_conversation)
            stated += statements_of_work(passage.text, place)
        if subject.is_conversation and not tells_tale([passage.text for passage in passages]):
            evidence += [one for place, passage in enumerate(passages) for one in uses(passage.text, place)]
        reading = await self._read(passages) if asks else Reading()
        found = candidates(evidence + reading.evidence, [passage.text for passage in passages])
        begun = beginnings(stated + reading.stated, by_first_word)
        return Findings(passages, found[:_MOST_CANDIDATES], begun, reading.mentioned)

    async def _read(self, passages: Sequence[Passage]) -> Reading:
        if self._night.mind is None or not passages:
            return Reading()
        known = {one.ref: one for one, _, _ in await self._known_in(passages)}
        return await read(self._night, passages, list(known.values()))

    async def _rows(
        self, subject: Subject, passages: Sequence[Passage], findings: Findings, resolution: Resolution
    ) -> list[RowClaim]:
        claims: dict[str, RowClaim] = {}
        told = await self._told_of(subject, passages, resolution)
        for candidate, target in zip(resolution.candidates, resolution.targets, strict=True):
            if not target.may_be_used(candidate) or _is_told_enough(candidate, told.get(_name_of(candidate, target))):
                continue
            link = await self._link(target, candidate.labels, passages)
            if target.is_linked and link is None:
                # Nothing but its own earlier word tells that it is something else.
                target = Target()
            confidence = _confidence(candidate, findings.stated, resolution)
            claim = _row_claim(candidate, target, passages, link or Link(), confidence)
            name = fold(_entity(claim).name)
            claims[name] = _merged(claims[name], claim) if name in claims else claim
        return list(claims.values())

    async def _told_of(
        self, subject: Subject, passages: Sequence[Passage], resolution: Resolution
    ) -> dict[str, ToldElsewhere]:
        """What is told elsewhere of the names that are only used here."""
        found = zip(resolution.candidates, resolution.targets, strict=True)
        names = [_name_of(one, target) for one, target in found if one.is_only_used and target.may_be_used(one)]
        own = [passage.source for passage in passages]
        return await self._names.told_elsewhere(names, subject.ref, own) if names else {}

    async def _link(self, target: Target, labels: Sequence[str], passages: Sequence[Passage]) -> Link | None:
        """What tells elsewhere that a name is a name of something else: without it, it would not be known."""
        if target.known is None or not target.is_linked or not target.known.is_dreamt:
            return None
        own = [passage.source for passage in passages]
        return await self._names.link(target.known, labels, own)

    async def _mentions(
        self, subject: Subject, passages: Sequence[Passage], findings: Findings, resolution: Resolution
    ) -> list[EdgeClaim]:
        edges: dict[tuple[str, str], EdgeClaim] = {}
        for candidate, target in zip(resolution.candidates, resolution.targets, strict=True):
            known = target.known
            if known is not None and known.ref != subject.ref and (known.ref.type, known.key) not in edges:
                labels = [*candidate.labels, candidate.words[0]]
                link = await self._link(target, labels, passages)
                weight = _FIRST_NAME_WEIGHT if target.is_mention else 1.0
                edges[known.ref.type, known.key] = _mention(subject, known, candidate.places, passages, weight, link)
        for known, place in findings.mentioned:
            edges.setdefault((known.ref.type, known.key), _mention(subject, known, [place], passages, 1.0, None))
        for known, place, label in await self._known_in(passages):
            is_there = (known.ref.type, known.key) in edges or known.ref == subject.ref
            if is_there or known.ref.id in resolution.outdone or len(edges) >= _MOST_MENTIONS:
                continue
            is_first_name = _is_first_name(known, label)
            if is_first_name and _is_anothers(label, known, resolution):
                continue
            target = Target(known, is_linked=fold(label) != fold(known.name))
            link = await self._link(target, [label], passages)
            weight = _FIRST_NAME_WEIGHT if is_first_name else 1.0
            edges[known.ref.type, known.key] = _mention(subject, known, [place], passages, weight, link)
        return list(edges.values())

    async def _known_in(self, passages: Sequence[Passage]) -> list[tuple[Known, int, str]]:
        """What the texts name that is known, where first, and by which name."""
        labels: dict[str, int] = {}
        for place, passage in enumerate(passages):
            for label in possible_names(passage.text):
                labels.setdefault(label, place)
        found = await self._names.find(labels)
        meant: dict[tuple[str, str], tuple[Known, int, str]] = {}
        for label in sorted(found, key=lambda label: (-len(label.split()), labels[label], label)):
            is_word = " " not in label and "-" not in label and "@" not in label
            answers = [one for one in found[label] if not is_word or one.is_called(label)]
            known = one_of(answers, label)
            if known is not None and not known.is_owner:
                meant.setdefault((known.ref.type, known.key), (known, labels[label], label))
        return list(meant.values())

    def _relations(self, passages: Sequence[Passage], findings: Findings, resolution: Resolution) -> list[EdgeClaim]:
        known: dict[Stated, tuple[Known, Known]] = {}
        for one in findings.stated:
            (_, src), (_, dst) = resolution.holder(one.src), resolution.holder(one.dst)
            if src is None or dst is None or src.ref == dst.ref or not src.is_own or src.ref.type == "resources":
                continue
            known[one] = src, dst
        claims = []
        for one in beginnings(known, lambda one: (known[one][0].ref, known[one][1].ref)):
            src, dst = known[one]
            passage = passages[one.place]
            claims.append(
                EdgeClaim(
                    src=src.ref,
                    edge=_edge(dst, one.rel_type, one.weight),
                    sources=(passage.source, src.source, dst.source),
                    confidence=one.weight,
                    # What was stored at once has one time; the order in which it was said decides.
                    valid_from=passage.at + timedelta(microseconds=one.place),
                    is_exclusive=one.rel_type in EXCLUSIVE,
                )
            )
        return claims


def _confidence(candidate: Candidate, stated: Sequence[Stated], resolution: Resolution) -> float:
    """Where somebody who is established is said to work at it, there is no doubt about what it is."""
    if candidate.entity_type != ORGANIZATION:
        return candidate.confidence
    letters = "".join(candidate.folded)
    places = {
        one.place
        for one in stated
        if "".join(folded(one.dst)) == letters and one.rel_type == "works_at" and resolution.is_established(one.src)
    }
    shares = [_STATED] * len(places) + [
        candidate.confidence_at(place) for place in candidate.places if place not in places
    ]
    return min(candidate.surest, combined(shares))


def _name_of(candidate: Candidate, target: Target) -> str:
    return target.known.name if target.known is not None else candidate.name


def _is_told_enough(candidate: Candidate, told: ToldElsewhere | None) -> bool:
    """Whether one more use of a name would tell nothing: however long a history is, a few speak for somebody."""
    if told is None:
        return False
    return told.is_thing or (told.has_many and not told.is_own and told.traits.issuperset(candidate.uses[1]))


def _row_claim(
    candidate: Candidate, target: Target, passages: Sequence[Passage], link: Link, confidence: float
) -> RowClaim:
    name = _name_of(candidate, target)
    aliases = candidate.aliases | candidate.keys | {candidate.name}
    data: dict[str, Any] = {"entity_type": candidate.entity_type, "aliases": sorted(aliases - {name})}
    if target.is_linked:
        data["linked"] = True
    messages, traits = candidate.uses
    if messages:
        data["uses"] = {"messages": messages, "traits": traits}
    places = candidate.places
    return RowClaim(
        entity=Ontology(name=name, content=candidate.content, extracted_data=data, tags=[candidate.entity_type]),
        sources=_distinct([*(passages[place].source for place in places[:_MOST_SOURCES]), *link.sources]),
        confidence=confidence,
        valid_from=passages[places[0]].at,
        is_named=True,
    )


def _entity(claim: RowClaim) -> Ontology:
    return cast("Ontology", claim.entity)


def _merged(first: RowClaim, second: RowClaim) -> RowClaim:
    """Two candidates that turned out to be the same thing, as one claim."""
    one, other = _entity(first), _entity(second)
    aliases = {*one.extracted_data["aliases"], *other.extracted_data["aliases"]}
    content = "\n".join(dict.fromkeys(text for text in (one.content, other.content) if text))
    data = {**one.extracted_data, "aliases": sorted(aliases)}
    return replace(
        first,
        entity=Ontology(name=one.name, content=content, extracted_data=data, tags=one.tags),
        sources=_distinct([*first.sources, *second.sources]),
        confidence=max(first.confidence, second.confidence),
        valid_from=min(filter(None, (first.valid_from, second.valid_from)), default=None),
    )


def _mention(
    subject: Subject,
    known: Known,
    places: Sequence[int],
    passages: Sequence[Passage],
    weight: float,
    link: Link | None,
) -> EdgeClaim:
    own = [passages[place].source for place in places[:_MOST_SOURCES]]
    return EdgeClaim(
        src=subject.ref,
        edge=_edge(known, "mentions", weight),
        sources=_distinct([*own, known.source, *(link.sources if link else ())]),
        confidence=weight,
        valid_from=passages[places[0]].at,
    )


def _edge(known: Known, rel_type: str, weight: float) -> Edge:
    return Edge(dst=known.key, rel_type=rel_type, weight=weight, properties={"dst_entity_type": known.ref.type})


def _name_of_edge(claim: EdgeClaim) -> str:
    """As the ledger calls it."""
    return f"{claim.edge.rel_type} {claim.edge.properties['dst_entity_type']}/{claim.edge.dst}"


def _distinct(sources: Sequence[Source]) -> tuple[Source, ...]:
    return tuple({source.ref: source for source in sources}.values())


def _is_first_name(known: Known, label: str) -> bool:
    return len(folded(label.split())) == 1 and known.is_full_name and fold(label) == known.words[0]


def _is_anothers(label: str, known: Known, resolution: Resolution) -> bool:
    """Whether somebody else in the conversation has this first name."""
    name = fold(label)
    return any(
        candidate.folded[:1] == (name,) and (target.known is None or target.known.key != known.key)
        for candidate, target in zip(resolution.candidates, resolution.targets, strict=True)
    )


__all__ = ["EntitiesDream", "mention_in_moments"]
