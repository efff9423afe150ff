"""Draft the fields of a profile from counted facts, or with a language model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from rem.dreams.claims import ClaimSource
from rem.dreams.extraction_model import fence_text
from rem.dreams.profiles.facts import ProfileFacts
from rem.dreams.profiles.topics import CountedName, deduplicate_sources
from rem.dreams.text.secrets import is_sensitive, remove_sensitive_sentences

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun

PROFILE_PREFIX = "metadata.profile."
"""The prefix of profile fields that have no column of their own."""
_ABOUT, _PEOPLE, _PROJECTS = PROFILE_PREFIX + "about", PROFILE_PREFIX + "people", PROFILE_PREFIX + "current_projects"
_PREFERENCES = PROFILE_PREFIX + "preferences"
PROFILE_AGENT = "profile-builder"
COUNTED_CONFIDENCE = 0.6
"""The confidence of fields without a model, or if the model gives none."""
MAX_PROMPT_MOMENTS = 60
MAX_MOMENT_SUMMARY_CHARS = 400
MAX_TOPICS = 20
MAX_PREFERENCES_IN_SUMMARY = 3
MAX_SELF_STATEMENTS_IN_SUMMARY = 6
MAX_PROFILE_SUMMARY_CHARS = 2000
MAX_ENTRY_CHARS = 200
MIN_WORD_CHARS = 3
MAX_MODEL_INTERESTS, MAX_MODEL_TOPICS, MAX_MODEL_PREFERENCES = 15, 10, 20
MIN_PREFERENCE_SHARE = 0.6
"""The share of a preference's words that must be in the prompt data."""
_WORD = re.compile(r"[^\W_]+")
_PREFERENCE_VERB = re.compile(r"\b(?:prefer|bevorzuge)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FieldDraft:
    """A value for a field, with its sources."""

    value: Any
    sources: tuple[ClaimSource, ...]
    at: datetime
    confidence: float = COUNTED_CONFIDENCE


@dataclass(frozen=True, slots=True)
class CurrentProfile:
    """The profile as it is stored now."""

    values: dict[str, Any]
    sources: tuple[ClaimSource, ...]


@dataclass(frozen=True, slots=True)
class UserWrittenFields:
    """The profile fields that the user wrote or emptied. Dreams do not change them."""

    values: Mapping[str, Any] = field(default_factory=dict)
    row: ClaimSource | None = None
    """The user's row as a source."""

    def merge_lists(self, counted: Mapping[str, Sequence[CountedName]]) -> dict[str, list[CountedName]]:
        """Return the lists by field, with the user's own list in place of the counted one."""
        return {
            name: self._written_list(name) if name in self.values else list(names) for name, names in counted.items()
        }

    def _written_list(self, name: str) -> list[CountedName]:
        written = self.values[name]
        texts = [text for text in written if isinstance(text, str)] if isinstance(written, list) else []
        sources = (self.row,) if self.row else ()
        return [CountedName(text[:MAX_ENTRY_CHARS], 1, 1.0, frozenset(), sources) for text in texts if text.strip()]


def draft_from_counts(facts: ProfileFacts, own: UserWrittenFields) -> dict[str, FieldDraft]:
    """Return the drafts of all fields that the counted facts fill.

    The summary also uses the fields that the user wrote, because it describes the whole profile.
    """
    at = facts.at
    if at is None:
        return {}
    counted = _lists_by_field(facts)
    drafts = {name: _draft_names(names, at) for name, names in counted.items()}
    about = drafts[_ABOUT]
    if about is not None:
        drafts[_ABOUT] = replace(about, sources=facts.self_statements.sources)
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
    run: DreamRun, facts: ProfileFacts, current: CurrentProfile, own: UserWrittenFields
) -> dict[str, FieldDraft]:
    """Return the drafts, with interests, topics, summary and preferences from a language model."""
    drafts = draft_from_counts(facts, own)
    at = facts.at
    if at is None or not (facts.moments or facts.preferences or facts.self_statements.lines):
        return drafts
    prompt_data = _build_prompt_data(facts, current, own)
    answer = await run.ask_model(PROFILE_AGENT, fence_text("what is known of the user", prompt_data))
    confidence = _parse_confidence(answer.get("confidence"))
    known = _normalize(prompt_data)
    moments = [moment.source for moment in facts.moments[:MAX_PROMPT_MOMENTS]]
    topics = _collect_sources(facts.topics[:MAX_TOPICS])
    names = _collect_sources((*facts.projects, *facts.people))
    sources = tuple(deduplicate_sources([*moments, *topics, *names, *facts.message_sources, *current.sources]))
    for name, max_entries in (("interests", MAX_MODEL_INTERESTS), ("preferred_topics", MAX_MODEL_TOPICS)):
        entries = _keep_grounded(answer.get(name), known, max_entries)
        if entries:
            drafts[name] = FieldDraft(entries, sources, at, confidence)
    summary = remove_sensitive_sentences(str(answer.get("summary") or ""))[:MAX_PROFILE_SUMMARY_CHARS].strip()
    if summary:
        drafts["summary"] = FieldDraft(summary, sources, at, confidence)
    preferences = _keep_grounded(answer.get("preferences"), known, MAX_MODEL_PREFERENCES, MIN_PREFERENCE_SHARE)
    if preferences:
        drafts[_PREFERENCES] = FieldDraft(preferences, sources, at, confidence)
    return drafts


