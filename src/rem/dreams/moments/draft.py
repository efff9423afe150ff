"""MomentDraft: a moment before it is known whether it is a new one; made from an episode, a note, a file or a mail."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from rem.dreams.claims import ClaimSource, RowClaim
from rem.dreams.moments.episodes import Episode
from rem.dreams.moments.files import extract_keys, is_data_file, parse_mail
from rem.dreams.moments.people import KnownPeople, list_speakers
from rem.dreams.moments.summary import Utterance, extract_sentences, summarize
from rem.dreams.moments.tags import extract_emotions, extract_topics
from rem.dreams.text.masking import mask_front_matter
from rem.models import Moment, Resource

RULES_CONFIDENCE = 0.7
"""Confidence in a moment that was made without a model."""
MAX_TITLE_CHARS = 60
MAX_NAMED_TOPICS = 4
MIN_TITLE_WORDS, MAX_TITLE_WORDS = 3, 8
_LEAD = re.compile(
    r"^(?:(?:ok(?:ay)?|oh|well|so|and|but|also|anyway|actually|by the way|btw|hi|hey|hello|update|news)\b[,:!.]*\s+)+",
    re.IGNORECASE,
)
_LEADING_ON = frozenset(
    {
        *(
            "a",
            "an",
            "the",
            "of",
            "in",
            "on",
            "at",
            "to",
            "for",
            "with",
            "and",
            "or",
            "but",
            "by",
            "from",
            "as",
            "that",
        ),
        *("my", "our", "his", "her", "their", "is", "was", "are", "were", "has", "have"),
    }
)
"""Words after which a sentence goes on, so that a headline does not end with them."""
_CLAUSE_END = re.compile(r"(?<!\d),(?!\d)|[;:(]\s|\s[–—-]\s|[,;:]\s")


@dataclass(slots=True)
class MomentDraft:
    """Content and sources of a moment."""

    name: str
    moment_type: str
    summary: str
    starts_at: datetime
    ends_at: datetime
    sources: list[ClaimSource]
    topics: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)
    emotions: list[str] = field(default_factory=list)
    session_id: UUID | None = None
    resource_ids: list[UUID] = field(default_factory=list)
    first_index: int | None = None
    last_index: int | None = None
    confidence: float = RULES_CONFIDENCE
    occurrences: int = 1
    """Number of sessions and texts that tell it."""
    is_extract: bool = True
    """The summary consists of sentences of the sources. SEARCH over all tables then ranks only the sources."""
    worded_in: UUID | None = None
    """Session or text that the summary comes from, if a later one has joined the moment."""
    id: UUID = field(default_factory=uuid4)
    """Id of the row, unless the ledger finds an earlier one."""

    @property
    def source_ids(self) -> set[UUID]:
        """Ids of the sources."""
        return {source.ref.id for source in self.sources}

    @property
    def origin_id(self) -> UUID:
        """Id of the session or text that it was found in."""
        return self.session_id or self.sources[0].ref.id

    def to_claim(self) -> RowClaim:
        """Return the draft as a claim."""
        session: dict[str, Any] = {"source_session_id": self.session_id} if self.session_id else {}
        metadata: dict[str, Any] = {}
        if self.first_index is not None:
            metadata |= {"first_index": self.first_index, "last_index": self.last_index}
        if self.is_extract:
            metadata["is_extract"] = True
        if self.occurrences > 1:
            metadata["occurrences"] = self.occurrences
        if self.worded_in is not None:
            metadata["worded_in"] = str(self.worded_in)
        moment = Moment(
            id=self.id,
            name=self.name,
            moment_type=self.moment_type,
            starts_timestamp=self.starts_at,
            ends_timestamp=self.ends_at,
            present_persons=self.people,
            emotion_tags=self.emotions,
            topic_tags=self.topics,
            summary=self.summary,
            source_resource_ids=self.resource_ids,
            metadata=metadata,
            **session,
        )
        return RowClaim(
            entity=moment, sources=tuple(self.sources), confidence=self.confidence, valid_from=self.starts_at
        )


def draft_episode(episode: Episode, session_id: UUID, known_people: KnownPeople) -> MomentDraft | None:
    """Return the moment of an episode, or None if it is small talk."""
    if not episode.is_meaningful:
        return None
    messages = episode.messages
    speakers = list_speakers(message.metadata for message in messages)
    texts = [message.content for message in messages]
    summary = summarize([Utterance(message.content, _get_speaker(message.metadata)) for message in messages])
    if not summary:
        return None
    topics = extract_topics(texts, [*speakers, *known_people.find_names(texts)])
    is_named_by_topics = episode.is_mixed and len(topics) > 1
    name = (
        _name_topics(episode.starts_at, topics, texts) if is_named_by_topics else make_name(episode.starts_at, summary)
    )
    return MomentDraft(
        name=name,
        moment_type="conversation",
        summary=summary,
        starts_at=episode.starts_at,
        ends_at=episode.ends_at,
        sources=[message.source for message in messages],
        topics=topics,
        people=_unite_people(speakers, known_people.find_mentioned(texts)),
        emotions=extract_emotions(texts),
        session_id=session_id,
        first_index=episode.first_index,
        last_index=episode.last_index,
    )


def draft_note(note: Resource, source: ClaimSource, known_people: KnownPeople) -> MomentDraft | None:
    """Return the moment of a text with a time, or None if it has no time or no content."""
    if note.timestamp is None:
        return None
    content = mask_front_matter(note.content)
    summary = summarize([Utterance(content)])
    if not summary:
        return None
    return MomentDraft(
        name=_add_day(note.timestamp, note.name[:MAX_TITLE_CHARS].strip()),
        moment_type="note",
        summary=summary,
        starts_at=note.timestamp,
        ends_at=note.timestamp,
        sources=[source],
        topics=extract_topics([f"{note.name}. {content}"], known_people.find_names([content])),
        people=known_people.find_mentioned([content]),
        emotions=extract_emotions([content]),
        resource_ids=[note.id],
    )


def draft_file(
    name: str, read_at: datetime, file: ClaimSource, parts: list[tuple[ClaimSource, str]], known_people: KnownPeople
) -> MomentDraft | None:
    """Return the moment of a file that was ingested, or None if it has no text.

    `parts` are its first chunks. The summary of a data file or source code lists only its keys.
    """
    texts = [text for _, text in parts]
    # The first part is preceded by white space.
    texts[:1] = [mask_front_matter(text.lstrip()) for text in texts[:1]]
    if is_data_file(name):
        keys = extract_keys(name, texts)
        summary = f"Read {name}, which has {', '.join(keys)}." if keys else f"Read {name}."
        texts = [" ".join([_get_stem(name), *keys])]
    else:
        content = summarize([Utterance(text) for text in texts])
        # A file with nothing but tables has no summary.
        summary = f"Read {name}: {content}" if content else f"Read {name}."
    if not "".join(texts).strip():
        return None
    return MomentDraft(
        name=f"{_format_day(read_at)} read {name[-MAX_TITLE_CHARS:].strip()}",
        moment_type="reading",
        summary=summary,
        starts_at=read_at,
        ends_at=read_at,
        sources=[file, *(source for source, _ in parts)],
        topics=extract_topics(texts, known_people.find_names(texts)),
        people=known_people.find_mentioned(texts),
        resource_ids=[source.ref.id for source, _ in parts],
    )


def draft_mail(
    name: str,
    written_at: datetime,
    file: ClaimSource,
    parts: list[tuple[ClaimSource, str]],
    known_people: KnownPeople,
) -> MomentDraft | None:
    """Return the moment of an e-mail, or None if it has neither subject nor body.

    Summary and topics come from subject and body; sender and recipients count only as people.
    """
    texts = [text for _, text in parts]
    mail = parse_mail(texts)
    subject = " ".join(extract_sentences(mail.subject))[:MAX_TITLE_CHARS].strip() or name
    content = summarize([Utterance(text) for text in mail.body])
    if not content and not mail.subject:
        return None
    sources = [source for (source, _), text in zip(parts, mail.body, strict=True) if text] or [parts[0][0]]
    return MomentDraft(
        name=f"{_format_day(written_at)} mail {subject}",
        moment_type="mail",
        summary=f"Mail {subject}: {content}" if content else f"Mail {subject}.",
        starts_at=written_at,
        ends_at=written_at,
        sources=[file, *sources],
        topics=extract_topics([mail.subject, *mail.body], known_people.find_names(texts)),
        people=known_people.find_mentioned(texts),
        resource_ids=[source.ref.id for source in sources],
    )


def make_name(at: datetime, summary: str) -> str:
    """Return a name that a person could have written: the day in UTC, and the first words of the summary."""
    return f"{_format_day(at)} {make_headline(extract_sentences(summary)[0])}"


def _name_topics(at: datetime, topics: list[str], texts: list[str]) -> str:
    """Return the name of a moment about several things: the day and the topics, in the order of the texts."""
    text = "\n".join(texts)
    matches = (re.search(rf"(?<!\w){re.escape(topic)}", text, re.IGNORECASE) for topic in topics[:MAX_NAMED_TOPICS])
    *named, last = [match[0] for match in sorted(filter(None, matches), key=lambda match: match.start())] or topics
    title = f"{', '.join(named)} and {last}" if named else last
    return f"{_format_day(at)} {title[:1].upper()}{title[1:]}"


def make_headline(sentence: str) -> str:
    """Return the first words of a sentence: its first clause, without words that only lead on or lead up to it."""
    text = _LEAD.sub("", sentence).rstrip(".!?…。！？ ") or sentence
    clause = _CLAUSE_END.split(text, maxsplit=1)[0]
    words = (clause if len(clause.split()) >= MIN_TITLE_WORDS else text).split()
    kept = words[:MAX_TITLE_WORDS]
    while len(kept) > MIN_TITLE_WORDS and len(words) > len(kept) and kept[-1].lower() in _LEADING_ON:
        kept.pop()
    title = " ".join(kept)
    if len(title) > MAX_TITLE_CHARS:
        title = title[:MAX_TITLE_CHARS].rpartition(" ")[0] or title[:MAX_TITLE_CHARS]
    title = title.strip(" ,;:-–—")
    return title[:1].upper() + title[1:]


def _get_stem(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def _format_day(at: datetime) -> str:
    return at.astimezone(UTC).date().isoformat()


def _add_day(at: datetime, name: str) -> str:
    """Return a name after its day. The name of a remembered statement already begins with it."""
    day = _format_day(at)
    return name if name.startswith(day) else f"{day} {name}"


def _get_speaker(metadata: dict[str, Any]) -> str | None:
    speakers = list_speakers([metadata])
    return speakers[0] if speakers else None


def _unite_people(speakers: list[str], mentioned_keys: list[str]) -> list[str]:
    """Return speakers and mentioned people, each once: a name and its key are one person."""
    speaker_keys = {"-".join(name.lower().split()) for name in speakers}
    return [*speakers, *(key for key in mentioned_keys if key not in speaker_keys)]
