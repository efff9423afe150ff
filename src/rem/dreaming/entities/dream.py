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

from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.dreaming.claims import Claim, ClaimSource, EdgeClaim, RowClaim
from rem.dreaming.entities.candidates import Candidate, candidates
from rem.dreaming.entities.evidence import (
    EXCLUSIVE_RELATIONS,
    ORGANIZATION,
    Evidence,
    StatedRelation,
    combine_confidences,
    ends_by_first_word,
    find_beginnings,
)
from rem.dreaming.entities.extraction import extract_evidence, find_possible_names
from rem.dreaming.entities.introductions import find_employments
from rem.dreaming.entities.known_entities import (
    DREAM_NAME,
    EntityMatch,
    KnownEntities,
    KnownEntity,
    NameLink,
    OtherUses,
    Resolution,
    choose_match,
    resolve,
)
from rem.dreaming.entities.model_extraction import ModelExtraction, extract_with_model
from rem.dreaming.entities.name_parsing import fold_word, fold_words
from rem.dreaming.entities.name_usage import is_about_fiction, uses
from rem.dreaming.entities.subjects import (
    SourceText,
    Subject,
    find_affected_subjects,
    find_naming_subjects,
    find_new_moments,
    find_new_subjects,
    load_statements,
    load_texts,
)
from rem.models import Edge, Ontology

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun

MAX_CANDIDATES = 200
MAX_MENTIONS = 200
MAX_SOURCES = 20
FIRST_NAME_WEIGHT = 0.6
EMPLOYER_CONFIDENCE = 0.8
"""How sure an organisation is of which an established person is said to work there."""


@dataclass(slots=True)
class SubjectFindings:
    """What a subject names, before anything was looked up."""

    passages: list[SourceText]
    """What was read. The places of all that was found are places in here: what is read later may be others."""
    candidates: list[Candidate]
    stated: list[StatedRelation]
    mentioned: list[tuple[KnownEntity, int]] = field(default_factory=list)


class EntitiesDream:
    """Who and what is named, under one key each."""

    name = DREAM_NAME

    async def derive(self, night: DreamRun) -> None:
        """Say what the new conversations and texts name."""
        await _EntitiesRun(night).run()


async def link_moments_to_entities(night: DreamRun) -> None:
    """Say which known things the new moments mention; they are made after the rest was looked at."""
    await _EntitiesRun(night).link_moments(await find_new_moments(night))


