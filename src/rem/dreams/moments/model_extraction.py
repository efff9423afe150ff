"""Model extraction: lets a language model find the moments in messages, and drops what the messages do not support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from rem.dreams.moments.draft import MomentDraft, make_name
from rem.dreams.moments.episodes import Episode
from rem.dreams.moments.people import list_speakers
from rem.dreams.moments.tags import MAX_TOPICS, extract_topics, to_tag
from rem.dreams.text.secrets import contains_secret, mask_secrets
from rem.models.field_types import check_label
from rem.search.embedding_validation import is_blank
from rem.text import clean_text, collapse_spaces

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun, SourceMessage

AGENT = "moment-extractor"
MAX_MESSAGE_CHARS = 2000
MAX_SUMMARY_CHARS = 1500
MAX_NAME_CHARS = 120
MAX_EMOTIONS = 5
MODEL_CONFIDENCE = 0.9


async def extract_moments(run: DreamRun, episodes: Sequence[Episode], session_id: UUID) -> list[MomentDraft]:
    """Return the moments that the model finds in episodes of a session, in the order of their messages.

    Keys that the model was not given are dropped. The times are those of the messages.
    """
    messages = [message for episode in episodes for message in episode.messages]
    answer = await run.ask_model(AGENT, _format_messages(messages))
    unused = {message.key: message for message in messages}
    drafts = (_to_draft(moment, unused, session_id) for moment in answer.get("moments") or [])
    return sorted((draft for draft in drafts if draft is not None), key=lambda draft: draft.first_index or 0)


def _format_messages(messages: Sequence[SourceMessage]) -> str:
    """Return the messages as lines of JSON: no text inside can look like the end of a message."""
    lines = [
        orjson.dumps(
            {
                "key": message.key,
                "time": message.created_at.isoformat(),
                "who": (list_speakers([message.metadata]) or ["user"])[0],
                "text": _shorten(mask_secrets(message.content).strip()),
            }
        ).decode()
        for message in messages
    ]
    return "\n".join(("The entries, one in a line:", "<entries>", *lines, "</entries>"))


def _shorten(text: str) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    half = MAX_MESSAGE_CHARS // 2
    return f"{text[:half]} … {text[-half:]}"


def _to_draft(answer: dict[str, Any], unused: dict[str, SourceMessage], session_id: UUID) -> MomentDraft | None:
    """Return one moment of the model's answer, or None if no message supports it.

    Its messages are removed from `unused`, so that no other moment has them as well.
    """
    messages = sorted(
        (unused.pop(key) for key in dict.fromkeys(answer.get("source_keys") or []) if key in unused),
        key=lambda message: message.index,
    )
    summary = mask_secrets(_clean(answer.get("summary")))[:MAX_SUMMARY_CHARS].strip()
    if not messages or is_blank(summary):
        return None
    episode = Episode(tuple(messages))
    topics = _to_tags(answer.get("topic_tags"), MAX_TOPICS) or extract_topics(message.content for message in messages)
    return MomentDraft(
        name=_to_name(answer.get("name")) or make_name(episode.starts_at, summary),
        moment_type=to_tag(_clean(answer.get("moment_type"))) or "conversation",
        summary=summary,
        starts_at=episode.starts_at,
        ends_at=episode.ends_at,
        sources=[message.source for message in messages],
        topics=topics,
        people=_select_people(answer.get("present_persons"), messages),
        emotions=_to_tags(answer.get("emotion_tags"), MAX_EMOTIONS),
        session_id=session_id,
        first_index=episode.first_index,
        last_index=episode.last_index,
        confidence=MODEL_CONFIDENCE,
        is_extract=False,
    )


def _select_people(names: Any, messages: Sequence[SourceMessage]) -> list[str]:
    """Return the speakers, and those of the model's names that a person writes in the messages."""
    speakers = list_speakers(message.metadata for message in messages)
    text = "\n".join(message.content for message in messages).lower()
    known = {speaker.lower() for speaker in speakers}
    others = (name for name in map(_clean, names or []) if name.lower() in text and name.lower() not in known)
    return [*speakers, *list_speakers([{"speaker": name} for name in others])]


def _to_tags(labels: Any, limit: int) -> list[str]:
    tags = (to_tag(_clean(label)) for label in labels or [])
    return list(dict.fromkeys(tag for tag in tags if tag and not contains_secret(tag)))[:limit]


def _to_name(label: Any) -> str | None:
    """Return a label as the name of a row, or None if it cannot be one."""
    name = collapse_spaces(mask_secrets(_clean(label)))[:MAX_NAME_CHARS].strip()
    try:
        check_label(name)
    except ValueError:
        return None
    return name


def _clean(text: Any) -> str:
    return clean_text(str(text or ""), " ")
