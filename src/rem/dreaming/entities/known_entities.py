"""Known names: what the owner's memory calls things already, what it was told to forget, and which of them is meant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.context import resolve_user_id
from rem.db.sql import query
from rem.dreaming.claims import ClaimSource, RowRef
from rem.dreaming.entities.candidates import Candidate
from rem.dreaming.entities.evidence import MIN_CONFIDENCE, PERSON, StatedRelation
from rem.dreaming.entities.introductions import FAMILY_RELATIONS
from rem.dreaming.entities.name_parsing import fold_word, fold_words
from rem.dreaming.owner_queries import rewrite_owner_filter

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun


DREAM_NAME = "entities"
_ORIGIN = f"dream:{DREAM_NAME}"
MAX_LABELS_PER_QUERY = 2000
MIN_OTHER_USES = 10
PEOPLE_AND_KNOWLEDGE_TABLES = ("users", "ontologies")
ALL_NAMED_TABLES = ("users", "ontologies", "resources")


@dataclass(frozen=True, slots=True)
class KnownEntity:
    """A row that answers to a name."""

    ref: RowRef
    key: str
    name: str
    origin: str
    is_own: bool
    aliases: tuple[str, ...]
    is_owner: bool = False
    """Whether it is the one whose memory this is."""

    @property
    def is_dreamt(self) -> bool:
        """Whether this dream made it, so that more evidence may speak for it."""
        return self.is_own and self.origin == _ORIGIN

    @property
    def words(self) -> tuple[str, ...]:
        """Its name, folded, for comparing."""
        return fold_words(self.name.replace("-", " ").split() if " " not in self.name else self.name.split())

    @property
    def is_full_name(self) -> bool:
        """Whether more than a first name is known of it."""
        return len(self.words) > 1 and "(" not in self.name

    @property
    def source(self) -> ClaimSource:
        """The row as what a claim rests on: when it goes, so does the claim."""
        return ClaimSource(self.ref, self.key)

    def is_named(self, label: str) -> bool:
        """Whether a single word is written as one of its names is."""
        return label in (self.name, self.key, *self.aliases)

    def may_be(self, words: Sequence[str]) -> bool:
        """Whether a name does not contradict its own: S. Chen may be Sarah Chen, Per Olsen is not Margarethe Olsen."""
        asked, own = fold_words(tuple(words)), self.words
        if not asked or not own or "".join(asked) == "".join(own):
            return True
        if len(asked) == 1 or len(own) == 1:
            return asked[0] in own or own[0] in asked or asked[0] == own[0][:1] + own[-1]
        first, other = asked[0], own[0]
        is_short = len(first) == 1 or len(other) == 1
        return asked[-1] == own[-1] and (first == other or (is_short and first[0] == other[0]))


@dataclass(frozen=True, slots=True)
class NameLink:
    """That something is called otherwise in another place."""

    sources: tuple[ClaimSource, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherUses:
    """What other conversations tell of a name that is only used."""

    count: int
    is_spread: bool
    """Whether another conversation would be nothing new."""
    traits: frozenset[str]
    is_own: bool
    """Whether this conversation speaks for it already, and should go on to."""
    is_thing: bool
    """Whether it is something else than a person."""

    @property
    def has_many(self) -> bool:
        """Whether enough speak for it, so that it does not hang on one of them."""
        return self.count >= MIN_OTHER_USES and self.is_spread


class KnownEntities:
    """Looks names up for one owner."""

    def __init__(self, night: DreamRun) -> None:
        self._night = night

    async def find(
        self, labels: Iterable[str], tables: Collection[str] = PEOPLE_AND_KNOWLEDGE_TABLES
    ) -> dict[str, list[KnownEntity]]:
        """What answers to each label, the owner's own first."""
        asked = sorted(set(labels))
        found: dict[str, list[KnownEntity]] = defaultdict(list)
        for start in range(0, len(asked), MAX_LABELS_PER_QUERY):
            for row in await self._fetch("known", asked[start : start + MAX_LABELS_PER_QUERY], list(tables)):
                record = row["record"]
                if record is not None:
                    found[row["label"]].append(self._build_known(row["entity_type"], record))
        return found

    async def find_refused(self, labels: Iterable[str]) -> dict[str, KnownEntity | None]:
        """The labels of what the owner deleted; or corrected, then with what it is now."""
        taken: dict[str, KnownEntity | None] = {}
        for row in await self._fetch("taken_back", sorted(set(labels)), DREAM_NAME):
            corrected = self._build_known("ontologies", row["record"]) if row["record"] else None
            taken[row["label"]] = taken.get(row["label"]) or corrected
        return taken

    async def find_other_uses(
        self, names: Sequence[str], subject: RowRef, own: Sequence[ClaimSource]
    ) -> dict[str, OtherUses]:
        """What other texts than a subject's own tell of names."""
        own_ids = [source.ref.id for source in own]
        rows = await self._fetch("told_elsewhere", DREAM_NAME, sorted(set(names)), subject.id, own_ids)
        return {
            row["label"]: OtherUses(
                row["told"], row["is_spread"], frozenset(row["traits"]), row["is_own"], row["is_thing"]
            )
            for row in rows
        }

    async def find_link(self, known: KnownEntity, labels: Sequence[str], own: Sequence[ClaimSource]) -> NameLink | None:
        """What tells, elsewhere, that something has one of these names; None if nothing does."""
        own_ids = [source.ref.id for source in own]
        rows = await self._fetch("link_sources", known.ref.id, own_ids, list(labels), with_user=False)
        if not rows:
            return None
        return NameLink(tuple(ClaimSource(RowRef(row["source_type"], row["source_id"]), row["key"]) for row in rows))

    def _build_known(self, table: str, record: dict[str, Any]) -> KnownEntity:
        data = record.get("extracted_data") or {}
        aliases = data.get("aliases") if isinstance(data, dict) else None
        names = [str(alias) for alias in aliases] if isinstance(aliases, list) else []
        if table == "users" and record.get("email"):
            names.append(str(record["email"]).lower())
        is_own = record["user_id"] is not None and record["user_id"] == self._night.scope.user_id
        if self._night.scope.user_id is None:
            is_own = record["user_id"] is None
        ref = RowRef(table, UUID(str(record["id"])))
        is_owner = self._is_owner(table, record)
        return KnownEntity(ref, record["key"], record["name"], record["origin"], is_own, tuple(names), is_owner)

    def is_owner_address(self, label: str) -> bool:
        """Whether an address is that of the one whose memory this is."""
        return "@" in label and resolve_user_id(label) == self._night.scope.user_id

    def _is_owner(self, table: str, record: dict[str, Any]) -> bool:
        owner = self._night.scope.user_id
        if table != "users" or owner is None:
            return False
        address = record.get("email")
        return owner in (str(record["id"]), record["name"]) or bool(address and resolve_user_id(address) == owner)

    async def _fetch(self, name: str, *parameters: Any, with_user: bool = True) -> list[Any]:
        scope = self._night.scope
        owner = (scope.tenant_id, scope.user_id) if with_user else (scope.tenant_id,)
        async with self._night.store.executor.connection() as connection:
            statement = query("dream_entities", name)
            statement = rewrite_owner_filter(statement, scope.user_id) if with_user else statement
            return list(await connection.fetch(statement, *owner, *parameters))


