"""Look up the entities that an owner's memory already has, and match the candidates of a conversation with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.context import resolve_user_id
from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.entities.candidates import Candidate
from rem.dreams.entities.evidence import MIN_CONFIDENCE, PERSON, StatedRelation
from rem.dreams.entities.introductions import is_family
from rem.dreams.entities.name_parsing import fold_word, fold_words
from rem.dreams.profile_ids import make_profile_row_id

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun


DREAM_NAME = "entities"
MAX_LABELS_PER_QUERY = 2000
PEOPLE_AND_KNOWLEDGE_TABLES = ("users", "ontologies")
ALL_NAMED_TABLES = ("users", "ontologies", "resources")
_ORIGIN = f"dream:{DREAM_NAME}"


@dataclass(frozen=True, slots=True)
class KnownEntity:
    """A stored row that has a given name."""

    ref: RowRef
    key: str
    name: str
    origin: str
    is_own: bool
    aliases: tuple[str, ...]
    is_owner: bool = False
    """It is the row of the memory's owner."""
    entity_type: str | None = None

    @property
    def is_dreamt(self) -> bool:
        """Return whether this dream made the row, so that new evidence can be added to it."""
        return self.is_own and self.origin == _ORIGIN

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the name, folded for comparison."""
        return fold_words(self.name.replace("-", " ").split() if " " not in self.name else self.name.split())

    @property
    def is_full_name(self) -> bool:
        """Return whether more than a first name is known."""
        return len(self.words) > 1 and "(" not in self.name

    @property
    def source(self) -> ClaimSource:
        """Return the row as a source of claims. They end when the row is deleted."""
        return ClaimSource(self.ref, self.key)

    def is_named(self, label: str) -> bool:
        """Return whether a label is exactly the name, the key or an alias."""
        return label in (self.name, self.key, *self.aliases)

    def may_be(self, words: Sequence[str]) -> bool:
        """Return whether a name can be this entity's: S. Chen can be Sarah Chen, Per Olsen not Margarethe Olsen."""
        given, own = fold_words(tuple(words)), self.words
        if not given or not own or "".join(given) == "".join(own):
            return True
        if len(given) == 1 or len(own) == 1:
            return given[0] in own or own[0] in given or given[0] == own[0][:1] + own[-1]
        first, own_first = given[0], own[0]
        has_initial = len(first) == 1 or len(own_first) == 1
        return given[-1] == own[-1] and (first == own_first or (has_initial and first[0] == own_first[0]))


@dataclass(frozen=True, slots=True)
class NameLink:
    """The sources in other texts which show that an entity has another name."""

    sources: tuple[ClaimSource, ...] = ()


class KnownEntities:
    """Look up names in one owner's memory."""

    def __init__(self, run: DreamRun) -> None:
        self._run = run

    async def find(
        self, labels: Iterable[str], tables: Collection[str] = PEOPLE_AND_KNOWLEDGE_TABLES
    ) -> dict[str, list[KnownEntity]]:
        """Return the entities with each label as a name, the owner's own rows first."""
        sorted_labels = sorted(set(labels))
        entities: dict[str, list[KnownEntity]] = defaultdict(list)
        for start in range(0, len(sorted_labels), MAX_LABELS_PER_QUERY):
            batch = sorted_labels[start : start + MAX_LABELS_PER_QUERY]
            for row in await self._run.fetch_owned("dreams/entities/entities", "known_entities", batch, list(tables)):
                if row["record"] is not None:
                    entities[row["label"]].append(self._build_known(row["entity_type"], row["record"]))
        return entities

    async def find_refused(self, labels: Iterable[str]) -> dict[str, KnownEntity | None]:
        """Return the labels of entities that the owner deleted (None) or corrected (the corrected entity)."""
        refused: dict[str, KnownEntity | None] = {}
        for row in await self._run.fetch_owned(
            "dreams/entities/entities", "refused_labels", sorted(set(labels)), DREAM_NAME
        ):
            corrected = self._build_known("ontologies", row["record"]) if row["record"] else None
            refused[row["label"]] = refused.get(row["label"]) or corrected
        return refused

    async def find_link(
        self, known: KnownEntity, labels: Sequence[str], own_sources: Sequence[ClaimSource]
    ) -> NameLink | None:
        """Return the sources in other texts which show that an entity has one of these names; None without any."""
        own_ids = [source.ref.id for source in own_sources]
        rows = await self._run.fetch("dreams/entities/entities", "link_sources", known.ref.id, own_ids, list(labels))
        if not rows:
            return None
        return NameLink(tuple(ClaimSource(RowRef(row["source_type"], row["source_id"]), row["key"]) for row in rows))

    def is_owner_address(self, label: str) -> bool:
        """Return whether a label is the e-mail address of the memory's owner."""
        return "@" in label and resolve_user_id(label) == self._run.scope.user_id

    def _build_known(self, table: str, record: dict[str, Any]) -> KnownEntity:
        data = record.get("extracted_data") or {}
        aliases = data.get("aliases") if isinstance(data, dict) else None
        names = [str(alias) for alias in aliases] if isinstance(aliases, list) else []
        if table == "users" and record.get("email"):
            names.append(str(record["email"]).lower())
        is_own: bool = record["user_id"] == self._run.scope.user_id
        ref = RowRef(table, UUID(str(record["id"])))
        is_owner = self._is_owner(table, record)
        entity_type = data.get("entity_type") if isinstance(data, dict) else None
        return KnownEntity(
            ref, record["key"], record["name"], record["origin"], is_own, tuple(names), is_owner, entity_type
        )

    def _is_owner(self, table: str, record: dict[str, Any]) -> bool:
        owner = self._run.scope.user_id
        if table != "users" or owner is None:
            return False
        address = record.get("email")
        is_profile = UUID(str(record["id"])) == make_profile_row_id(self._run.store)
        is_named = owner in (str(record["id"]), record["name"])
        return is_profile or is_named or bool(address and resolve_user_id(address) == owner)


