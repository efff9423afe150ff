"""The entities dream: make rows for people, organizations and projects that sessions and texts name.

Evidence makes an entity: e-mail addresses, signatures, introductions, names that the tagger finds, and the answers of a
language model. One weak piece of evidence is not enough; two in different texts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.dreams.claims import Claim, ClaimSource, EdgeClaim, RowClaim
from rem.dreams.entities.candidates import MAX_CONFIDENCE, Candidate, build_candidates
from rem.dreams.entities.content import find_statements_about, format_statements
from rem.dreams.entities.evidence import (
    EXCLUSIVE_RELATIONS,
    ORGANIZATION,
    PERSON,
    Evidence,
    StatedRelation,
    combine_confidences,
    ends_by_first_word,
    find_beginnings,
)
from rem.dreams.entities.introductions import find_employments, is_family
from rem.dreams.entities.known_entities import (
    DREAM_NAME,
    EntityMatch,
    KnownEntities,
    KnownEntity,
    NameLink,
    Resolution,
    choose_match,
    resolve,
)
from rem.dreams.entities.model_extraction import ModelExtraction, extract_with_model
from rem.dreams.entities.name_parsing import TITLES, fold_word, fold_words
from rem.dreams.entities.own_name import find_own_names
from rem.dreams.entities.rule_extraction import extract_evidence, find_possible_names
from rem.dreams.entities.subjects import (
    SourceText,
    Subject,
    find_affected_subjects,
    find_naming_subjects,
    find_new_moments,
    find_new_subjects,
    load_statements,
    load_texts,
)
from rem.dreams.entities.tagged_names import (
    find_people,
    is_about_fiction,
    is_about_own_life,
    is_person_at,
    may_name_acquaintances,
    tag_own_words,
)
from rem.models import Edge, Ontology

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun
    from rem.knowledge.tagger import TaggedName

MAX_CANDIDATES = 200
MAX_MENTIONS = 200
MAX_SOURCES = 20
TRUSTED_CONFIDENCE = 0.8
"""The confidence in a person whom the owner introduces in a message about their life."""
FIRST_NAME_WEIGHT = 0.6
"""The weight of a mention by the first name alone."""
EMPLOYER_CONFIDENCE = 0.8
"""The confidence in an organization at which an established person works."""


@dataclass(slots=True)
class SubjectFindings:
    """The people and things that a subject names, before they are looked up."""

    texts: list[SourceText]
    """The texts as they were read. All text indexes refer to this list."""
    candidates: list[Candidate]
    relations: list[StatedRelation]
    mentioned: list[tuple[KnownEntity, int]] = field(default_factory=list)
    """Known entities that the model found, with the index of the text."""


class EntitiesDream:
    """Make one row with one key for each person or thing, and link it to the texts that mention it."""

    name = DREAM_NAME

    async def derive(self, run: DreamRun) -> None:
        """Store the entities, mentions and relations in new sessions and texts."""
        await _EntitiesRun(run).process()


async def link_moments_to_entities(run: DreamRun) -> None:
    """Store which known entities new moments mention. Moments are made after the entities dream."""
    await _EntitiesRun(run).link_moments(await find_new_moments(run))


class _EntitiesRun:
    """One run of the dream. First all subjects claim their entities, then they claim mentions and relations."""

    def __init__(self, run: DreamRun) -> None:
        self._run = run
        self._entities = KnownEntities(run)
        self._findings: dict[Subject, SubjectFindings] = {}
        self._superseded: set[UUID] = set()
        self._postponed: set[UUID] = set()
        """Sessions with a stretch that waits for the next run. Their later stretches wait, too."""

    async def process(self) -> None:
        """Process all new subjects, and the earlier subjects that their entities affect."""
        await self._reopen_ended_relations()
        subjects = await find_new_subjects(self._run)
        await self._run.process_each(DREAM_NAME, subjects, self._claim_entities)
        affected = await find_affected_subjects(self._run, subjects, self._superseded)
        await self._run.process_each(DREAM_NAME, affected, self._claim_entities)
        for subject in filter(self._has_more_to_claim, subjects):
            await self._claim_entities(subject)
        await self._run.process_each(DREAM_NAME, [*subjects, *affected], self._claim_all)
        for subject in await find_naming_subjects(self._run, [*subjects, *affected]):
            await self._add_mentions(subject)

    async def link_moments(self, moments: Sequence[Subject]) -> None:
        """Store the mentions of known entities in moments."""
        for subject in moments:
            self._findings[subject] = await self._extract(subject, await load_texts(self._run, subject))
            await self._claim_all(subject)

    def _has_more_to_claim(self, subject: Subject) -> bool:
        """Return whether the claims of other subjects can change the claims of this one."""
        findings = self._findings.get(subject)
        return findings is not None and bool(findings.relations or (self._superseded and findings.candidates))

    async def _reopen_ended_relations(self) -> None:
        """Make the last ended relation live again if the one that ended it is gone."""
        scope = self._run.scope

        async def reopen() -> None:
            async with self._run.store.transaction() as store, store.executor.connection() as connection:
                rows = await connection.fetch(
                    query("dreams/entities/entities", "reopen_relations"),
                    scope.tenant_id,
                    scope.user_id,
                    DREAM_NAME,
                    list(EXCLUSIVE_RELATIONS),
                )
                if rows:
                    tables, ids = [row["entity_type"] for row in rows], [row["entity_id"] for row in rows]
                    await connection.fetch(query("dreams/dreams", "project"), scope.tenant_id, tables, ids)

        await retry_when_busy(reopen)

    async def _claim_entities(self, subject: Subject) -> None:
        """Store the entities of a subject. Its edges stay for now, and it is not marked as seen."""
        if subject not in self._findings:
            self._findings[subject] = await self._extract(subject, await load_texts(self._run, subject))
        findings = self._findings[subject]
        statements = await load_statements(self._run, subject, findings.texts)
        row_ids = [statement.id for statement in statements if statement.kind == "row" and statement.is_evidence]
        if not findings.candidates and not row_ids:
            return
        resolution = await resolve(self._entities, findings.candidates, findings.relations)
        self._superseded |= resolution.superseded
        claims = await self._build_row_claims(findings, resolution)
        await self._run.store_claims(
            DREAM_NAME,
            subject.ref,
            claims,
            only=row_ids,
            seen_index=subject.seen_before,
            mark_seen=not subject.is_conversation,
        )

    async def _claim_all(self, subject: Subject) -> None:
        """Store the entities, mentions and relations of a subject, and mark it as seen."""
        if subject not in self._findings or subject.ref.id in self._postponed:
            self._postponed.add(subject.ref.id)
            return
        texts = await load_texts(self._run, subject)
        if texts != self._findings[subject].texts:
            # A message was deleted or restored in the meantime.
            self._findings[subject] = await self._extract(subject, texts)
            await self._claim_entities(subject)
        findings = self._findings.pop(subject)
        resolution = await resolve(self._entities, findings.candidates, findings.relations)
        rows = await self._build_row_claims(findings, resolution)
        claimed = {fold_word(_get_entity(claim).name) for claim in rows}
        contents = await self._build_content_claims(subject, findings, resolution)
        claims: list[Claim] = [
            *rows,
            *(claim for claim in contents if fold_word(_get_entity(claim).name) not in claimed),
        ]
        claims += await self._build_mention_claims(subject, findings, resolution)
        claims += _build_relation_claims(findings, resolution)
        statements = await load_statements(self._run, subject, texts)
        # Store them even if there are none, because a restored row can still have old edges.
        changes = await self._run.store_claims(
            DREAM_NAME,
            subject.ref,
            claims,
            only=[statement.id for statement in statements],
            seen_index=max(subject.last, subject.seen_before) if subject.is_conversation else None,
            seen_range=subject.stretch,
        )
        if changes.vanished:
            self._postponed.add(subject.ref.id)

    async def _add_mentions(self, subject: Subject) -> None:
        """Add mentions of new entities to a subject of an earlier run. Its other statements stay."""
        texts = await load_texts(self._run, subject)
        findings = await self._extract(subject, texts, uses_model=False)
        resolution = await resolve(self._entities, findings.candidates, findings.relations)
        existing = {statement.name for statement in await load_statements(self._run, subject, texts)}
        mentions = await self._build_mention_claims(subject, findings, resolution)
        new: list[Claim] = [claim for claim in mentions if _statement_name(claim) not in existing]
        contents = await self._build_content_claims(subject, findings, resolution)
        new += [claim for claim in contents if str(claim.entity.key) not in existing]
        if new:
            await self._run.store_claims(DREAM_NAME, subject.ref, new, only=[], mark_seen=False)

    async def _extract(self, subject: Subject, texts: list[SourceText], *, uses_model: bool = True) -> SubjectFindings:
        if subject.is_derived:
            return SubjectFindings(texts, [], [])
        evidence: list[Evidence] = []
        relations: list[StatedRelation] = []
        names = await self._tag(texts)
        for index, text in enumerate(texts):
            if not text.has_statements:
                continue
            found = extract_evidence(
                text.text,
                index,
                speaker=text.speaker,
                is_own_words=subject.is_conversation,
                whole_text=text.whole_text,
            )
            relations += find_employments(text.text, index)
            if index in names:
                is_own_life = is_about_own_life(text.whole_text)
                if subject.is_conversation and is_own_life:
                    found = [_trust_introduction(item, text, names[index]) for item in found]
                found += find_people(text.text, index, names[index], is_own_life=is_own_life)
            evidence += found
        extraction = await self._extract_with_model(texts) if uses_model else ModelExtraction()
        evidence = _exclude_own_names(evidence, texts) if subject.is_conversation else evidence
        candidates = build_candidates(evidence + extraction.evidence, [text.text for text in texts])
        beginnings = find_beginnings(relations + extraction.relations, ends_by_first_word)
        return SubjectFindings(texts, candidates[:MAX_CANDIDATES], beginnings, extraction.mentioned)

    async def _tag(self, texts: Sequence[SourceText]) -> dict[int, list[TaggedName]]:
        """Return the names that the tagger finds, by the index of each text of the owner's own."""
        if is_about_fiction([text.whole_text for text in texts]):
            return {}
        own = [
            index for index, text in enumerate(texts) if text.has_statements and may_name_acquaintances(text.whole_text)
        ]
        tagged = await tag_own_words([texts[index].whole_text for index in own])
        return dict(zip(own, tagged, strict=True))

    async def _extract_with_model(self, texts: Sequence[SourceText]) -> ModelExtraction:
        if self._run.model is None or not any(text.has_statements for text in texts):
            return ModelExtraction()
        known = {entity.ref: entity for entity, _, _ in await self._find_known_entities(texts)}
        return await extract_with_model(self._run, texts, list(known.values()))

    async def _build_row_claims(self, findings: SubjectFindings, resolution: Resolution) -> list[RowClaim]:
        claims: dict[str, RowClaim] = {}
        for candidate, match in resolution.pairs:
            if not match.may_be_claimed:
                continue
            link = await self._find_link(match, candidate.unique_names, findings.texts)
            if match.is_linked and link is None:
                # Only an earlier statement of this subject links the names, so the link is not confirmed.
                match = EntityMatch()
            confidence = _compute_confidence(candidate, findings.relations, resolution)
            is_first_name_unique = _is_first_name_unique(candidate, match, resolution)
            claim = _build_row_claim(
                candidate, match, findings.texts, link or NameLink(), confidence, is_first_name_unique
            )
            name = fold_word(_get_entity(claim).name)
            claims[name] = _merge_claims(claims[name], claim) if name in claims else claim
        return list(claims.values())

    async def _build_content_claims(
        self, subject: Subject, findings: SubjectFindings, resolution: Resolution
    ) -> list[RowClaim]:
        """Return claims with what a subject says about known entities for which it is no evidence."""
        if subject.is_derived:
            return []
        texts = findings.texts
        labels: dict[KnownEntity, set[str]] = {}
        for known, _, label in await self._find_known_entities(texts):
            is_first_name_of_other = _is_first_name(known, label) and _is_first_name_of_other(label, known, resolution)
            if known.is_dreamt and known.ref.id not in resolution.superseded and not is_first_name_of_other:
                labels.setdefault(known, set()).add(label)
        claims = []
        for known, names in labels.items():
            statements = find_statements_about(texts, names | {known.name, *known.aliases})
            link = NameLink()
            if not names <= {known.name}:
                found = await self._find_link(EntityMatch(known, is_linked=True), sorted(names), texts)
                if found is None:
                    continue
                link = found
            if statements:
                claims.append(_build_content_claim(known, texts, statements, link))
        return claims

    async def _find_link(
        self, match: EntityMatch, labels: Sequence[str], texts: Sequence[SourceText]
    ) -> NameLink | None:
        """Return the sources in other texts which show that a name belongs to the matched entity."""
        if match.known is None or not match.is_linked or not match.known.is_dreamt:
            return None
        return await self._entities.find_link(match.known, labels, [text.source for text in texts])

    async def _build_mention_claims(
        self, subject: Subject, findings: SubjectFindings, resolution: Resolution
    ) -> list[EdgeClaim]:
        texts = findings.texts
        claims: dict[tuple[str, str], EdgeClaim] = {}
        for candidate, match in resolution.pairs:
            known = match.known
            if known is not None and known.ref != subject.ref and (known.ref.type, known.key) not in claims:
                link = await self._find_link(match, [*candidate.unique_names, candidate.words[0]], texts)
                weight = FIRST_NAME_WEIGHT if match.is_mention else 1.0
                claims[known.ref.type, known.key] = _build_mention_claim(
                    subject, known, candidate.text_indexes, texts, weight, link
                )
        for known, index in findings.mentioned:
            claims.setdefault(
                (known.ref.type, known.key), _build_mention_claim(subject, known, [index], texts, 1.0, None)
            )
        for known, index, label in await self._find_known_entities(texts):
            is_claimed = (known.ref.type, known.key) in claims or known.ref == subject.ref
            if is_claimed or known.ref.id in resolution.superseded or len(claims) >= MAX_MENTIONS:
                continue
            is_first_name = _is_first_name(known, label)
            if is_first_name and _is_first_name_of_other(label, known, resolution):
                continue
            match = EntityMatch(known, is_linked=fold_word(label) != fold_word(known.name))
            link = await self._find_link(match, [label], texts)
            weight = FIRST_NAME_WEIGHT if is_first_name else 1.0
            claims[known.ref.type, known.key] = _build_mention_claim(subject, known, [index], texts, weight, link)
        return list(claims.values())

    async def _find_known_entities(self, texts: Sequence[SourceText]) -> list[tuple[KnownEntity, int, str]]:
        """Return the known entities that texts name, each with the index of its first text and the name there."""
        labels: dict[str, int] = {}
        for index, text in enumerate(texts):
            for label in find_possible_names(text.text):
                labels.setdefault(label, index)
        entities = await self._entities.find(labels)
        named: dict[tuple[str, str], tuple[KnownEntity, int, str]] = {}
        for label in sorted(entities, key=lambda label: (-len(label.split()), labels[label], label)):
            is_word = " " not in label and "-" not in label and "@" not in label
            known = choose_match([entity for entity in entities[label] if not is_word or entity.is_named(label)], label)
            if known is not None and not known.is_owner:
                named.setdefault((known.ref.type, known.key), (known, labels[label], label))
        return list(named.values())


