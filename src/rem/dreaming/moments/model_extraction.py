"""Moment extraction: what a language model makes of a stretch of conversation, as far as the stretch bears it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.dreaming.moments.draft import MomentDraft, make_name
from rem.dreaming.moments.episodes import Episode
from rem.dreaming.moments.people import list_speakers
from rem.dreaming.moments.tags import MAX_TOPICS, extract_topics, to_tag
from rem.dreaming.text.secrets import contains_secret, mask_secrets
from rem.embeddings import is_blank
from rem.models.field_types import check_label

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun, SourceMessage

_AGENT = "moment-extractor"
MAX_MESSAGE_CHARS = 2000
MAX_SUMMARY_CHARS = 1500
MAX_NAME_CHARS = 120
MAX_EMOTIONS = 5
_CONFIDENCE = 0.9


async def extract_moments(night: DreamRun, episodes: Sequence[Episode], session_id: UUID) -> list[MomentDraft]:
    """The moments that the model finds. Keys that it was not given are dropped, and times are those of the entries."""
    said = [message for episode in episodes for message in episode.said]
    answer = await night.ask_model(_AGENT, _format_messages(said))
    left = {message.key: message for message in said}
    drafts = (_draft(found, left, session_id) for found in answer.get("moments") or [])
    return sorted((draft for draft in drafts if draft is not None), key=lambda draft: draft.first_index or 0)


def _format_messages(said: Sequence[SourceMessage]) -> str:
    """The entries as lines of JSON, so that nothing inside of one can look like the end of it."""
    lines = [
        orjson.dumps(
            {
                "key": message.key,
                "time": message.at.isoformat(),
                "who": (list_speakers([message.metadata]) or [message.role])[0],
                "text": _shorten(mask_secrets(message.content)),
            }
        ).decode()
        for message in said
    ]
    return "\n".join(("The entries, one in a line:", "<entries>", *lines, "</entries>"))


def _shorten(text: str) -> str:
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    half = MAX_MESSAGE_CHARS // 2
    return f"{text[:half]} … {text[-half:]}"


def _draft(found: dict[str, Any], left: dict[str, SourceMessage], session_id: UUID) -> MomentDraft | None:
    """One moment of an answer; None if nothing of the stretch bears it out. Its entries are not left for another."""
    said = sorted(
        (left.pop(key) for key in dict.fromkeys(found.get("source_keys") or []) if key in left),
        key=lambda message: message.index,
    )
    summary = mask_secrets(_clean(found.get("summary")))[:MAX_SUMMARY_CHARS].strip()
    if not said or is_blank(summary):
        return None
    episode = Episode(tuple(said))
    topics = _tags(found.get("topic_tags"), MAX_TOPICS) or extract_topics(
        (m.content, 1.0) for m in said if m.is_persons
    )
    return MomentDraft(
        name=_label(found.get("name")) or make_name(episode.starts, topics, summary),
        moment_type=to_tag(_clean(found.get("moment_type"))) or "conversation",
        summary=summary,
        starts=episode.starts,
        ends=episode.ends,
        sources=[message.source for message in said],
        topics=topics,
        persons=_persons(found.get("present_persons"), said),
        emotions=_tags(found.get("emotion_tags"), MAX_EMOTIONS),
        session_id=session_id,
        first_index=episode.first_index,
        last_index=episode.last_index,
        confidence=_CONFIDENCE,
    )


def _persons(named: Any, said: Sequence[SourceMessage]) -> list[str]:
    """The speakers, and whom the model names, if people do so in the entries, too."""
    speakers = list_speakers(message.metadata for message in said)
    text = "\n".join(message.content for message in said if message.is_persons).lower()
    known = {speaker.lower() for speaker in speakers}
    others = (name for name in map(_clean, named or []) if name.lower() in text and name.lower() not in known)
    return [*speakers, *list_speakers([{"speaker": name} for name in others])]


def _tags(named: Any, most: int) -> list[str]:
    tags = (to_tag(_clean(name)) for name in named or [])
    return list(dict.fromkeys(tag for tag in tags if tag and not contains_secret(tag)))[:most]


def _label(name: Any) -> str | None:
    """A name that can be a key."""
    label = " ".join(mask_secrets(_clean(name)).split())[:MAX_NAME_CHARS].strip()
    try:
        check_label(label)
    except ValueError:
        return None
    return label


def _clean(text: Any) -> str:
    """Text that can be stored."""
    return str(text or "").replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
