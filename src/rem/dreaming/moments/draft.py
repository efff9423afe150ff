"""MomentDraft: a moment before it is decided whether it is a new one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from rem.dreaming.claim import RowClaim, Source
from rem.dreaming.moments.data_files import is_data, keys_of
from rem.dreaming.moments.emotions import emotions_of
from rem.dreaming.moments.episodes import Episode
from rem.dreaming.moments.mails import mail_of
from rem.dreaming.moments.people import KnownPeople, speakers_of
from rem.dreaming.moments.summary import Utterance, sentences_of, summary_of
from rem.dreaming.moments.topics import topics_of
from rem.models import Moment, Resource

_BASELINE_CONFIDENCE = 0.7
_LONGEST_ABOUT = 60
_ASSISTANT_SHARE = 0.15
_WORDS_OF_NAME = 6


@dataclass(slots=True)
class MomentDraft:
    """What a moment would say, and what it is made from."""

    name: str
    moment_type: str
    summary: str
    starts: datetime
    ends: datetime
    sources: list[Source]
    topics: list[str] = field(default_factory=list)
    persons: list[str] = field(default_factory=list)
    emotions: list[str] = field(default_factory=list)
    session_id: UUID | None = None
    resource_ids: list[UUID] = field(default_factory=list)
    first_index: int | None = None
    last_index: int | None = None
    confidence: float = _BASELINE_CONFIDENCE
    occurrences: int = 1
    """In how many conversations and texts it was said."""
    worded_in: UUID | None = None
    """The conversation or text whose words it has, if it is a later one that joined."""
    id: UUID = field(default_factory=uuid4)
    """The row's, unless the ledger knows it from before."""

    @property
    def source_ids(self) -> set[UUID]:
        """Which rows it is made from."""
        return {source.ref.id for source in self.sources}

    @property
    def place_id(self) -> UUID:
        """The conversation or text that it was found in."""
        return self.session_id or self.sources[0].ref.id

    def claim(self) -> RowClaim:
        """The draft as a claim."""
        given: dict[str, Any] = {"source_session_id": self.session_id} if self.session_id else {}
        metadata: dict[str, Any] = {}
        if self.first_index is not None:
            metadata |= {"first_index": self.first_index, "last_index": self.last_index}
        if self.occurrences > 1:
            metadata["occurrences"] = self.occurrences
        if self.worded_in is not None:
            metadata["worded_in"] = str(self.worded_in)
        moment = Moment(
            id=self.id,
            name=self.name,
            moment_type=self.moment_type,
            starts_timestamp=self.starts,
            ends_timestamp=self.ends,
            present_persons=self.persons,
            emotion_tags=self.emotions,
            topic_tags=self.topics,
            summary=self.summary,
            source_resource_ids=self.resource_ids,
            metadata=metadata,
            **given,
        )
        return RowClaim(entity=moment, sources=tuple(self.sources), confidence=self.confidence, valid_from=self.starts)


def draft_of_episode(episode: Episode, session_id: UUID, people: KnownPeople) -> MomentDraft | None:
    """What is to be remembered of an episode; nothing, if it was small talk."""
    if not episode.says_something:
        return None
    speakers = speakers_of(message.metadata for message in episode.said)
    summary = summary_of(
        [Utterance(message.content, _speaker(message.metadata), not message.is_persons) for message in episode.said]
    )
    if not summary:
        return None
    topics = topics_of(
        ((m.content, 1.0 if m.is_persons else _ASSISTANT_SHARE) for m in episode.said),
        [*speakers, *people.names_in(m.content for m in episode.said)],
    )
    own_words = [m.content for m in episode.said if m.is_persons]
    return MomentDraft(
        name=name_of(episode.starts, topics, summary),
        moment_type="conversation",
        summary=summary,
        starts=episode.starts,
        ends=episode.ends,
        sources=[message.source for message in episode.said],
        topics=topics,
        persons=_united(speakers, people.mentioned_in(own_words)),
        emotions=emotions_of(own_words),
        session_id=session_id,
        first_index=episode.first_index,
        last_index=episode.last_index,
    )