class _EntitiesRun:
    """One night. First all subjects say what they have evidence of; then what there is by that is linked."""

    def __init__(self, night: DreamRun) -> None:
        self._night = night
        self._names = KnownEntities(night)
        self._findings: dict[Subject, SubjectFindings] = {}
        self._outdone: set[UUID] = set()
        self._left: set[UUID] = set()
        """Sessions of which a stretch waits for another night: what comes after it waits, too."""

    async def run(self) -> None:
        await self._reopen_ended_relations()
        subjects = await find_new_subjects(self._night)
        await self._night.process_each(DREAM_NAME, subjects, self._claim_entities)
        woken = await find_affected_subjects(self._night, subjects, self._outdone)
        await self._night.process_each(DREAM_NAME, woken, self._claim_entities)
        for subject in filter(self._has_more_to_claim, subjects):
            await self._claim_entities(subject)
        await self._night.process_each(DREAM_NAME, [*subjects, *woken], self._claim_all)
        for subject in await find_naming_subjects(self._night, [*subjects, *woken]):
            await self._add_mentions(subject)

    async def link_moments(self, moments: Sequence[Subject]) -> None:
        """Link moments with what there is."""
        for subject in moments:
            self._findings[subject] = await self._extract(subject, await load_texts(self._night, subject))
            await self._claim_all(subject)

    def _has_more_to_claim(self, subject: Subject) -> bool:
        """Whether a subject has something to say that counts otherwise, now that all have spoken."""
        findings = self._findings.get(subject)
        return findings is not None and bool(findings.stated or (self._outdone and findings.candidates))

    async def _reopen_ended_relations(self) -> None:
        """Let hold again what something newer had ended that is gone."""
        scope = self._night.scope

        async def work() -> None:
            async with self._night.store.transaction() as store, store.executor.connection() as connection:
                rows = await connection.fetch(
                    query("dream_entities", "reopen"),
                    scope.tenant_id,
                    scope.user_id,
                    DREAM_NAME,
                    list(EXCLUSIVE_RELATIONS),
                )
                places: tuple[list[Any], list[Any]] = [row[0] for row in rows], [row[1] for row in rows]
                if rows:
                    await connection.fetch(query("dreaming", "project"), scope.tenant_id, *places)

        await retry_when_busy(work)

    async def _claim_entities(self, subject: Subject) -> None:
        """Say which rows a subject speaks for; its edges stay as they are for the moment, and it is not seen yet."""
        if subject not in self._findings:
            self._findings[subject] = await self._extract(subject, await load_texts(self._night, subject))
        findings = self._findings[subject]
        passages = findings.passages
        standing = [said for said in await load_statements(self._night, subject, passages) if said.kind == "row"]
        if not findings.candidates and not standing:
            return
        resolution = await resolve(self._names, findings.candidates, findings.stated)
        self._outdone |= resolution.outdone
        rows = await self._build_row_claims(subject, passages, findings, resolution)
        only = [said.id for said in standing]
        marks = not subject.is_conversation
        await self._night.store_claims(
            DREAM_NAME, subject.ref, rows, only=only, seen_index=subject.seen_before, mark_seen=marks
        )

    async def _claim_all(self, subject: Subject) -> None:
        """Say all of a subject: its rows, what it mentions, and what it states of them."""
        if subject not in self._findings or subject.ref.id in self._left:
            self._left.add(subject.ref.id)
            return
        passages = await load_texts(self._night, subject)
        if passages != self._findings[subject].passages:
            # Somebody has deleted a message meanwhile, or brought one back.
            self._findings[subject] = await self._extract(subject, passages)
            await self._claim_entities(subject)
        findings = self._findings.pop(subject)
        resolution = await resolve(self._names, findings.candidates, findings.stated)
        claims: list[Claim] = [*await self._build_row_claims(subject, passages, findings, resolution)]
        claims += await self._build_mention_claims(subject, passages, findings, resolution)
        claims += self._build_relation_claims(passages, findings, resolution)
        standing = await load_statements(self._night, subject, passages)
        seen = max(subject.last, subject.seen_before) if subject.is_conversation else None
        only = [said.id for said in standing]
        # Also if there is nothing to say: a row that came back may have edges of before.
        changes = await self._night.store_claims(
            DREAM_NAME, subject.ref, claims, only=only, seen_index=seen, seen_range=subject.stretch
        )
        if changes.vanished:
            self._left.add(subject.ref.id)

    async def _add_mentions(self, subject: Subject) -> None:
        """Let something of earlier nights mention what is known since then. What else is said of it stays as it is."""
        passages = await load_texts(self._night, subject)
        findings = await self._extract(subject, passages, asks=False)
        resolution = await resolve(self._names, findings.candidates, findings.stated)
        standing = {said.name for said in await load_statements(self._night, subject, passages)}
        mentions = await self._build_mention_claims(subject, passages, findings, resolution)
        new = [claim for claim in mentions if _statement_name(claim) not in standing]
        if new:
            await self._night.store_claims(DREAM_NAME, subject.ref, new, only=[], mark_seen=False)

    async def _extract(self, subject: Subject, passages: list[SourceText], *, asks: bool = True) -> SubjectFindings:
        if subject.is_derived:
            return SubjectFindings(passages, [], [])
        evidence: list[Evidence] = []
        stated: list[StatedRelation] = []
        for place, passage in enumerate(passages):
            evidence += extract_evidence(
                passage.text, place, speaker=passage.speaker, is_own_words=subject.is_conversation
            )
            stated += find_employments(passage.text, place)
        if subject.is_conversation and not is_about_fiction([passage.text for passage in passages]):
            evidence += [one for place, passage in enumerate(passages) for one in uses(passage.text, place)]
        reading = await self._extract_with_model(passages) if asks else ModelExtraction()
        found = candidates(evidence + reading.evidence, [passage.text for passage in passages])
        begun = find_beginnings(stated + reading.stated, ends_by_first_word)
        return SubjectFindings(passages, found[:MAX_CANDIDATES], begun, reading.mentioned)

    async def _extract_with_model(self, passages: Sequence[SourceText]) -> ModelExtraction:
        if self._night.model is None or not passages:
            return ModelExtraction()
        known = {one.ref: one for one, _, _ in await self._find_known_entities(passages)}
        return await extract_with_model(self._night, passages, list(known.values()))

    async def _build_row_claims(
        self, subject: Subject, passages: Sequence[SourceText], findings: SubjectFindings, resolution: Resolution
    ) -> list[RowClaim]:
        claims: dict[str, RowClaim] = {}
        told = await self._find_other_uses(subject, passages, resolution)
        for candidate, target in zip(resolution.candidates, resolution.targets, strict=True):
            if not target.may_be_claimed_for(candidate) or _has_enough_uses(
                candidate, told.get(_entity_name(candidate, target))
            ):
                continue
            link = await self._find_link(target, candidate.unique_names, passages)
            if target.is_linked and link is None:
                # Nothing but its own earlier word tells that it is something else.
                target = EntityMatch()
            confidence = _compute_confidence(candidate, findings.stated, resolution)
            claim = _build_row_claim(candidate, target, passages, link or NameLink(), confidence)
            name = fold_word(_entity(claim).name)
            claims[name] = _merge_claims(claims[name], claim) if name in claims else claim
        return list(claims.values())

    async def _find_other_uses(
        self, subject: Subject, passages: Sequence[SourceText], resolution: Resolution
    ) -> dict[str, OtherUses]:
        """What is told elsewhere of the names that are only used here."""
        found = zip(resolution.candidates, resolution.targets, strict=True)
        names = [
            _entity_name(one, target) for one, target in found if one.is_usage_only and target.may_be_claimed_for(one)
        ]
        own = [passage.source for passage in passages]
        return await self._names.find_other_uses(names, subject.ref, own) if names else {}

    async def _find_link(
        self, target: EntityMatch, labels: Sequence[str], passages: Sequence[SourceText]
    ) -> NameLink | None:
        """What tells elsewhere that a name is a name of something else: without it, it would not be known."""
        if target.known is None or not target.is_linked or not target.known.is_dreamt:
            return None
        own = [passage.source for passage in passages]
        return await self._names.find_link(target.known, labels, own)

    async def _build_mention_claims(
        self, subject: Subject, passages: Sequence[SourceText], findings: SubjectFindings, resolution: Resolution
    ) -> list[EdgeClaim]:
        edges: dict[tuple[str, str], EdgeClaim] = {}
        for candidate, target in zip(resolution.candidates, resolution.targets, strict=True):
            known = target.known
            if known is not None and known.ref != subject.ref and (known.ref.type, known.key) not in edges:
                labels = [*candidate.unique_names, candidate.words[0]]
                link = await self._find_link(target, labels, passages)
                weight = FIRST_NAME_WEIGHT if target.is_mention else 1.0
                edges[known.ref.type, known.key] = _build_mention_claim(
                    subject, known, candidate.text_indexes, passages, weight, link
                )
        for known, place in findings.mentioned:
            edges.setdefault(
                (known.ref.type, known.key), _build_mention_claim(subject, known, [place], passages, 1.0, None)
            )
        for known, place, label in await self._find_known_entities(passages):
            is_there = (known.ref.type, known.key) in edges or known.ref == subject.ref
            if is_there or known.ref.id in resolution.outdone or len(edges) >= MAX_MENTIONS:
                continue
            is_first_name = _is_first_name(known, label)
            if is_first_name and _is_first_name_of_other(label, known, resolution):
                continue
            target = EntityMatch(known, is_linked=fold_word(label) != fold_word(known.name))
            link = await self._find_link(target, [label], passages)
            weight = FIRST_NAME_WEIGHT if is_first_name else 1.0
            edges[known.ref.type, known.key] = _build_mention_claim(subject, known, [place], passages, weight, link)
        return list(edges.values())

    async def _find_known_entities(self, passages: Sequence[SourceText]) -> list[tuple[KnownEntity, int, str]]:
        """What the texts name that is known, where first, and by which name."""
        labels: dict[str, int] = {}
        for place, passage in enumerate(passages):
            for label in find_possible_names(passage.text):
                labels.setdefault(label, place)
        found = await self._names.find(labels)
        meant: dict[tuple[str, str], tuple[KnownEntity, int, str]] = {}
        for label in sorted(found, key=lambda label: (-len(label.split()), labels[label], label)):
            is_word = " " not in label and "-" not in label and "@" not in label
            answers = [one for one in found[label] if not is_word or one.is_named(label)]
            known = choose_match(answers, label)
            if known is not None and not known.is_owner:
                meant.setdefault((known.ref.type, known.key), (known, labels[label], label))
        return list(meant.values())

    def _build_relation_claims(
        self, passages: Sequence[SourceText], findings: SubjectFindings, resolution: Resolution
    ) -> list[EdgeClaim]:
        known: dict[StatedRelation, tuple[KnownEntity, KnownEntity]] = {}
        for one in findings.stated:
            (_, src), (_, dst) = resolution.resolve_name(one.src), resolution.resolve_name(one.dst)
            if src is None or dst is None or src.ref == dst.ref or not src.is_own or src.ref.type == "resources":
                continue
            known[one] = src, dst
        claims = []
        for one in find_beginnings(known, lambda one: (known[one][0].ref, known[one][1].ref)):
            src, dst = known[one]
            passage = passages[one.place]
            claims.append(
                EdgeClaim(
                    src=src.ref,
                    edge=_build_edge(dst, one.rel_type, one.weight),
                    sources=(passage.source, src.source, dst.source),
                    confidence=one.weight,
                    # What was stored at once has one time; the order in which it was said decides.
                    valid_from=passage.at + timedelta(microseconds=one.place),
                    is_exclusive=one.rel_type in EXCLUSIVE_RELATIONS,
                )
            )
        return claims


