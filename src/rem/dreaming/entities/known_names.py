"""Known names: what the owner's memory calls things already, what it was told to forget, and which of them is meant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.context import user_id_of
from rem.db.sql import query
from rem.dreaming.claim import Ref, Source
from rem.dreaming.entities.name_words import fold, folded
from rem.dreaming.owner import owned

if TYPE_CHECKING:
    from rem.dreaming.night import Night

DREAM = "entities"
_ORIGIN = f"dream:{DREAM}"
_AT_ONCE = 2000
_MANY = 10
PEOPLE_AND_THINGS = ("users", "ontologies")
ANYTHING = ("users", "ontologies", "resources")


@dataclass(frozen=True, slots=True)
class Known:
    """A row that answers to a name."""

    ref: Ref
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
        return folded(self.name.replace("-", " ").split() if " " not in self.name else self.name.split())

    @property
    def is_full_name(self) -> bool:
        """Whether more than a first name is known of it."""
        return len(self.words) > 1 and "(" not in self.name

    @property
    def source(self) -> Source:
        """The row as what a claim rests on: when it goes, so does the claim."""
        return Source(self.ref, self.key)

    def is_called(self, label: str) -> bool:
        """Whether a single word is written as one of its names is."""
        return label in (self.name, self.key, *self.aliases)

    def may_be(self, words: Sequence[str]) -> bool:
        """Whether a name does not contradict its own: S. Chen may be Sarah Chen, Per Olsen is not Margarethe Olsen."""
        asked, own = folded(tuple(words)), self.words
        if not asked or not own or "".join(asked) == "".join(own):
            return True
        if len(asked) == 1 or len(own) == 1:
            return asked[0] in own or own[0] in asked or asked[0] == own[0][:1] + own[-1]
        first, other = asked[0], own[0]
        is_short = len(first) == 1 or len(other) == 1
        return asked[-1] == own[-1] and (first == other or (is_short and first[0] == other[0]))


@dataclass(frozen=True, slots=True)
class Link:
    """That something is called otherwise in another place."""

    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class ToldElsewhere:
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
        return self.count >= _MANY and self.is_spread


class KnownNames:
    """Looks names up for one owner."""

    def __init__(self, night: Night) -> None:
        self._night = night

    async def find(self, labels: Iterable[str], tables: Collection[str] = PEOPLE_AND_THINGS) -> dict[str, list[Known]]:
        """What answers to each label, the owner's own first."""
        asked = sorted(set(labels))
        found: dict[str, list[Known]] = defaultdict(list)
        for start in range(0, len(asked), _AT_ONCE):
            for row in await self._rows("known", asked[start : start + _AT_ONCE], list(tables)):
                record = row["record"]
                if record is not None:
                    found[row["label"]].append(self._known(row["entity_type"], record))
        return found

    async def taken_back(self, labels: Iterable[str]) -> dict[str, Known | None]:
        """The labels of what the owner deleted; or corrected, then with what it is now."""
        taken: dict[str, Known | None] = {}
        for row in await self._rows("taken_back", sorted(set(labels)), DREAM):
            corrected = self._known("ontologies", row["record"]) if row["record"] else None
            taken[row["label"]] = taken.get(row["label"]) or corrected
        return taken

    async def told_elsewhere(
        self, names: Sequence[str], subject: Ref, own: Sequence[Source]
    ) -> dict[str, ToldElsewhere]:
        """What other texts than a subject's own tell of names."""
        own_ids = [source.ref.id for source in own]
        rows = await self._rows("told_elsewhere", DREAM, sorted(set(names)), subject.id, own_ids)
        return {
            row["label"]: ToldElsewhere(
                row["told"], row["is_spread"], frozenset(row["traits"]), row["is_own"], row["is_thing"]
            )
            for row in rows
        }

    async def link(self, known: Known, labels: Sequence[str], own: Sequence[Source]) -> Link | None:
        """What tells, elsewhere, that something has one of these names; None if nothing does."""
        own_ids = [source.ref.id for source in own]
        rows = await self._rows("link_sources", known.ref.id, own_ids, list(labels), with_user=False)
        if not rows:
            return None
        return Link(tuple(Source(Ref(row["source_type"], row["source_id"]), row["key"]) for row in rows))

    def _known(self, table: str, record: dict[str, Any]) -> Known:
        data = record.get("extracted_data") or {}
        aliases = data.get("aliases") if isinstance(data, dict) else None
        names = [str(alias) for alias in aliases] if isinstance(aliases, list) else []
        if table == "users" and record.get("email"):
            names.append(str(record["email"]).lower())
        is_own = record["user_id"] is not None and record["user_id"] == self._night.scope.user_id
        if self._night.scope.user_id is None:
            is_own = record["user_id"] is None
        ref = Ref(table, UUID(str(record["id"])))
        is_owner = self._is_owner(table, record)
        return Known(ref, record["key"], record["name"], record["origin"], is_own, tuple(names), is_owner)

    def is_owners(self, label: str) -> bool:
        """Whether an address is that of the one whose memory this is."""
        return "@" in label and user_id_of(label) == self._night.scope.user_id

    def _is_owner(self, table: str, record: dict[str, Any]) -> bool:
        owner = self._night.scope.user_id
        if table != "users" or owner is None:
            return False
        address = record.get("email")
        return owner in (str(record["id"]), record["name"]) or bool(address and user_id_of(address) == owner)

    async def _rows(self, name: str, *parameters: Any, with_user: bool = True) -> list[Any]:
        scope = self._night.scope
        owner = (scope.tenant_id, scope.user_id) if with_user else (scope.tenant_id,)
        async with self._night.store.executor.connection() as connection:
            statement = query("entities_dream", name)
            statement = owned(statement, scope.user_id) if with_user else statement
            return list(await connection.fetch(statement, *owner, *parameters))


def one_of(found: Sequence[Known], label: str) -> Known | None:
    """Which of several is meant by a label; None if that is not clear."""
    if not found:
        return None
    if len({known.key for known in found}) == 1:
        return found[0]
    key = fold(label)
    natural = [known for known in found if fold(known.name) == key or fold(known.key) == key]
    is_clear = len({known.key for known in natural}) == 1 and " " in label.strip()
    return natural[0] if is_clear else None