def choose_match(entities: Sequence[KnownEntity], label: str) -> KnownEntity | None:
    """Return the entity that a label means; None if there is none, or if several fit equally."""
    if not entities:
        return None
    if len({entity.key for entity in entities}) == 1:
        return entities[0]
    folded = fold_word(label)
    by_name = [entity for entity in entities if folded in (fold_word(entity.name), fold_word(entity.key))]
    is_clear = len({entity.key for entity in by_name}) == 1 and " " in label.strip()
    return by_name[0] if is_clear else None


@dataclass(frozen=True, slots=True)
class EntityMatch:
    """The known entity that a candidate is, if any."""

    known: KnownEntity | None = None
    is_refused: bool = False
    """The owner deleted it, or it is the owner."""
    is_linked: bool = False
    """The known entity has another name than the candidate."""
    is_mention: bool = False
    """The candidate only mentions it, and is no evidence for it."""

    @property
    def may_be_claimed(self) -> bool:
        """Return whether the candidate may be evidence for a row: a new one, or one that this dream has made.

        What the owner says about someone whom a shared row names goes into a row of the owner.
        """
        is_free = self.known is None or self.known.is_dreamt or not self.known.is_own
        return not self.is_refused and not self.is_mention and is_free

    @property
    def claimed(self) -> KnownEntity | None:
        """Return the row that the candidate is evidence for; None for a new one."""
        return self.known if self.known is not None and self.known.is_dreamt else None


@dataclass(slots=True)
class Resolution:
    """The candidates of one subject, each with its match."""

    candidates: Sequence[Candidate]
    matches: list[EntityMatch]
    other_entities: dict[str, list[KnownEntity]]
    """The known entities with names that are not those of candidates."""
    namesakes: Mapping[str, list[KnownEntity]] = field(default_factory=dict)
    """The known entities that have the first name of a candidate."""
    superseded: set[UUID] = field(default_factory=set)
    """Known entities that a candidate replaces under a fuller name."""

    @property
    def pairs(self) -> list[tuple[Candidate, EntityMatch]]:
        """Return each candidate with its match."""
        return list(zip(self.candidates, self.matches, strict=True))

    def resolve_name(self, words: tuple[str, ...]) -> tuple[Candidate | None, KnownEntity | None]:
        """Return the candidate and the known entity that a name in this conversation means."""
        name = fold_words(words)
        pairs = [pair for pair in self.pairs if "".join(pair[0].folded_words) == "".join(name)]
        if not pairs and len(name) == 1:
            pairs = [
                (candidate, match)
                for candidate, match in self.pairs
                if candidate.entity_type == PERSON and candidate.folded_words[:1] == name
            ]
        if len(pairs) == 1:
            candidate, match = pairs[0]
            return candidate, match.known
        if pairs:
            return None, None
        label = " ".join(words)
        entities = [known for known in self.other_entities.get(label, []) if len(name) > 1 or known.is_named(label)]
        return None, choose_match(entities, label)

    def is_established(self, words: tuple[str, ...]) -> bool:
        """Return whether a name means a known entity, or a candidate with enough evidence."""
        candidate, known = self.resolve_name(words)
        return known is not None or (candidate is not None and candidate.confidence >= MIN_CONFIDENCE)


async def resolve(
    entities: KnownEntities, candidates: Sequence[Candidate], relations: Sequence[StatedRelation]
) -> Resolution:
    """Match the candidates of a conversation, and the names in stated relations, with known entities."""
    labels = {label for candidate in candidates for label in candidate.unique_names}
    labels |= {candidate.words[0] for candidate in candidates if candidate.entity_type == PERSON}
    labels |= {name for candidate in candidates if (name := candidate.related_name)}
    other_labels = {" ".join(words) for relation in relations for words in (relation.src, relation.dst)}
    if not labels | other_labels:
        return Resolution(candidates, [], {})
    known = await entities.find(labels | other_labels, ALL_NAMED_TABLES)
    refused = await entities.find_refused(labels) if labels else {}
    resolution = Resolution(candidates, [], {label: known.get(label, []) for label in other_labels}, known)
    for candidate in candidates:
        if any(map(entities.is_owner_address, candidate.keys)):
            match = EntityMatch(is_refused=True)
        else:
            match = _match_candidate(candidate, known, refused, resolution.superseded)
            if match.may_be_claimed and not _has_namesake(candidate, candidates):
                resolution.superseded |= _find_superseded_names(candidate, match, known)
        resolution.matches.append(match)
    return resolution


