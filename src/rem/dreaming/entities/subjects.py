"""Subjects: the stretches of conversations and the texts that are looked at as one for what they name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import fill, query
from rem.dreaming.claims import ClaimSource, RowRef
from rem.dreaming.entities.known_entities import DREAM_NAME
from rem.dreaming.owner_queries import rewrite_owner_filter
from rem.dreaming.run import PendingSession
from rem.dreaming.text.masking import mask_code_and_links
from rem.dreaming.text.secrets import mask_secrets
from rem.models import Moment, Resource

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun

STRETCH_MESSAGES = 100
"""Messages of a session that are looked at together. A new one costs the reading of so many, however long it is.
As rem_dream_rescan_messages has it."""
MAX_AFFECTED_SUBJECTS = 200


@dataclass(frozen=True, slots=True)
class SourceText:
    """What somebody said or wrote."""

    text: str
    """Without code, links, and secrets."""
    source: ClaimSource
    at: datetime
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class ExistingStatement:
    """A statement that stands."""

    id: UUID
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A stretch of a session, a resource, or a moment."""

    ref: RowRef
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
        return (self.first, self.first + STRETCH_MESSAGES - 1) if self.is_conversation else None

    @property
    def is_derived(self) -> bool:
        """Whether it only repeats what was said elsewhere: it mentions, and gives no evidence."""
        return isinstance(self.document, Moment)


async def find_new_subjects(night: DreamRun) -> list[Subject]:
    """What is new since the last night."""
    found = [
        subject
        for session in await night.fetch_pending_sessions(DREAM_NAME)
        for subject in _split_into_stretches(session)
    ]
    found += [_document_subject(resource) for resource in await night.fetch_new_rows(DREAM_NAME, Resource)]
    return found + await find_new_moments(night)


async def find_new_moments(night: DreamRun) -> list[Subject]:
    """Moments that were not looked at since they were made or changed."""
    return [_document_subject(moment) for moment in await night.fetch_new_rows(DREAM_NAME, Moment)]


def _build_statement(name: str, night: DreamRun) -> str:
    whole = fill(query("dream_entities", name), naming=query("dream_entities", "naming"))
    return rewrite_owner_filter(fill(whole, fresh=query("dream_entities", "fresh")), night.scope.user_id)


async def find_affected_subjects(night: DreamRun, besides: list[Subject], outdone: Collection[UUID]) -> list[Subject]:
    """What spoke in earlier nights for something that there is since tonight, or that has a fuller name now."""
    owner = night.scope.tenant_id, night.scope.user_id, night.run_id, DREAM_NAME
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(
            _build_statement("woken", night), *owner, list(outdone), MAX_AFFECTED_SUBJECTS, STRETCH_MESSAGES
        )
        resources = await connection.fetch(
            _build_statement("woken_resources", night), *owner, list(outdone), MAX_AFFECTED_SUBJECTS
        )
    found = [_stretch_subject(row) for row in rows]
    return _exclude([*found, *(_document_subject(Resource.from_row(record)) for (record,) in resources)], besides)


async def find_naming_subjects(night: DreamRun, besides: list[Subject]) -> list[Subject]:
    """What named in earlier nights, by the index of words, something that there is since tonight; the newest of it."""
    owner = night.scope.tenant_id, night.scope.user_id, night.run_id, DREAM_NAME
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(
            _build_statement("naming_stretches", night), *owner, [], MAX_AFFECTED_SUBJECTS, STRETCH_MESSAGES
        )
        documents = await connection.fetch(
            _build_statement("naming_documents", night), *owner, [], MAX_AFFECTED_SUBJECTS
        )
    found = [_stretch_subject(row) for row in rows]
    for kind, record in documents:
        if record is not None:
            found.append(_document_subject((Moment if kind == "moments" else Resource).from_row(record)))
    return _exclude(found, besides)


def _exclude(found: Sequence[Subject], than: Sequence[Subject]) -> list[Subject]:
    known = {(subject.ref, subject.first // STRETCH_MESSAGES) for subject in than}
    return [subject for subject in found if (subject.ref, subject.first // STRETCH_MESSAGES) not in known]


def _stretch_subject(row: Any) -> Subject:
    start, seen = row["first"] // STRETCH_MESSAGES * STRETCH_MESSAGES, row["seen_index"]
    return Subject(RowRef("sessions", row["session_id"]), start, min(start + STRETCH_MESSAGES - 1, seen), seen)


def _split_into_stretches(session: PendingSession) -> Iterator[Subject]:
    again = {
        number
        for first, last in session.rescan_ranges
        for number in range(first // STRETCH_MESSAGES, last // STRETCH_MESSAGES + 1)
    }
    new = (
        range((session.seen_index + 1) // STRETCH_MESSAGES, session.last_index // STRETCH_MESSAGES + 1)
        if session.has_new_messages
        else ()
    )
    for start in (number * STRETCH_MESSAGES for number in sorted(again.union(new))):
        last = min(start + STRETCH_MESSAGES - 1, session.last_index)
        yield Subject(session.ref, start, last, session.seen_index)


def _document_subject(document: Resource | Moment) -> Subject:
    return Subject(RowRef(document.entity_type.table, document.id), document=document)


async def load_texts(night: DreamRun, subject: Subject) -> list[SourceText]:
    """What a subject says, in its order."""
    document = subject.document
    if document is not None:
        source = ClaimSource(subject.ref, str(document.key))
        if isinstance(document, Moment):
            return [SourceText(_clean(document.summary), source, document.starts_timestamp or document.created_at)]
        return [SourceText(_clean(document.content), source, document.timestamp or document.created_at)]
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(
            query("dream_entities", "stretch"),
            *(night.scope.tenant_id, night.scope.user_id, subject.ref.id, subject.first, subject.last),
        )
    return [
        SourceText(
            _clean(row["content"]),
            ClaimSource(RowRef("messages", row["id"]), row["key"]),
            row["created_at"],
            row["speaker"],
        )
        for row in rows
    ]


def _clean(text: str) -> str:
    return mask_secrets(mask_code_and_links(text))


async def load_statements(night: DreamRun, subject: Subject, passages: list[SourceText]) -> list[ExistingStatement]:
    """What is said of a subject by now; of a session, what was made from this stretch of it."""
    own = [passage.source.ref.id for passage in passages], [passage.source.key for passage in passages]
    async with night.store.executor.connection() as connection:
        rows = await connection.fetch(
            query("dream_entities", "standing"),
            *(night.scope.tenant_id, night.scope.user_id, DREAM_NAME, subject.ref.id, *own),
        )
    return [ExistingStatement(row["id"], row["kind"], row["name"]) for row in rows]