def _compute_confidence(candidate: Candidate, stated: Sequence[StatedRelation], resolution: Resolution) -> float:
    """Where somebody who is established is said to work at it, there is no doubt about what it is."""
    if candidate.entity_type != ORGANIZATION:
        return candidate.confidence
    letters = "".join(candidate.folded_words)
    places = {
        one.place
        for one in stated
        if "".join(fold_words(one.dst)) == letters and one.rel_type == "works_at" and resolution.is_established(one.src)
    }
    shares = [EMPLOYER_CONFIDENCE] * len(places) + [
        candidate.confidence_in_text(place) for place in candidate.text_indexes if place not in places
    ]
    return min(candidate.surest, combine_confidences(shares))


def _entity_name(candidate: Candidate, target: EntityMatch) -> str:
    return target.known.name if target.known is not None else candidate.name


def _has_enough_uses(candidate: Candidate, told: OtherUses | None) -> bool:
    """Whether one more use of a name would tell nothing: however long a history is, a few speak for somebody."""
    if told is None:
        return False
    return told.is_thing or (told.has_many and not told.is_own and told.traits.issuperset(candidate.usage[1]))


def _build_row_claim(
    candidate: Candidate, target: EntityMatch, passages: Sequence[SourceText], link: NameLink, confidence: float
) -> RowClaim:
    name = _entity_name(candidate, target)
    aliases = candidate.aliases | candidate.keys | {candidate.name}
    data: dict[str, Any] = {"entity_type": candidate.entity_type, "aliases": sorted(aliases - {name})}
    if target.is_linked:
        data["linked"] = True
    messages, traits = candidate.usage
    if messages:
        data["uses"] = {"messages": messages, "traits": traits}
    places = candidate.text_indexes
    return RowClaim(
        entity=Ontology(name=name, content=candidate.description, extracted_data=data, tags=[candidate.entity_type]),
        sources=_deduplicate([*(passages[place].source for place in places[:MAX_SOURCES]), *link.sources]),
        confidence=confidence,
        valid_from=passages[places[0]].at,
        is_named=True,
    )