def _build_relation_claims(findings: SubjectFindings, resolution: Resolution) -> list[EdgeClaim]:
    ends: dict[StatedRelation, tuple[KnownEntity, KnownEntity]] = {}
    for relation in findings.relations:
        (_, src), (_, dst) = resolution.resolve_name(relation.src), resolution.resolve_name(relation.dst)
        if src is None or dst is None or src.ref == dst.ref or not src.is_own or src.ref.type == "resources":
            continue
        ends[relation] = src, dst
    claims = []
    for relation in find_beginnings(ends, lambda relation: (ends[relation][0].ref, ends[relation][1].ref)):
        src, dst = ends[relation]
        text = findings.texts[relation.text_index]
        claims.append(
            EdgeClaim(
                src=src.ref,
                edge=_build_edge(dst, relation.rel_type, relation.weight),
                sources=(text.source, src.source, dst.source),
                confidence=relation.weight,
                # Messages that were stored together have the same time, so their order decides.
                valid_from=text.at + timedelta(microseconds=relation.text_index),
                is_exclusive=relation.rel_type in EXCLUSIVE_RELATIONS,
            )
        )
    return claims


def _compute_confidence(candidate: Candidate, relations: Sequence[StatedRelation], resolution: Resolution) -> float:
    """Return a candidate's confidence. An organization gets more where an established person works at it."""
    if candidate.entity_type != ORGANIZATION:
        return candidate.confidence
    letters = "".join(candidate.folded_words)
    employer_texts = {
        relation.text_index
        for relation in relations
        if relation.rel_type == "works_at"
        and "".join(fold_words(relation.dst)) == letters
        and resolution.is_established(relation.src)
    }
    confidences = [EMPLOYER_CONFIDENCE] * len(employer_texts)
    confidences += [
        candidate.confidence_in_text(index) for index in candidate.text_indexes if index not in employer_texts
    ]
    return min(MAX_CONFIDENCE, combine_confidences(confidences))


