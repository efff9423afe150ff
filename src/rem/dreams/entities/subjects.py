"""Find the subjects that the entities dream reads: parts of sessions, resources and moments."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import fill, query
from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.entities.known_entities import DREAM_NAME
from rem.dreams.owner_queries import rewrite_owner_filter
from rem.dreams.run import PendingSession
from rem.dreams.text.masking import mask_code_and_links, mask_front_matter
from rem.dreams.text.secrets import mask_secrets
from rem.dreams.text.statements import mask_other_kinds
from rem.models import Moment, Resource

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun

STRETCH_MESSAGES = 100
"""Messages of a session that are read together, so a new message never costs the reading of a long session. The same
value as rem_dream_rescan_messages in SQL."""
MAX_AFFECTED_SUBJECTS = 200


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of a message, a resource or a moment."""

    text: str
    """Without code, links and secrets. Of a message only the statements; the rest are spaces."""
    source: ClaimSource
    at: datetime
    speaker: str | None = None
    whole_text: str = ""
    """The text with everything that a message contains. It tells what the statements are about."""

    @property
    def has_statements(self) -> bool:
        """Return whether there is something that can be evidence."""
        return bool(self.text.strip())


@dataclass(frozen=True, slots=True)
class ExistingStatement:
    """A live statement about a subject."""

    id: UUID
    kind: str
    name: str
    is_evidence: bool
    """False if it only adds content to a row."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A stretch of a session, a resource, or a moment."""

    ref: RowRef
    """The row of the session, resource or moment. Statements are about it, and mention edges begin there."""
    first: int = 0
    """The index of the first message in the stretch."""
    last: int = 0
    """The index of the last message in the stretch."""
    seen_before: int = -1
    """The index of the last message that earlier dream runs have read."""
    document: Resource | Moment | None = field(default=None, compare=False)

    @property
    def is_conversation(self) -> bool:
        """Return whether it is part of a session, where "my" and "our" are the owner's."""
        return self.document is None

    @property
    def stretch(self) -> tuple[int, int] | None:
        """Return the first and last index of the full stretch, including messages that do not exist yet."""
        return (self.first, self.first + STRETCH_MESSAGES - 1) if self.is_conversation else None

    @property
    def is_derived(self) -> bool:
        """Return whether it repeats other texts. A derived text can mention entities, but is no evidence."""
        return isinstance(self.document, Moment)


async def find_new_subjects(run: DreamRun) -> list[Subject]:
    """Return the sessions, resources and moments that are new since the last dream run."""
    sessions = await run.fetch_pending_sessions(DREAM_NAME)
    subjects = [subject for session in sessions for subject in _split_into_stretches(session)]
    subjects += [_document_subject(resource) for resource in await run.fetch_new_rows(DREAM_NAME, Resource)]
    return subjects + await find_new_moments(run)


async def find_new_moments(run: DreamRun) -> list[Subject]:
    """Return the moments that the dream has not read in their present version."""
    return [_document_subject(moment) for moment in await run.fetch_new_rows(DREAM_NAME, Moment)]


async def find_affected_subjects(
    run: DreamRun, excluded: Sequence[Subject], superseded: Collection[UUID]
) -> list[Subject]:
    """Return subjects of earlier runs that are evidence for an entity that this run has made or superseded."""
    owner = run.scope.tenant_id, run.scope.user_id, run.run_id, DREAM_NAME
    async with run.store.executor.connection() as connection:
        rows = await connection.fetch(
            _build_query("stretches_with_evidence", run),
            *owner,
            list(superseded),
            MAX_AFFECTED_SUBJECTS,
            STRETCH_MESSAGES,
        )
        resources = await connection.fetch(
            _build_query("resources_with_evidence", run), *owner, list(superseded), MAX_AFFECTED_SUBJECTS
        )
    subjects = [_stretch_subject(row) for row in rows]
    subjects += [_document_subject(Resource.from_row(record)) for (record,) in resources]
    return _exclude(subjects, excluded)