def choose_match(found: Sequence[KnownEntity], label: str) -> KnownEntity | None:
    """Which of several is meant by a label; None if that is not clear."""
    if not found:
        return None
    if len({known.key for known in found}) == 1:
        return found[0]
    key = fold_word(label)
    natural = [known for known in found if fold_word(known.name) == key or fold_word(known.key) == key]
    is_clear = len({known.key for known in natural}) == 1 and " " in label.strip()
    return natural[0] if is_clear else None


@dataclass(frozen=True, slots=True)
class EntityMatch:
    """What a candidate is."""

    known: KnownEntity | None = None
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

    def may_be_claimed_for(self, candidate: Candidate) -> bool:
        """Whether it may speak for it by what it is; a name that is only used tells nothing of other names."""
        return self.may_be_claimed and not (candidate.is_usage_only and self.is_linked)


@dataclass(slots=True)
class Resolution:
    """The candidates of one subject, each with what it is."""

    candidates: Sequence[Candidate]
    targets: list[EntityMatch]
    others: dict[str, list[KnownEntity]]
    """What answers to names that are no candidates."""
    outdone: set[UUID] = field(default_factory=set)
    """Entities that a candidate is, under a fuller name."""

    def resolve_name(self, words: tuple[str, ...]) -> tuple[Candidate | None, KnownEntity | None]:
        """Who or what a name in this conversation means."""
        name = fold_words(words)
        matching = [number for number, one in enumerate(self.candidates) if "".join(one.folded_words) == "".join(name)]
        if not matching and len(name) == 1:
            matching = [
                number
                for number, one in enumerate(self.candidates)
                if one.entity_type == PERSON and one.folded_words[:1] == name
            ]
        if len(matching) == 1:
            return self.candidates[matching[0]], self.targets[matching[0]].known
        if matching:
            return None, None
        label = " ".join(words)
        found = [known for known in self.others.get(label, []) if len(name) > 1 or known.is_named(label)]
        return None, choose_match(found, label)

    def is_established(self, words: tuple[str, ...]) -> bool:
        """Whether a name means something that there is, or enough evidence for it is in this conversation."""
        candidate, known = self.resolve_name(words)
        return known is not None or (candidate is not None and candidate.confidence >= MIN_CONFIDENCE)