def _entity_name(candidate: Candidate, match: EntityMatch) -> str:
    return match.claimed.name if match.claimed is not None else candidate.name


def _trust_introduction(item: Evidence, text: SourceText, names: Sequence[TaggedName]) -> Evidence:
    """Return an introduction in a message about the owner's life ("my sister Ewa", "Dr. Chen") as strong evidence.

    The first name of someone who is no relative counts only if the tagger finds it: "my friend Time" is nobody.
    """
    is_name = len(item.words) > 1 or is_family(item.relation) or is_person_at(names, text.text, item.words)
    is_introduction = (item.relation is not None and is_name) or item.title is not None
    if item.entity_type != PERSON or not is_introduction:
        return item
    return replace(item, confidence=max(item.confidence, TRUSTED_CONFIDENCE))


def _exclude_own_names(evidence: Sequence[Evidence], texts: Sequence[SourceText]) -> list[Evidence]:
    """Return the evidence without the names by which the owner introduces themselves."""
    own = {fold_words(name) for text in texts if text.speaker is None for name in find_own_names(text.text)}
    own |= {name[:1] for name in own}
    return [item for item in evidence if not item.words or fold_words(item.words) not in own or item.address]


def _is_first_name_unique(candidate: Candidate, match: EntityMatch, resolution: Resolution) -> bool:
    """Return whether the first name means no other person in the conversation or in the memory."""
    first = candidate.folded_words[:1]
    is_named_alone = any(other is not candidate and other.folded_words[:1] == first for other in resolution.candidates)
    known = [entity for entity in resolution.namesakes.get(candidate.words[0], []) if entity.is_dreamt]
    claimed_id = match.claimed.ref.id if match.claimed else None
    is_known = any(
        entity.ref.id != claimed_id and entity.ref.id not in resolution.superseded and entity.is_full_name
        for entity in known
    )
    return not is_named_alone and not is_known