def draft_of_note(note: Resource, source: Source, people: KnownPeople) -> MomentDraft | None:
    """What is to be remembered of a text with a time; nothing, if it has no time or says nothing."""
    if note.timestamp is None:
        return None
    summary = summary_of([Utterance(note.content)])
    if not summary:
        return None
    return MomentDraft(
        name=f"{_day(note.timestamp)} {note.name[:_LONGEST_ABOUT].strip()}",
        moment_type="note",
        summary=summary,
        starts=note.timestamp,
        ends=note.timestamp,
        sources=[source],
        topics=topics_of([(f"{note.name}. {note.content}", 1.0)], people.names_in([note.content])),
        persons=people.mentioned_in([note.content]),
        emotions=emotions_of([note.content]),
        resource_ids=[note.id],
    )


def draft_of_file(
    name: str, read_at: datetime, file: Source, parts: list[tuple[Source, str]], people: KnownPeople
) -> MomentDraft | None:
    """That a file was read, and what its beginning says; of data and programs no more than what they call things."""
    texts = [text for _, text in parts]
    if is_data(name):
        keys = keys_of(name, texts)
        summary = f"Read {name}, which has {', '.join(keys)}." if keys else f"Read {name}."
        texts = [" ".join([_stem(name), *keys])]
    else:
        said = summary_of([Utterance(text) for text in texts])
        # A file of tables alone was read, too.
        summary = f"Read {name}: {said}" if said else f"Read {name}."
    if not "".join(texts).strip():
        return None
    return MomentDraft(
        name=f"{_day(read_at)} read {name[-_LONGEST_ABOUT:].strip()}",
        moment_type="reading",
        summary=summary,
        starts=read_at,
        ends=read_at,
        sources=[file, *(source for source, _ in parts)],
        topics=topics_of(((text, 1.0) for text in texts), people.names_in(texts)),
        persons=people.mentioned_in(texts),
        resource_ids=[source.ref.id for source, _ in parts],
    )


def draft_of_mail(
    name: str, written_at: datetime, file: Source, parts: list[tuple[Source, str]], people: KnownPeople
) -> MomentDraft | None:
    """What somebody wrote, when it was written; sender and recipients count among the people only."""
    texts = [text for _, text in parts]
    mail = mail_of(texts)
    subject = _shortened(" ".join(sentences_of(mail.subject))) or name
    said = summary_of([Utterance(text) for text in mail.body])
    if not said and not mail.subject:
        return None
    sources = [source for (source, _), text in zip(parts, mail.body, strict=True) if text] or [parts[0][0]]
    return MomentDraft(
        name=f"{_day(written_at)} mail {subject}",
        moment_type="mail",
        summary=f"Mail {subject}: {said}" if said else f"Mail {subject}.",
        starts=written_at,
        ends=written_at,
        sources=[file, *sources],
        topics=topics_of(((text, 1.0) for text in (mail.subject, *mail.body)), people.names_in(texts)),
        persons=people.mentioned_in(texts),
        resource_ids=[source.ref.id for source in sources],
    )


def name_of(at: datetime, topics: list[str], summary: str) -> str:
    """A readable name: the day, and what it was about."""
    about = " ".join(topics[:2]).replace("-", " ")
    if not about:
        words = sentences_of(summary)[0].rstrip(".!?…。！？").split()
        about = " ".join(words[:_WORDS_OF_NAME])
    return f"{_day(at)} {about[:_LONGEST_ABOUT].strip()}"


def _shortened(subject: str) -> str:
    return subject[:_LONGEST_ABOUT].strip()


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def _day(at: datetime) -> str:
    return at.astimezone(UTC).date().isoformat()


def _speaker(metadata: dict[str, Any]) -> str | None:
    named = speakers_of([metadata])
    return named[0] if named else None


def _united(speakers: list[str], mentioned: list[str]) -> list[str]:
    """Who spoke and who was named, each once: a name and its key are one person."""
    keys = {_as_key(name) for name in speakers}
    return [*speakers, *(key for key in mentioned if key not in keys)]


def _as_key(name: str) -> str:
    return "-".join(name.lower().split())