async def resolve(
    names: KnownEntities, candidates: Sequence[Candidate], stated: Sequence[StatedRelation]
) -> Resolution:
    """Look up what the names of a conversation are."""
    labels = {label for one in candidates for label in one.unique_names}
    labels |= {one.words[0] for one in candidates if one.is_single}
    others = {" ".join(words) for one in stated for words in (one.src, one.dst)}
    if not labels | others:
        return Resolution(candidates, [], {})
    known = await names.find(labels | others, ALL_NAMED_TABLES)
    taken = await names.find_refused(labels) if labels else {}
    resolution = Resolution(candidates, [], {label: known.get(label, []) for label in others})
    for candidate in candidates:
        is_owner = any(map(names.is_owner_address, candidate.keys))
        target = (
            EntityMatch(is_refused=True) if is_owner else _match_candidate(candidate, known, taken, resolution.outdone)
        )
        resolution.targets.append(target)
    return resolution


def _match_candidate(
    candidate: Candidate, known: dict[str, list[KnownEntity]], taken: dict[str, KnownEntity | None], outdone: set[UUID]
) -> EntityMatch:
    hits = [
        (label, one)
        for label in candidate.unique_names
        for one in known.get(label, [])
        if one.ref.type != "resources" or label == candidate.name
    ]
    if any(one.is_owner for _, one in hits):
        return EntityMatch(is_refused=True)
    for label, one in hits:
        if not one.is_dreamt:
            return EntityMatch(one, is_linked=label != candidate.name)
    refused = [label for label in candidate.unique_names if label in taken]
    if refused:
        corrected = next((now for label in refused if (now := taken[label]) is not None), None)
        return EntityMatch(corrected, is_refused=corrected is None, is_linked=corrected is not None)
    first = _match_first_name(candidate, known)
    if first is not None:
        return EntityMatch(first, is_linked=True, is_mention=True)
    return _match_dreamt(candidate, hits, outdone)


def _match_dreamt(candidate: Candidate, hits: Sequence[tuple[str, KnownEntity]], outdone: set[UUID]) -> EntityMatch:
    """The one with the fullest name of those that share an address and may be the same."""
    if candidate.is_usage_only and len({one.key for _, one in hits}) > 1:
        return EntityMatch(is_refused=True)
    fitting = [(label, one) for label, one in hits if label == candidate.name or one.may_be(candidate.words)]
    own = next((one for _, one in fitting if fold_word(one.name) == fold_word(candidate.name)), None)
    if not fitting:
        return EntityMatch()
    best = min((one for _, one in fitting), key=lambda one: (-len(one.words), -len(one.name), one.key))
    if fold_word(best.name) != fold_word(candidate.name) and _is_fuller(candidate, best):
        outdone |= {one.ref.id for _, one in fitting if own is None or one.ref != own.ref}
        return EntityMatch(own)
    outdone |= {one.ref.id for _, one in fitting if one.ref != best.ref}
    return EntityMatch(best, is_linked=fold_word(best.name) != fold_word(candidate.name))


def _is_fuller(candidate: Candidate, known: KnownEntity) -> bool:
    return (len(candidate.folded_words), len(candidate.name)) >= (len(known.words), len(known.name))


def _match_first_name(candidate: Candidate, known: dict[str, list[KnownEntity]]) -> KnownEntity | None:
    """My colleague Sarah is Sarah Chen, if no other Sarah is known. My sister Sarah need not be."""
    if not candidate.is_single or not candidate.relation or candidate.relation in FAMILY_RELATIONS:
        return None
    first = candidate.words[0]
    bearers = [one for one in known.get(first, []) if one.is_named(first)]
    full = {one.key: one for one in bearers if one.is_full_name}
    others = [one for one in bearers if not one.is_full_name and fold_word(one.name) != fold_word(candidate.name)]
    return next(iter(full.values())) if len(full) == 1 and not others else None