def _build_row_claim(
    candidate: Candidate,
    match: EntityMatch,
    texts: Sequence[SourceText],
    link: NameLink,
    confidence: float,
    is_first_name_unique: bool,
) -> RowClaim:
    name = _entity_name(candidate, match)
    aliases = candidate.aliases | candidate.keys | {candidate.name}
    if candidate.words[:1] and candidate.words[0] in TITLES.values():
        # People write it with and without a full stop.
        aliases.add(candidate.name.replace(".", ""))
    labels = candidate.labels
    if candidate.entity_type == PERSON and candidate.is_full_name and is_first_name_unique:
        aliases |= {candidate.words[0], *filter(None, [candidate.related_name])}
        labels |= {candidate.words[0]}
    data: dict[str, Any] = {"entity_type": candidate.entity_type, "aliases": sorted(aliases - {name})}
    if match.is_linked:
        data["linked"] = True
    indexes = candidate.text_indexes
    return RowClaim(
        entity=Ontology(
            name=name,
            content=format_statements(texts, [*candidate.sentences, *find_statements_about(texts, labels)]),
            extracted_data=data,
            tags=[candidate.entity_type],
        ),
        sources=_deduplicate([*(texts[index].source for index in indexes[:MAX_SOURCES]), *link.sources]),
        confidence=confidence,
        valid_from=texts[indexes[0]].at,
        is_named=True,
    )


