"""Moment extraction: what a language model makes of a stretch of conversation, as far as the stretch bears it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.dreaming.moments.draft import MomentDraft, name_of
from rem.dreaming.moments.episodes import Episode
from rem.dreaming.moments.people import speakers_of
from rem.dreaming.moments.topics import MOST_TOPICS, as_tag, topics_of
from rem.dreaming.secrets import tells_secret, without_secrets
from rem.embeddings import is_blank
from rem.models.values import label_with_key

if TYPE_CHECKING:
    from rem.dreaming.night import Night, Said

_AGENT = "moment-extractor"
_LONGEST_ENTRY = 2000
_LONGEST_SUMMARY = 1500
_LONGEST_NAME = 120
_MOST_EMOTIONS = 5
_CONFIDENCE = 0.9


async def extracted_drafts(night: Night, episodes: Sequence[Episode], session_id: UUID) -> list[MomentDraft]:
    """The moments that the model finds. Keys that it was not given are dropped, and times are those of the entries."""
    said = [message for episode in episodes for message in episode.said]
    answer = await night.think(_AGENT, _as_text(said))
    left = {message.key: message for message in said}
    drafts = (_draft(found, left, session_id) for found in answer.get("moments") or [])
    return sorted((draft for draft in drafts if draft is not None), key=lambda draft: draft.first_index or 0)


def _as_text(said: Sequence[Said]) -> str:
    """The entries as lines of JSON, so that nothing inside of one can look like the end of it."""
    lines = [
        orjson.dumps(
            {
                "key": message.key,
                "time": message.at.isoformat(),
                "who": (speakers_of([message.metadata]) or [message.role])[0],
                "text": _shortened(without_secrets(message.content)),
            }
        ).decode()
        for message in said
    ]
    return "\n".join(("The entries, one in a line:", "<entries>", *lines, "</entries>"))


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_ENTRY:
        return text
    half = _LONGEST_ENTRY // 2
    return f"{text[:half]} … {text[-half:]}"


def _draft(found: dict[str, Any], left: dict[str, Said], session_id: UUID) -> MomentDraft | None:
    """One moment of an answer; None if nothing of the stretch bears it out. Its entries are not left for another."""
    said = sorted(
        (left.pop(key) for key in dict.fromkeys(found.get("source_keys") or []) if key in left),
        key=lambda message: message.index,
    )
    summary = without_secrets(_clean(found.get("summary")))[:_LONGEST_SUMMARY].strip()
    if not said or is_blank(summary):
        return None
    episode = Episode(tuple(said))
    topics = _tags(found.get("topic_tags"), MOST_TOPICS) or topics_of((m.content, 1.0) for m in said if m.is_persons)
    return MomentDraft(
        name=_label(found.get("name")) or name_of(episode.starts, topics, summary),
        moment_type=as_tag(_clean(found.get("moment_type"))) or "conversation",
        summary=summary,
        starts=episode.starts,
        ends=episode.ends,
        sources=[message.source for message in said],
        topics=topics,
        persons=_persons(found.get("present_persons"), said),
        emotions=_tags(found.get("emotion_tags"), _MOST_EMOTIONS),
        session_id=session_id,
        first_index=episode.first_index,
        last_index=episode.last_index,
        confidence=_CONFIDENCE,
    )


def _persons(named: Any, said: Sequence[Said]) -> list[str]:
    """The speakers, and whom the model names, if people do so in the entries, too."""
    speakers = speakers_of(message.metadata for message in said)
    text = "\n".join(message.content for message in said if message.is_persons).lower()
    known = {speaker.lower() for speaker in speakers}
    others = (name for name in map(_clean, named or []) if name.lower() in text and name.lower() not in known)
    return [*speakers, *speakers_of([{"speaker": name} for name in others])]


def _tags(named: Any, most: int) -> list[str]:
    tags = (as_tag(_clean(name)) for name in named or [])
    return list(dict.fromkeys(tag for tag in tags if tag and not tells_secret(tag)))[:most]


def _label(name: Any) -> str | None:
    """A name that can be a key."""
    label = " ".join(without_secrets(_clean(name)).split())[:_LONGEST_NAME].strip()
    try:
        label_with_key(label)
    except ValueError:
        return None
    return label


def _clean(text: Any) -> str:
    """Text that can be stored."""
    return str(text or "").replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
