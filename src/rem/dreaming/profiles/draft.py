"""ProfileDraft: what a profile would say, by counting or by a language model, and from what."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from rem.dreaming.claim import Source
from rem.dreaming.material import marked
from rem.dreaming.profiles.facts import Counted, ProfileFacts, unique
from rem.dreaming.profiles.sensitive import is_sensitive, without_sensitive

if TYPE_CHECKING:
    from rem.dreaming.night import Night

PROFILE = "metadata.profile."
"""What the parts of a profile that have no column are called after."""
_ABOUT, _PEOPLE, _PROJECTS = PROFILE + "about", PROFILE + "people", PROFILE + "current_projects"
_PREFERENCES = PROFILE + "preferences"
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


@dataclass(frozen=True, slots=True)
class Own:
    """What the user wrote into the profile, also that something of it is empty."""

    values: Mapping[str, Any] = field(default_factory=dict)
    row: Source | None = None
    """Where it is written."""

    def lists(self, counted: Mapping[str, Sequence[Counted]]) -> dict[str, list[Counted]]:
        """What the profile lists: what the user wrote in place of what was counted."""
        return {name: self._list(name) if name in self.values else list(found) for name, found in counted.items()}

    def _list(self, name: str) -> list[Counted]:
        written = self.values[name]
        texts = [text for text in written if isinstance(text, str)] if isinstance(written, list) else []
        sources = (self.row,) if self.row else ()
        return [Counted(text[:_LONGEST_ENTRY], 1, 1.0, frozenset(), sources) for text in texts if text.strip()]


def by_counts(facts: ProfileFacts, own: Own) -> dict[str, Drafted]:
    """The fields of a profile that counting gives; those that nothing speaks for are left out.

    Only the summary tells what the user wrote: it is told of what the profile says by then.
    """
    at = facts.at
    if at is None:
        return {}
    counted = _counted(facts)
    drafts = {name: _names(things, at) for name, things in counted.items()}
    about = drafts[_ABOUT]
    if about is not None:
        drafts[_ABOUT] = replace(about, sources=facts.told.sources)
    drafts["summary"] = _summary(counted, own, at)
    topics = facts.topics[:_MOST_TOPICS]
    if topics:
        drafts[PROFILE + "topics"] = Drafted({topic.name: topic.count for topic in topics}, _sources(topics), at)
    if facts.activity is not None:
        activity = facts.activity
        drafts[PROFILE + "activity"] = Drafted(activity.as_json(), activity.witnesses, activity.last_at, 1.0)
        drafts["activity_level"] = Drafted(activity.level, activity.witnesses, activity.last_at, 1.0)
        last_at = activity.last_at.isoformat()
        drafts["last_active_at"] = Drafted(last_at, (activity.last_session,), activity.last_at, 1.0)
    return {name: draft for name, draft in drafts.items() if draft is not None}


async def by_mind(night: Night, facts: ProfileFacts, present: Present, own: Own) -> dict[str, Drafted]:
    """The same, with what a language model makes of it in place of the counts."""
    drafts = by_counts(facts, own)
    at = facts.at
    if at is None or not (facts.moments or facts.wishes or facts.told.lines):
        return drafts
    material = _material(facts, present, own)
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
    if preferences:
        drafts[_PREFERENCES] = Drafted(preferences, sources, at, confidence)
    return drafts


def _counted(facts: ProfileFacts) -> dict[str, Sequence[Counted]]:
    """What counting lists, by field."""
    return {
        "interests": facts.interests,
        "preferred_topics": facts.preferred_topics,
        _ABOUT: [_said(line.text, line.source) for line in facts.told.lines],
        _PEOPLE: facts.known_people,
        _PROJECTS: facts.current_projects,
        PROFILE + "expertise": facts.expertise,
        _PREFERENCES: [_said(wish.text, wish.source) for wish in facts.wishes],
    }


def _said(text: str, source: Source) -> Counted:
    return Counted(text, 1, 1.0, frozenset(), (source,))


def _summary(counted: Mapping[str, Sequence[Counted]], own: Own, at: datetime) -> Drafted | None:
    lists = own.lists(counted)
    interests = lists["interests"][:5]
    # What the user struck off the interests is not to come back by another way.
    lately = _others(lists["preferred_topics"], [*interests, *_others(counted["interests"], lists["interests"])])
    about = lists[_ABOUT][:_MOST_TOLD_SHOWN]
    # What somebody prefers tells more than what should not be done this time.
    wishes = sorted(lists[_PREFERENCES], key=lambda wish: _PREFERS.search(wish.name) is None)[:_MOST_WISHES_SHOWN]
    parts = [
        (_sentence(line.name for line in about), about),
        (f"Comes back to {_listed(interests)}.", interests),
        (f"Works on {_listed(lists[_PROJECTS][:3])}.", lists[_PROJECTS][:3]),
        (f"Lately it was about {_listed(lately[:3])}.", lately[:3]),
        (f"Often speaks of {_listed(lists[_PEOPLE][:3])}.", lists[_PEOPLE][:3]),
        ("Said: " + " ".join(f'"{wish.name}"' for wish in wishes), wishes),
    ]
    said = [(text, things) for text, things in parts if things]
    if not said:
        return None
    return Drafted(" ".join(text for text, _ in said), _sources(thing for _, things in said for thing in things), at)


def _sentence(lines: Iterable[str]) -> str:
    line = ", ".join(lines)
    return f"{line[:1].upper()}{line[1:]}."


def _sources(things: Iterable[Counted]) -> tuple[Source, ...]:
    return tuple(unique(source for thing in things for source in thing.sources))


def _others(things: Iterable[Counted], than: Iterable[Counted]) -> list[Counted]:
    names = {thing.name for thing in than}
    return [thing for thing in things if thing.name not in names]


def _listed(things: Sequence[Counted]) -> str:
    *names, last = [thing.name for thing in things] or [""]
    return f"{', '.join(names)} and {last}" if names else last


def _names(things: Sequence[Counted], at: datetime) -> Drafted | None:
    return Drafted([thing.name for thing in things], _sources(things), at) if things else None


def _material(facts: ProfileFacts, present: Present, own: Own) -> str:
    """What the agent is told, as JSON."""
    lists = {name: [thing.name for thing in things] for name, things in own.lists(_counted(facts)).items()}
    told = {
        "present_profile": present.values,
        "topics_by_count": {topic.name: topic.count for topic in facts.topics[:_MOST_TOPICS]},
        "projects": lists[_PROJECTS],
        "people": lists[_PEOPLE],
        "about_the_user": lists[_ABOUT],
        "said_by_the_user": lists[_PREFERENCES],
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