def _build_content_claim(
    known: KnownEntity, texts: Sequence[SourceText], statements: Sequence[tuple[int, str]], link: NameLink
) -> RowClaim:
    """Return a claim that adds content to a row, and is no evidence for it."""
    indexes = sorted({index for index, _ in statements})
    data: dict[str, Any] = {"entity_type": known.entity_type, "aliases": []}
    if link.sources:
        data["linked"] = True
    return RowClaim(
        entity=Ontology(
            name=known.name,
            content=format_statements(texts, statements),
            extracted_data=data,
            tags=[known.entity_type] if known.entity_type else [],
        ),
        sources=_deduplicate([*(texts[index].source for index in indexes[:MAX_SOURCES]), *link.sources]),
        confidence=0.0,
        valid_from=texts[indexes[0]].at,
        is_named=True,
    )


def _get_entity(claim: RowClaim) -> Ontology:
    return cast("Ontology", claim.entity)


def _merge_claims(first: RowClaim, second: RowClaim) -> RowClaim:
    """Merge the claims of two candidates that are the same entity."""
    entity, other = _get_entity(first), _get_entity(second)
    aliases = {*entity.extracted_data["aliases"], *other.extracted_data["aliases"]}
    content = "\n".join(dict.fromkeys(text for text in (entity.content, other.content) if text))
    data = {**entity.extracted_data, "aliases": sorted(aliases)}
    return replace(
        first,
        entity=Ontology(name=entity.name, content=content, extracted_data=data, tags=entity.tags),
        sources=_deduplicate([*first.sources, *second.sources]),
        confidence=max(first.confidence, second.confidence),
        valid_from=min(filter(None, (first.valid_from, second.valid_from)), default=None),
    )