def _lists_by_field(facts: ProfileFacts) -> dict[str, Sequence[CountedName]]:
    """Return the counted names by field."""
    return {
        "interests": facts.interests,
        "preferred_topics": facts.preferred_topics,
        _ABOUT: [_single_mention(line.text, line.source) for line in facts.self_statements.lines],
        _PEOPLE: facts.known_people,
        _PROJECTS: facts.current_projects,
        PROFILE_PREFIX + "expertise": facts.expertise,
        _PREFERENCES: [_single_mention(preference.text, preference.source) for preference in facts.preferences],
    }


def _single_mention(text: str, source: ClaimSource) -> CountedName:
    return CountedName(text, 1, 1.0, frozenset(), (source,))


def _draft_summary(
    counted: Mapping[str, Sequence[CountedName]], own: UserWrittenFields, at: datetime
) -> FieldDraft | None:
    lists = own.merge_lists(counted)
    interests = lists["interests"][:5]
    # An interest that the user removed does not come back as a recent topic.
    recent = _exclude(lists["preferred_topics"], [*interests, *_exclude(counted["interests"], lists["interests"])])
    about = lists[_ABOUT][:MAX_SELF_STATEMENTS_IN_SUMMARY]
    # "I prefer …" first, because it says more about a user than a single instruction.
    preferences = sorted(lists[_PREFERENCES], key=lambda preference: _PREFERENCE_VERB.search(preference.name) is None)
    preferences = preferences[:MAX_PREFERENCES_IN_SUMMARY]
    parts = [
        (_join_sentence(line.name for line in about), about),
        (f"Comes back to {_join_names(interests)}.", interests),
        # Somebody who speaks of a project does not always work on it.
        (f"Mentions {_join_names(lists[_PROJECTS][:3])}.", lists[_PROJECTS][:3]),
        (f"Lately it was about {_join_names(recent[:3])}.", recent[:3]),
        (f"Often speaks of {_join_names(lists[_PEOPLE][:3])}.", lists[_PEOPLE][:3]),
        ("Said: " + " ".join(f'"{preference.name}"' for preference in preferences), preferences),
    ]
    sentences = [(text, names) for text, names in parts if names]
    if not sentences:
        return None
    sources = _collect_sources(name for _, names in sentences for name in names)
    return FieldDraft(" ".join(text for text, _ in sentences), sources, at)


def _join_sentence(lines: Iterable[str]) -> str:
    line = ", ".join(lines)
    return f"{line[:1].upper()}{line[1:]}."


def _collect_sources(names: Iterable[CountedName]) -> tuple[ClaimSource, ...]:
    return tuple(deduplicate_sources(source for name in names for source in name.sources))


def _exclude(names: Iterable[CountedName], excluded: Iterable[CountedName]) -> list[CountedName]:
    excluded_names = {name.name for name in excluded}
    return [name for name in names if name.name not in excluded_names]


def _join_names(names: Sequence[CountedName]) -> str:
    *first, last = [name.name for name in names] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _draft_names(names: Sequence[CountedName], at: datetime) -> FieldDraft | None:
    return FieldDraft([name.name for name in names], _collect_sources(names), at) if names else None


def _build_prompt_data(facts: ProfileFacts, current: CurrentProfile, own: UserWrittenFields) -> str:
    """Return the facts for the agent as JSON."""
    merged = own.merge_lists(_lists_by_field(facts))
    lists = {field_name: [name.name for name in names] for field_name, names in merged.items()}
    data = {
        "present_profile": current.values,
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
    return orjson.dumps({name: part for name, part in data.items() if part}, option=orjson.OPT_INDENT_2).decode()


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _keep_grounded(entries: Any, known: str, max_entries: int, min_share: float = 0.0) -> list[str]:
    """Return the entries of a model that are grounded in the prompt data, each once.

    An entry is grounded if at least one of its words, and the share `min_share` of them, is in `known`.
    """
    if not isinstance(entries, list):
        return []
    kept: dict[str, str] = {}
    for entry in entries:
        text = " ".join(str(entry).split())
        if text and len(text) <= MAX_ENTRY_CHARS and not is_sensitive(text) and _is_grounded(text, known, min_share):
            kept.setdefault(_normalize(text), text)
    return list(kept.values())[:max_entries]


def _is_grounded(text: str, known: str, min_share: float) -> bool:
    words = _WORD.findall(_normalize(text))
    # Short words are in every text. They count only if there are no longer ones.
    significant = [word for word in words if len(word) >= MIN_WORD_CHARS or not word.isascii()] or words
    known_count = sum(word in known for word in significant)
    return known_count > 0 and known_count >= min_share * len(significant)


def _parse_confidence(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(max(float(value), 0.0), 1.0) if is_number else COUNTED_CONFIDENCE
