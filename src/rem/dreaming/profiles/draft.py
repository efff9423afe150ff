"""ProfileDraft: what a profile would say, by counting or by a language model, and from what."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from rem.dreaming.claim import Source
from rem.dreaming.material import marked
from rem.dreaming.profiles.facts import Counted, ProfileFacts, unique
from rem.dreaming.profiles.sensitive import is_sensitive, without_sensitive

if TYPE_CHECKING:
    from rem.dreaming.night import Night

_AGENT = "profile-builder"
_BY_COUNTS = 0.6
_MOST_MOMENTS = 60
_LONGEST_SUMMARY = 400
_MOST_TOPICS = 20
_MOST_WISHES_SHOWN = 3
_MOST_TOLD_SHOWN = 6
_LONGEST_PROFILE_SUMMARY = 2000
_LONGEST_ENTRY = 200
_SHORTEST_WORD = 3
_WORD = re.compile(r"[^\W_]+")
_PREFERS = re.compile(r"\b(?:prefer|bevorzuge)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Drafted:
    """What a field would say."""

    value: Any
    sources: tuple[Source, ...]
    at: datetime
    confidence: float = _BY_COUNTS


@dataclass(frozen=True, slots=True)
class Present:
    """The profile as it is, for who goes on from there."""

    values: dict[str, Any]
    sources: tuple[Source, ...]


def by_counts(facts: ProfileFacts) -> dict[str, Drafted]:
    """The fields of a profile that counting gives; those that nothing speaks for are left out."""
    at = facts.at
    if at is None:
        return {}
    drafts = {
        "summary": _summary(facts, at),
        "interests": _names(facts.interests, at),
        "preferred_topics": _names(facts.preferred_topics, at),
        "metadata.profile": _details(facts, at, [wish.text for wish in facts.wishes]),
    }
    if facts.activity is not None:
        activity = facts.activity
        drafts["activity_level"] = Drafted(activity.level, activity.witnesses, activity.last_at, 1.0)
        last_at = activity.last_at.isoformat()
        drafts["last_active_at"] = Drafted(last_at, (activity.last_session,), activity.last_at, 1.0)
    return {name: draft for name, draft in drafts.items() if draft is not None}


async def by_mind(night: Night, facts: ProfileFacts, present: Present) -> dict[str, Drafted]:
    """The same, with what a language model makes of it in place of the counts."""
    drafts = by_counts(facts)
    at = facts.at
    if at is None or not (facts.moments or facts.wishes or facts.told):
        return drafts
    material = _material(facts, present)
    answer = await night.think(_AGENT, marked("what is known of the user", material))
    confidence = _share(answer.get("confidence"))
    known = _known(material)
    counted = [source for thing in (*facts.projects, *facts.people) for source in thing.sources]
    shown = [moment.source for moment in facts.moments[:_MOST_MOMENTS]]
    topics = [source for topic in facts.topics[:_MOST_TOPICS] for source in topic.sources]
    sources = tuple(unique([*shown, *topics, *counted, *facts.said_in, *present.sources]))
    for name in ("interests", "preferred_topics"):
        entries = _grounded(answer.get(name), known, most=15 if name == "interests" else 10)
        if entries:
            drafts[name] = Drafted(entries, sources, at, confidence)
    summary = without_sensitive(str(answer.get("summary") or ""))[:_LONGEST_PROFILE_SUMMARY].strip()
    if summary:
        drafts["summary"] = Drafted(summary, sources, at, confidence)
    preferences = _grounded(answer.get("preferences"), known, most=20, share=0.6)
    details = _details(facts, at, preferences or [wish.text for wish in facts.wishes])
    if details is not None:
        drafts["metadata.profile"] = Drafted(
            details.value, tuple(unique([*details.sources, *sources])), at, min(details.confidence, confidence)
        )
    return drafts


def _summary(facts: ProfileFacts, at: datetime) -> Drafted | None:
    parts: list[tuple[str, Sequence[Counted]]] = [
        ("Comes back to {}.", facts.interests[:5]),
        ("Works on {}.", facts.current_projects[:3]),
        ("Lately it was about {}.", _others(facts.preferred_topics, facts.interests[:5])[:3]),
        ("Often speaks of {}.", facts.known_people[:3]),
    ]
    said = [(text, things) for text, things in parts if things]
    about = facts.told[:_MOST_TOLD_SHOWN]
    sentences = [f"{line[0].upper()}{line[1:]}." for line in (", ".join(one.text for one in about),) if line]
    sentences += [text.format(_listed([thing.name for thing in things])) for text, things in said]
    # What somebody prefers tells more than what should not be done this time.
    shown = sorted(facts.wishes, key=lambda wish: _PREFERS.search(wish.text) is None)[:_MOST_WISHES_SHOWN]
    if shown:
        sentences.append("Said: " + " ".join(f'"{wish.text}"' for wish in shown))
    if not sentences:
        return None
    sources = [source for _, things in said for thing in things for source in thing.sources]
    sources += [*(one.source for one in about), *(wish.source for wish in shown)]
    return Drafted(" ".join(sentences), tuple(unique(sources)), at)


def _others(things: Iterable[Counted], than: Iterable[Counted]) -> list[Counted]:
    names = {thing.name for thing in than}
    return [thing for thing in things if thing.name not in names]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _names(things: Sequence[Counted], at: datetime) -> Drafted | None:
    if not things:
        return None
    sources = tuple(unique(source for thing in things for source in thing.sources))
    return Drafted([thing.name for thing in things], sources, at)


def _details(facts: ProfileFacts, at: datetime, preferences: Sequence[str]) -> Drafted | None:
    topics = facts.topics[:_MOST_TOPICS]
    lists = {
        "current_projects": facts.current_projects,
        "expertise": facts.expertise,
        "people": facts.known_people,
    }
    value: dict[str, Any] = {name: [thing.name for thing in things] for name, things in lists.items()}
    value["about"] = [one.text for one in facts.told]
    value["topics"] = {topic.name: topic.count for topic in topics}
    value["activity"] = facts.activity.as_json() if facts.activity else {}
    value["preferences"] = list(preferences)
    value = {name: content for name, content in value.items() if content}
    if not value:
        return None
    sources = [source for things in (*lists.values(), topics) for thing in things for source in thing.sources]
    sources += [*facts.said_in, *(facts.activity.witnesses if facts.activity else ())]
    return Drafted(value, tuple(unique(sources)), at)


def _material(facts: ProfileFacts, present: Present) -> str:
    """What the agent is told, as JSON."""
    told = {
        "present_profile": present.values,
        "topics_by_count": {topic.name: topic.count for topic in facts.topics[:_MOST_TOPICS]},
        "projects": [project.name for project in facts.current_projects],
        "people": [person.name for person in facts.known_people],
        "about_the_user": [one.text for one in facts.told],
        "said_by_the_user": [wish.text for wish in facts.wishes],
        "moments": [
            {
                "when": moment.starts_at.date().isoformat(),
                "summary": without_sensitive(moment.summary)[:_LONGEST_SUMMARY],
                "topics": [topic for topic in moment.topics if not is_sensitive(topic)],
            }
            for moment in facts.moments[:_MOST_MOMENTS]
        ],
    }
    return orjson.dumps({name: part for name, part in told.items() if part}, option=orjson.OPT_INDENT_2).decode()


def _known(material: str) -> str:
    return unicodedata.normalize("NFKC", material).casefold()


def _grounded(entries: Any, known: str, *, most: int, share: float = 0.0) -> list[str]:
    """The entries that the material speaks of, each once: one of their words is in it, or a share of all of them."""
    if not isinstance(entries, list):
        return []
    kept: dict[str, str] = {}
    for entry in entries:
        text = " ".join(str(entry).split())
        if text and len(text) <= _LONGEST_ENTRY and not is_sensitive(text) and _is_known(text, known, share):
            kept.setdefault(_known(text), text)
    return list(kept.values())[:most]


def _is_known(text: str, known: str, share: float) -> bool:
    words = _WORD.findall(_known(text))
    # Short words are in every text; where all are short, they have to do.
    telling = [word for word in words if len(word) >= _SHORTEST_WORD or not word.isascii()] or words
    found = sum(word in known for word in telling)
    return found > 0 and found >= share * len(telling)


def _share(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(max(float(value), 0.0), 1.0) if is_number else _BY_COUNTS
