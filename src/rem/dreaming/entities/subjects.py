"""Subjects: the stretches of conversations and the texts that are looked at as one for what they name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import fill, query
from rem.dreaming.claim import Ref, Source
from rem.dreaming.entities.known_names import DREAM
from rem.dreaming.night import NewSession
from rem.dreaming.owner import owned
from rem.dreaming.plain_text import said_in
from rem.dreaming.secrets import without_secrets
from rem.models import Moment, Resource

if TYPE_CHECKING:
    from rem.dreaming.night import Night

STRETCH = 100
"""Messages of a session that are looked at together. A new one costs the reading of so many, however long it is.
As rem_dream_stretch has it."""
_MOST_WOKEN = 200


@dataclass(frozen=True, slots=True)
class Passage:
    """What somebody said or wrote."""

    text: str
    """Without code, links, and secrets."""
    source: Source
    at: datetime
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A statement that stands."""

    id: UUID
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A stretch of a session, a resource, or a moment."""

    ref: Ref
    """The row that it is part of: what is said of it is said of that, and mentions lead from there."""
    first: int = 0
    last: int = 0
    seen_before: int = -1
    """How far the session was seen before tonight."""
    document: Resource | Moment | None = field(default=None, compare=False)

    @property
    def is_conversation(self) -> bool:
        """Whether it is talk, in which "my" and "our" are the owner's."""
        return self.document is None

    @property
    def stretch(self) -> tuple[int, int] | None:
        """From where to where a session is looked at, whether all of that was said yet or not."""
        return (self.first, self.first + STRETCH - 1) if self.is_conversation else None

    @property
    def is_derived(self) -> bool:
        """Whether it only repeats what was said elsewhere: it mentions, and gives no evidence."""
        return isinstance(self.document, Moment)


async def new_subjects(night: Night) -> list[Subject]:
    """What is new since the last night."""
    found = [subject for session in await night.sessions(DREAM) for subject in _stretches(session)]
    found += [_of_document(resource) for resource in await night.rows(DREAM, Resource)]
    return found + await new_moments(night)


async def new_moments(night: Night) -> list[Subject]:
    """Moments that were not looked at since they were made or changed."""
    return [_of_document(moment) for moment in await night.rows(DREAM, Moment)]


def _with_fresh(name: str, night: Night) -> str:
    whole = fill(query("entities_dream", name), naming=query("entities_dream", "naming"))
    return owned(fill(whole, fresh=query("entities_dream", "fresh")), night.scope.user_id)


async def woken_subjects(night: Night, besides: list[Subject], outdone: Collection[UUID]) -> list[Subject]:
    """What spoke in earlier nights for something that there is since tonight, or that has a fuller name now."""
    owner = night.scope.tenant_id, night.scope.user_id, night.run_id, DREAM
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(_with_fresh("woken", night), *owner, list(outdone), _MOST_WOKEN, STRETCH)
        resources = await connection.fetch(_with_fresh("woken_resources", night), *owner, list(outdone), _MOST_WOKEN)
    found = [_of_stretch(row) for row in rows]
    return _others([*found, *(_of_document(Resource.from_row(record)) for (record,) in resources)], besides)


async def naming_subjects(night: Night, besides: list[Subject]) -> list[Subject]:
    """What named in earlier nights, by the index of words, something that there is since tonight; the newest of it."""
    owner = night.scope.tenant_id, night.scope.user_id, night.run_id, DREAM
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(_with_fresh("naming_stretches", night), *owner, [], _MOST_WOKEN, STRETCH)
        documents = await connection.fetch(_with_fresh("naming_documents", night), *owner, [], _MOST_WOKEN)
    found = [_of_stretch(row) for row in rows]
    for kind, record in documents:
        if record is not None:
            found.append(_of_document((Moment if kind == "moments" else Resource).from_row(record)))
    return _others(found, besides)


def _others(found: Sequence[Subject], than: Sequence[Subject]) -> list[Subject]:
    known = {(subject.ref, subject.first // STRETCH) for subject in than}
    return [subject for subject in found if (subject.ref, subject.first // STRETCH) not in known]


def _of_stretch(row: Any) -> Subject:
    start, seen = row["first"] // STRETCH * STRETCH, row["seen_index"]
    return Subject(Ref("sessions", row["session_id"]), start, min(start + STRETCH - 1, seen), seen)


def _stretches(session: NewSession) -> Iterator[Subject]:
    again = {number for first, last in session.again for number in range(first // STRETCH, last // STRETCH + 1)}
    new = range((session.seen_index + 1) // STRETCH, session.last_index // STRETCH + 1) if session.has_grown else ()
    for start in (number * STRETCH for number in sorted(again.union(new))):
        last = min(start + STRETCH - 1, session.last_index)
        yield Subject(session.ref, start, last, session.seen_index)


def _of_document(document: Resource | Moment) -> Subject:
    return Subject(Ref(document.entity_type.table, document.id), document=document)


async def passages_of(night: Night, subject: Subject) -> list[Passage]:
    """What a subject says, in its order."""
    document = subject.document
    if document is not None:
        source = Source(subject.ref, str(document.key))
        if isinstance(document, Moment):
            return [Passage(_told(document.summary), source, document.starts_timestamp or document.created_at)]
        return [Passage(_told(document.content), source, document.timestamp or document.created_at)]
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(
            query("entities_dream", "stretch"),
            *(night.scope.tenant_id, night.scope.user_id, subject.ref.id, subject.first, subject.last),
        )
    return [
        Passage(
            _told(row["content"]), Source(Ref("messages", row["id"]), row["key"]), row["created_at"], row["speaker"]
        )
        for row in rows
    ]


def _told(text: str) -> str:
    return without_secrets(said_in(text))


async def standing_of(night: Night, subject: Subject, passages: list[Passage]) -> list[Standing]:
    """What is said of a subject by now; of a session, what was made from this stretch of it."""
    own = [passage.source.ref.id for passage in passages], [passage.source.key for passage in passages]
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(
            query("entities_dream", "standing"),
            *(night.scope.tenant_id, night.scope.user_id, DREAM, subject.ref.id, *own),
        )
    return [Standing(row["id"], row["kind"], row["name"]) for row in rows]