def _match_candidate(
    candidate: Candidate,
    known: Mapping[str, list[KnownEntity]],
    refused: Mapping[str, KnownEntity | None],
    superseded: set[UUID],
) -> EntityMatch:
    """Return a candidate's match. Add the entities that it replaces to `superseded`."""
    by_label = [
        (label, entity)
        for label in candidate.unique_names
        for entity in known.get(label, [])
        if entity.ref.type != "resources" or label == candidate.name
    ]
    if any(entity.is_owner for _, entity in by_label):
        return EntityMatch(is_refused=True)
    for label, entity in by_label:
        if entity.is_own and not entity.is_dreamt:
            return EntityMatch(entity, is_linked=label != candidate.name)
    shared = next(((label, entity) for label, entity in by_label if not entity.is_own), None)
    by_label = [(label, entity) for label, entity in by_label if entity.is_own]
    refused_labels = [label for label in candidate.unique_names if label in refused]
    if refused_labels:
        corrected = next((now for label in refused_labels if (now := refused[label]) is not None), None)
        return EntityMatch(corrected, is_refused=corrected is None, is_linked=corrected is not None)
    by_first_name = _match_first_name(candidate, known)
    if by_first_name is not None:
        return EntityMatch(by_first_name, is_linked=True, is_mention=True)
    if shared is not None and not by_label:
        return EntityMatch(shared[1], is_linked=shared[0] != candidate.name)
    return _match_dreamt(candidate, by_label, superseded)


def _has_namesake(candidate: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Return whether the conversation names another person with the same first name."""
    first = candidate.folded_words[:1]
    return any(other is not candidate and other.folded_words[:1] == first for other in candidates)


def _find_superseded_names(
    candidate: Candidate, match: EntityMatch, known: Mapping[str, list[KnownEntity]]
) -> set[UUID]:
    """Return the rows "Ewa" and "Ewa (sister)" if the candidate is Ewa Nowak, or "Ewa" if it is "Ewa (sister)".

    A full name also replaces "Ewa (colleague)". Return none if another person with this first name is known.
    """
    if candidate.entity_type != PERSON or candidate.name == candidate.words[0]:
        return set()
    first = fold_word(candidate.words[0])
    own = [entity for entity in known.get(candidate.words[0], []) if entity.is_dreamt]
    names = {first, fold_word(candidate.related_name or "")} - {fold_word(candidate.name), ""}
    shorter = [
        entity
        for entity in own
        if fold_word(entity.name) in names or (candidate.is_full_name and _has_loose_relation(entity))
    ]
    claimed_id = match.claimed.ref.id if match.claimed else None
    others = [entity for entity in own if entity not in shorter and entity.ref.id != claimed_id]
    return set() if others else {entity.ref.id for entity in shorter}


def _has_loose_relation(entity: KnownEntity) -> bool:
    """Return whether a row is that of "Sarah (colleague)", who can be any Sarah, and not of a relative."""
    _, _, relation = entity.name.partition(" (")
    return bool(relation) and not is_family(relation.rstrip(")"))


def _match_dreamt(
    candidate: Candidate, by_label: Sequence[tuple[str, KnownEntity]], superseded: set[UUID]
) -> EntityMatch:
    """Match the dreamt entity with the fullest name among those that can be the same."""
    entities = [entity for label, entity in by_label if label == candidate.name or entity.may_be(candidate.words)]
    if not entities:
        return EntityMatch()
    name = fold_word(candidate.name)
    same_name = next((entity for entity in entities if fold_word(entity.name) == name), None)
    fullest = min(entities, key=lambda entity: (-len(entity.words), -len(entity.name), entity.key))
    if fold_word(fullest.name) != name and _is_fuller(candidate, fullest):
        superseded |= {entity.ref.id for entity in entities if same_name is None or entity.ref != same_name.ref}
        return EntityMatch(same_name)
    superseded |= {entity.ref.id for entity in entities if entity.ref != fullest.ref}
    return EntityMatch(fullest, is_linked=fold_word(fullest.name) != name)


def _is_fuller(candidate: Candidate, known: KnownEntity) -> bool:
    return (len(candidate.folded_words), len(candidate.name)) >= (len(known.words), len(known.name))


def _match_first_name(candidate: Candidate, known: Mapping[str, list[KnownEntity]]) -> KnownEntity | None:
    """Match "my colleague Sarah" with Sarah Chen, if no other Sarah is known. "My sister Sarah" can be another."""
    if not candidate.is_single or not candidate.relation or is_family(candidate.relation):
        return None
    first_name = candidate.words[0]
    named = [entity for entity in known.get(first_name, []) if entity.is_named(first_name)]
    full = {entity.key: entity for entity in named if entity.is_full_name}
    others = [
        entity for entity in named if not entity.is_full_name and fold_word(entity.name) != fold_word(candidate.name)
    ]
    return next(iter(full.values())) if len(full) == 1 and not others else None