def _entity(claim: RowClaim) -> Ontology:
    return cast("Ontology", claim.entity)


def _merge_claims(first: RowClaim, second: RowClaim) -> RowClaim:
    """Two candidates that turned out to be the same thing, as one claim."""
    one, other = _entity(first), _entity(second)
    aliases = {*one.extracted_data["aliases"], *other.extracted_data["aliases"]}
    content = "\n".join(dict.fromkeys(text for text in (one.content, other.content) if text))
    data = {**one.extracted_data, "aliases": sorted(aliases)}
    return replace(
        first,
        entity=Ontology(name=one.name, content=content, extracted_data=data, tags=one.tags),
        sources=_deduplicate([*first.sources, *second.sources]),
        confidence=max(first.confidence, second.confidence),
        valid_from=min(filter(None, (first.valid_from, second.valid_from)), default=None),
    )


def _build_mention_claim(
    subject: Subject,
    known: KnownEntity,
    places: Sequence[int],
    passages: Sequence[SourceText],
    weight: float,
    link: NameLink | None,
) -> EdgeClaim:
    own = [passages[place].source for place in places[:MAX_SOURCES]]
    return EdgeClaim(
        src=subject.ref,
        edge=_build_edge(known, "mentions", weight),
        sources=_deduplicate([*own, known.source, *(link.sources if link else ())]),
        confidence=weight,
        valid_from=passages[places[0]].at,
    )


def _build_edge(known: KnownEntity, rel_type: str, weight: float) -> Edge:
    return Edge(dst=known.key, rel_type=rel_type, weight=weight, properties={"dst_entity_type": known.ref.type})


def _statement_name(claim: EdgeClaim) -> str:
    """As the ledger calls it."""
    return f"{claim.edge.rel_type} {claim.edge.properties['dst_entity_type']}/{claim.edge.dst}"


def _deduplicate(sources: Sequence[ClaimSource]) -> tuple[ClaimSource, ...]:
    return tuple({source.ref: source for source in sources}.values())


def _is_first_name(known: KnownEntity, label: str) -> bool:
    return len(fold_words(label.split())) == 1 and known.is_full_name and fold_word(label) == known.words[0]


def _is_first_name_of_other(label: str, known: KnownEntity, resolution: Resolution) -> bool:
    """Whether somebody else in the conversation has this first name."""
    name = fold_word(label)
    return any(
        candidate.folded_words[:1] == (name,) and (target.known is None or target.known.key != known.key)
        for candidate, target in zip(resolution.candidates, resolution.targets, strict=True)
    )