async def find_naming_subjects(run: DreamRun, excluded: Sequence[Subject]) -> list[Subject]:
    """Return the newest subjects of earlier runs that have the name of an entity that this run has made."""
    owner = run.scope.tenant_id, run.scope.user_id, run.run_id, DREAM_NAME
    async with run.store.executor.connection() as connection:
        rows = await connection.fetch(
            _build_query("stretches_with_name", run), *owner, [], MAX_AFFECTED_SUBJECTS, STRETCH_MESSAGES
        )
        documents = await connection.fetch(_build_query("documents_with_name", run), *owner, [], MAX_AFFECTED_SUBJECTS)
    subjects = [_stretch_subject(row) for row in rows]
    for table, record in documents:
        if record is not None:
            subjects.append(_document_subject((Moment if table == "moments" else Resource).from_row(record)))
    return _exclude(subjects, excluded)


def _build_query(name: str, run: DreamRun) -> str:
    statement = fill(
        query("dreams/entities/entities", name),
        passages_with_name=query("dreams/entities/entities", "passages_with_name"),
    )
    statement = fill(statement, new_entities=query("dreams/entities/entities", "new_entities"))
    return rewrite_owner_filter(statement, run.scope.user_id)


def _exclude(subjects: Sequence[Subject], excluded: Sequence[Subject]) -> list[Subject]:
    known = {(subject.ref, subject.first // STRETCH_MESSAGES) for subject in excluded}
    return [subject for subject in subjects if (subject.ref, subject.first // STRETCH_MESSAGES) not in known]


def _stretch_subject(row: Any) -> Subject:
    start, seen = row["first"] // STRETCH_MESSAGES * STRETCH_MESSAGES, row["seen_index"]
    return Subject(RowRef("sessions", row["session_id"]), start, min(start + STRETCH_MESSAGES - 1, seen), seen)


def _split_into_stretches(session: PendingSession) -> Iterator[Subject]:
    numbers = {
        number
        for first, last in session.rescan_ranges
        for number in range(first // STRETCH_MESSAGES, last // STRETCH_MESSAGES + 1)
    }
    if session.has_new_messages:
        first_new = (session.seen_index + 1) // STRETCH_MESSAGES
        numbers.update(range(first_new, session.last_index // STRETCH_MESSAGES + 1))
    for start in (number * STRETCH_MESSAGES for number in sorted(numbers)):
        last = min(start + STRETCH_MESSAGES - 1, session.last_index)
        yield Subject(session.ref, start, last, session.seen_index)


def _document_subject(document: Resource | Moment) -> Subject:
    return Subject(RowRef(document.entity_type.table, document.id), document=document)


async def load_texts(run: DreamRun, subject: Subject) -> list[SourceText]:
    """Return the texts of a subject in their order, also messages without a statement, which are no evidence."""
    document = subject.document
    if document is not None:
        source = ClaimSource(subject.ref, str(document.key))
        if isinstance(document, Moment):
            return [SourceText(_clean(document.summary), source, document.starts_timestamp or document.created_at)]
        content = _clean(mask_front_matter(document.content))
        return [SourceText(content, source, document.timestamp or document.created_at, whole_text=content)]
    rows = await run.fetch_owned(
        "dreams/entities/entities", "messages_of_stretch", subject.ref.id, subject.first, subject.last
    )
    return [
        SourceText(
            # Not the other way round: a secret may be in two sentences.
            mask_other_kinds(_clean(row["content"]), row["kind"]),
            ClaimSource(RowRef("messages", row["id"]), row["key"]),
            row["created_at"],
            row["speaker"],
            _clean(row["content"]),
        )
        for row in rows
    ]


def _clean(text: str) -> str:
    return mask_secrets(mask_code_and_links(text))


async def load_statements(run: DreamRun, subject: Subject, texts: Sequence[SourceText]) -> list[ExistingStatement]:
    """Return the live statements about a subject that are based on these texts."""
    sources = [text.source.ref.id for text in texts], [text.source.key for text in texts]
    rows = await run.fetch_owned("dreams/entities/entities", "live_statements", DREAM_NAME, subject.ref.id, *sources)
    return [ExistingStatement(row["id"], row["kind"], row["name"], row["is_evidence"]) for row in rows]
