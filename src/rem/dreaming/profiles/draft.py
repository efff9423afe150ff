"""ProfileDraft: what a profile would say, by counting or by a language model, and from what."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from rem.dreaming.claims import ClaimSource
from rem.dreaming.extraction_model import fence_text
from rem.dreaming.profiles.facts import CountedName, ProfileFacts, deduplicate_sources
from rem.dreaming.profiles.sensitive import is_sensitive, remove_sensitive_sentences

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun

PROFILE_PREFIX = "metadata.profile."
"""What the parts of a profile that have no column are called after."""
_ABOUT, _PEOPLE, _PROJECTS = PROFILE_PREFIX + "about", PROFILE_PREFIX + "people", PROFILE_PREFIX + "current_projects"
_PREFERENCES = PROFILE_PREFIX + "preferences"
_AGENT = "profile-builder"
COUNTED_CONFIDENCE = 0.6
MAX_PROMPT_MOMENTS = 60
MAX_MOMENT_SUMMARY_CHARS = 400
MAX_TOPICS = 20
MAX_PREFERENCES_IN_SUMMARY = 3
MAX_SELF_STATEMENTS_IN_SUMMARY = 6
MAX_PROFILE_SUMMARY_CHARS = 2000
MAX_ENTRY_CHARS = 200
MIN_WORD_CHARS = 3
_WORD = re.compile(r"[^\W_]+")
_PREFERS = re.compile(r"\b(?:prefer|bevorzuge)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FieldDraft:
    """What a field would say."""

    value: Any
    sources: tuple[ClaimSource, ...]
    at: datetime
    confidence: float = COUNTED_CONFIDENCE


@dataclass(frozen=True, slots=True)
class CurrentProfile:
    """The profile as it is, for who goes on from there."""

    values: dict[str, Any]
    sources: tuple[ClaimSource, ...]


@dataclass(frozen=True, slots=True)
class UserWrittenFields:
    """What the user wrote into the profile, also that something of it is empty."""

    values: Mapping[str, Any] = field(default_factory=dict)
    row: ClaimSource | None = None
    """Where it is written."""

    def merge_lists(self, counted: Mapping[str, Sequence[CountedName]]) -> dict[str, list[CountedName]]:
        """What the profile lists: what the user wrote in place of what was counted."""
        return {
            name: self._written_list(name) if name in self.values else list(found) for name, found in counted.items()
        }

    def _written_list(self, name: str) -> list[CountedName]:
        written = self.values[name]
        texts = [text for text in written if isinstance(text, str)] if isinstance(written, list) else []
        sources = (self.row,) if self.row else ()
        return [CountedName(text[:MAX_ENTRY_CHARS], 1, 1.0, frozenset(), sources) for text in texts if text.strip()]


def draft_from_counts(facts: ProfileFacts, own: UserWrittenFields) -> dict[str, FieldDraft]:
    """The fields of a profile that counting gives; those that nothing speaks for are left out.

    Only the summary tells what the user wrote: it is told of what the profile says by then.
    """
    at = facts.at
    if at is None:
        return {}
    counted = _lists_by_field(facts)
    drafts = {name: _draft_names(things, at) for name, things in counted.items()}
    about = drafts[_ABOUT]
    if about is not None:
        drafts[_ABOUT] = replace(about, sources=facts.told.sources)
    drafts["summary"] = _draft_summary(counted, own, at)
    topics = facts.topics[:MAX_TOPICS]
    if topics:
        drafts[PROFILE_PREFIX + "topics"] = FieldDraft(
            {topic.name: topic.count for topic in topics}, _collect_sources(topics), at
        )
    if facts.activity is not None:
        activity = facts.activity
        drafts[PROFILE_PREFIX + "activity"] = FieldDraft(
            activity.as_json(), activity.latest_sessions, activity.last_at, 1.0
        )
        drafts["activity_level"] = FieldDraft(activity.level, activity.latest_sessions, activity.last_at, 1.0)
        last_at = activity.last_at.isoformat()
        drafts["last_active_at"] = FieldDraft(last_at, (activity.last_session,), activity.last_at, 1.0)
    return {name: draft for name, draft in drafts.items() if draft is not None}


async def draft_with_model(
    night: DreamRun, facts: ProfileFacts, present: CurrentProfile, own: UserWrittenFields
) -> dict[str, FieldDraft]:
    """The same, with what a language model makes of it in place of the counts."""
    drafts = draft_from_counts(facts, own)
    at = facts.at
    if at is None or not (facts.moments or facts.wishes or facts.told.lines):
        return drafts
    material = _build_prompt_data(facts, present, own)
    answer = await night.ask_model(_AGENT, fence_text("what is known of the user", material))
    confidence = _parse_confidence(answer.get("confidence"))
    known = _normalize(material)
    counted = [source for thing in (*facts.projects, *facts.people) for source in thing.sources]
    shown = [moment.source for moment in facts.moments[:MAX_PROMPT_MOMENTS]]
    topics = [source for topic in facts.topics[:MAX_TOPICS] for source in topic.sources]
    sources = tuple(deduplicate_sources([*shown, *topics, *counted, *facts.message_sources, *present.sources]))
    for name in ("interests", "preferred_topics"):
        entries = _keep_grounded(answer.get(name), known, most=15 if name == "interests" else 10)
        if entries:
            drafts[name] = FieldDraft(entries, sources, at, confidence)
    summary = remove_sensitive_sentences(str(answer.get("summary") or ""))[:MAX_PROFILE_SUMMARY_CHARS].strip()
    if summary:
        drafts["summary"] = FieldDraft(summary, sources, at, confidence)
    preferences = _keep_grounded(answer.get("preferences"), known, most=20, share=0.6)
    if preferences:
        drafts[_PREFERENCES] = FieldDraft(preferences, sources, at, confidence)
    return drafts


def _lists_by_field(facts: ProfileFacts) -> dict[str, Sequence[CountedName]]:
    """What counting lists, by field."""
    return {
        "interests": facts.interests,
        "preferred_topics": facts.preferred_topics,
        _ABOUT: [_single_mention(line.text, line.source) for line in facts.told.lines],
        _PEOPLE: facts.known_people,
        _PROJECTS: facts.current_projects,
        PROFILE_PREFIX + "expertise": facts.expertise,
        _PREFERENCES: [_single_mention(wish.text, wish.source) for wish in facts.wishes],
    }


def _single_mention(text: str, source: ClaimSource) -> CountedName:
    return CountedName(text, 1, 1.0, frozenset(), (source,))


def _draft_summary(
    counted: Mapping[str, Sequence[CountedName]], own: UserWrittenFields, at: datetime
) -> FieldDraft | None:
    lists = own.merge_lists(counted)
    interests = lists["interests"][:5]
    # What the user struck off the interests is not to come back by another way.
    lately = _exclude(lists["preferred_topics"], [*interests, *_exclude(counted["interests"], lists["interests"])])
    about = lists[_ABOUT][:MAX_SELF_STATEMENTS_IN_SUMMARY]
    # What somebody prefers tells more than what should not be done this time.
    wishes = sorted(lists[_PREFERENCES], key=lambda wish: _PREFERS.search(wish.name) is None)[
        :MAX_PREFERENCES_IN_SUMMARY
    ]
    parts = [
        (_join_sentence(line.name for line in about), about),
        (f"Comes back to {_join_names(interests)}.", interests),
        (f"Works on {_join_names(lists[_PROJECTS][:3])}.", lists[_PROJECTS][:3]),
        (f"Lately it was about {_join_names(lately[:3])}.", lately[:3]),
        (f"Often speaks of {_join_names(lists[_PEOPLE][:3])}.", lists[_PEOPLE][:3]),
        ("Said: " + " ".join(f'"{wish.name}"' for wish in wishes), wishes),
    ]
    said = [(text, things) for text, things in parts if things]
    if not said:
        return None
    return FieldDraft(
        " ".join(text for text, _ in said), _collect_sources(thing for _, things in said for thing in things), at
    )


def _join_sentence(lines: Iterable[str]) -> str:
    line = ", ".join(lines)
    return f"{line[:1].upper()}{line[1:]}."


def _collect_sources(things: Iterable[CountedName]) -> tuple[ClaimSource, ...]:
    return tuple(deduplicate_sources(source for thing in things for source in thing.sources))


def _exclude(things: Iterable[CountedName], than: Iterable[CountedName]) -> list[CountedName]:
    names = {thing.name for thing in than}
    return [thing for thing in things if thing.name not in names]


def _join_names(things: Sequence[CountedName]) -> str:
    *names, last = [thing.name for thing in things] or [""]
    return f"{', '.join(names)} and {last}" if names else last


def _draft_names(things: Sequence[CountedName], at: datetime) -> FieldDraft | None:
    return FieldDraft([thing.name for thing in things], _collect_sources(things), at) if things else None


def _build_prompt_data(facts: ProfileFacts, present: CurrentProfile, own: UserWrittenFields) -> str:
    """What the agent is told, as JSON."""
    lists = {name: [thing.name for thing in things] for name, things in own.merge_lists(_lists_by_field(facts)).items()}
    told = {
        "present_profile": present.values,
        "topics_by_count": {topic.name: topic.count for topic in facts.topics[:MAX_TOPICS]},
        "projects": lists[_PROJECTS],
        "people": lists[_PEOPLE],
        "about_the_user": lists[_ABOUT],
        "said_by_the_user": lists[_PREFERENCES],
        "moments": [
            {
                "when": moment.starts_at.date().isoformat(),
                "summary": remove_sensitive_sentences(moment.summary)[:MAX_MOMENT_SUMMARY_CHARS],
                "topics": [topic for topic in moment.topics if not is_sensitive(topic)],
            }
            for moment in facts.moments[:MAX_PROMPT_MOMENTS]
        ],
    }
    return orjson.dumps({name: part for name, part in told.items() if part}, option=orjson.OPT_INDENT_2).decode()


def _normalize(material: str) -> str:
    return unicodedata.normalize("NFKC", material).casefold()


def _keep_grounded(entries: Any, known: str, *, most: int, share: float = 0.0) -> list[str]:
    """The entries that the material speaks of, each once: one of their words is in it, or a share of all of them."""
    if not isinstance(entries, list):
        return []
    kept: dict[str, str] = {}
    for entry in entries:
        text = " ".join(str(entry).split())
        if text and len(text) <= MAX_ENTRY_CHARS and not is_sensitive(text) and _is_grounded(text, known, share):
            kept.setdefault(_normalize(text), text)
    return list(kept.values())[:most]


def _is_grounded(text: str, known: str, share: float) -> bool:
    words = _WORD.findall(_normalize(text))
    # Short words are in every text; where all are short, they have to do.
    telling = [word for word in words if len(word) >= MIN_WORD_CHARS or not word.isascii()] or words
    found = sum(word in known for word in telling)
    return found > 0 and found >= share * len(telling)


def _parse_confidence(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(max(float(value), 0.0), 1.0) if is_number else COUNTED_CONFIDENCE
