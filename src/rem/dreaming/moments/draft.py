"""MomentDraft: a moment before it is decided whether it is a new one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from rem.dreaming.claims import ClaimSource, RowClaim
from rem.dreaming.moments.episodes import Episode
from rem.dreaming.moments.files import extract_keys, is_data_file, parse_mail
from rem.dreaming.moments.people import KnownPeople, list_speakers
from rem.dreaming.moments.summary import Utterance, extract_sentences, summarize
from rem.dreaming.moments.tags import extract_emotions, extract_topics
from rem.models import Moment, Resource

_BASELINE_CONFIDENCE = 0.7
MAX_TITLE_CHARS = 60
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
    sources: list[ClaimSource]
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

    def to_claim(self) -> RowClaim:
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


def draft_episode(episode: Episode, session_id: UUID, people: KnownPeople) -> MomentDraft | None:
    """What is to be remembered of an episode; nothing, if it was small talk."""
    if not episode.is_meaningful:
        return None
    speakers = list_speakers(message.metadata for message in episode.said)
    summary = summarize(
        [Utterance(message.content, _speaker(message.metadata), not message.is_persons) for message in episode.said]
    )
    if not summary:
        return None
    topics = extract_topics(
        ((m.content, 1.0 if m.is_persons else _ASSISTANT_SHARE) for m in episode.said),
        [*speakers, *people.find_names(m.content for m in episode.said)],
    )
    own_words = [m.content for m in episode.said if m.is_persons]
    return MomentDraft(
        name=make_name(episode.starts, topics, summary),
        moment_type="conversation",
        summary=summary,
        starts=episode.starts,
        ends=episode.ends,
        sources=[message.source for message in episode.said],
        topics=topics,
        persons=_unite_people(speakers, people.find_mentioned(own_words)),
        emotions=extract_emotions(own_words),
        session_id=session_id,
        first_index=episode.first_index,
        last_index=episode.last_index,
    )


def draft_note(note: Resource, source: ClaimSource, people: KnownPeople) -> MomentDraft | None:
    """What is to be remembered of a text with a time; nothing, if it has no time or says nothing."""
    if note.timestamp is None:
        return None
    summary = summarize([Utterance(note.content)])
    if not summary:
        return None
    return MomentDraft(
        name=f"{_day(note.timestamp)} {note.name[:MAX_TITLE_CHARS].strip()}",
        moment_type="note",
        summary=summary,
        starts=note.timestamp,
        ends=note.timestamp,
        sources=[source],
        topics=extract_topics([(f"{note.name}. {note.content}", 1.0)], people.find_names([note.content])),
        persons=people.find_mentioned([note.content]),
        emotions=extract_emotions([note.content]),
        resource_ids=[note.id],
    )


def draft_file(
    name: str, read_at: datetime, file: ClaimSource, parts: list[tuple[ClaimSource, str]], people: KnownPeople
) -> MomentDraft | None:
    """That a file was read, and what its beginning says; of data and programs no more than what they call things."""
    texts = [text for _, text in parts]
    if is_data_file(name):
        keys = extract_keys(name, texts)
        summary = f"Read {name}, which has {', '.join(keys)}." if keys else f"Read {name}."
        texts = [" ".join([_stem(name), *keys])]
    else:
        said = summarize([Utterance(text) for text in texts])
        # A file of tables alone was read, too.
        summary = f"Read {name}: {said}" if said else f"Read {name}."
    if not "".join(texts).strip():
        return None
    return MomentDraft(
        name=f"{_day(read_at)} read {name[-MAX_TITLE_CHARS:].strip()}",
        moment_type="reading",
        summary=summary,
        starts=read_at,
        ends=read_at,
        sources=[file, *(source for source, _ in parts)],
        topics=extract_topics(((text, 1.0) for text in texts), people.find_names(texts)),
        persons=people.find_mentioned(texts),
        resource_ids=[source.ref.id for source, _ in parts],
    )


def draft_mail(
    name: str, written_at: datetime, file: ClaimSource, parts: list[tuple[ClaimSource, str]], people: KnownPeople
) -> MomentDraft | None:
    """What somebody wrote, when it was written; sender and recipients count among the people only."""
    texts = [text for _, text in parts]
    mail = parse_mail(texts)
    subject = _shorten(" ".join(extract_sentences(mail.subject))) or name
    said = summarize([Utterance(text) for text in mail.body])
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
        topics=extract_topics(((text, 1.0) for text in (mail.subject, *mail.body)), people.find_names(texts)),
        persons=people.find_mentioned(texts),
        resource_ids=[source.ref.id for source in sources],
    )


def make_name(at: datetime, topics: list[str], summary: str) -> str:
    """A readable name: the day, and what it was about."""
    about = " ".join(topics[:2]).replace("-", " ")
    if not about:
        words = extract_sentences(summary)[0].rstrip(".!?…。！？").split()
        about = " ".join(words[:_WORDS_OF_NAME])
    return f"{_day(at)} {about[:MAX_TITLE_CHARS].strip()}"


def _shorten(subject: str) -> str:
    return subject[:MAX_TITLE_CHARS].strip()


def _stem(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def _day(at: datetime) -> str:
    return at.astimezone(UTC).date().isoformat()


def _speaker(metadata: dict[str, Any]) -> str | None:
    named = list_speakers([metadata])
    return named[0] if named else None


def _unite_people(speakers: list[str], mentioned: list[str]) -> list[str]:
    """Who spoke and who was named, each once: a name and its key are one person."""
    keys = {_as_key(name) for name in speakers}
    return [*speakers, *(key for key in mentioned if key not in keys)]


def _as_key(name: str) -> str:
    return "-".join(name.lower().split())