def _build_mention_claim(
    subject: Subject,
    known: KnownEntity,
    text_indexes: Sequence[int],
    texts: Sequence[SourceText],
    weight: float,
    link: NameLink | None,
) -> EdgeClaim:
    own_sources = [texts[index].source for index in text_indexes[:MAX_SOURCES]]
    return EdgeClaim(
        src=subject.ref,
        edge=_build_edge(known, "mentions", weight),
        sources=_deduplicate([*own_sources, known.source, *(link.sources if link else ())]),
        confidence=weight,
        valid_from=texts[text_indexes[0]].at,
    )


def _build_edge(known: KnownEntity, rel_type: str, weight: float) -> Edge:
    return Edge(dst=known.key, rel_type=rel_type, weight=weight, properties={"dst_entity_type": known.ref.type})


def _statement_name(claim: EdgeClaim) -> str:
    """Return the name of the ledger's statement for an edge."""
    return f"{claim.edge.rel_type} {claim.edge.properties['dst_entity_type']}/{claim.edge.dst}"


def _deduplicate(sources: Sequence[ClaimSource]) -> tuple[ClaimSource, ...]:
    return tuple({source.ref: source for source in sources}.values())


def _is_first_name(known: KnownEntity, label: str) -> bool:
    return len(fold_words(label.split())) == 1 and known.is_full_name and fold_word(label) == known.words[0]


def _is_first_name_of_other(label: str, known: KnownEntity, resolution: Resolution) -> bool:
    """Return whether another candidate of the conversation has this first name."""
    name = fold_word(label)
    return any(
        candidate.folded_words[:1] == (name,) and (match.known is None or match.known.key != known.key)
        for candidate, match in resolution.pairs
    )
