"""Load the facts about a user that a profile is made from: activity, topics, people, preferences, self-statements.

Only the latest moments and the messages of some weeks are read, never the whole history.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.entities.tagged_names import tag_own_words
from rem.dreams.profiles.self_statements import SelfStatements, extract_self_statements
from rem.dreams.profiles.topics import (
    MAX_FIELD_SOURCES,
    CountedName,
    ProfileMoment,
    collect_aliases,
    count_mentions,
    count_people,
    count_topics,
    deduplicate_sources,
    fold_name,
    list_summaries_with,
)
from rem.dreams.text.secrets import is_sensitive, mask_secrets
from rem.dreams.text.statements import KINDS_WITHOUT_STATEMENTS, mask_other_kinds
from rem.rules import alternatives
from rem.text import find_sentence_spans

if TYPE_CHECKING:
    from rem.dreams.run import DreamRun

MAX_MOMENTS = 120
MAX_MESSAGES = 1000
WINDOW_DAYS = 90
MAX_OWN_MESSAGES = 1000
"""Recent messages that are read for preferences and self-statements. The sources of the profile are always read."""
MAX_OWN_MESSAGES_FIRST_RUN = 100_000
"""The same for a user without a profile, or with a profile that has lost sources."""
MAX_MENTIONED_ENTITIES = 200
MIN_INTEREST_DAYS = 3
"""A topic on so many days is an interest."""
MIN_EXPERTISE_WEEKS = 4
"""A topic in so many weeks is an expertise."""
RECENT_PERIOD = timedelta(days=14)
MAX_INTERESTS = 15
MAX_PREFERRED_TOPICS = 10
MAX_LISTED_NAMES = 10
MAX_PREFERENCES = 20
MAX_MESSAGE_CHARS = 1000
"""A longer message is probably pasted."""
MAX_PREFERENCE_MESSAGE_CHARS = 400
"""A longer message with an instruction is probably a pasted prompt."""
MAX_PREFERENCE_CHARS = 200
MAX_WEEKS_SHOWN = 8
LEVEL_WEEKS = 4
_MIN_WEEKLY_MESSAGES = ((50, "high"), (10, "moderate"), (0, "low"))
"""The activity level by the average number of messages per week."""
_ASSISTANT_VERB = rf"{alternatives('preferences.assistant_verbs')}\b"
_PREFERENCE = re.compile(
    r"(?:^|[,;:—-]\s*|\b(?:and|but)\s+)"
    rf"(?:i(?:'d| would)?\s+(?:\w+\s+)?prefer\b|(?:please\s+)?(?:always|never)\s+{_ASSISTANT_VERB}|"
    r"please\s+(?:always|never)\s+(?!mind\b|again\b)\w+|"
    rf"(?:please\s+)?(?:do not|don['’]?t)\s+(?:ever\s+)?{_ASSISTANT_VERB}|"
    rf"from now on,?\s+(?:please\s+)?(?:always\s+|never\s+)?{_ASSISTANT_VERB}|"
    rf"ich\s+bevorzuge\b|(?:bitte\s+)?{alternatives('preferences.imperatives')}\s+(?:mir\s+)?"
    r"(?:bitte\s+)?(?:immer|nie|niemals)\b|bitte\s+(?:immer|nie|niemals)\s+\w+)",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\bdo(?:n['’]?t| not)\s+(?:be|let|tell|worry|mind|say|do|ask)\b[^.!]{0,10}[.!]?\Z", re.IGNORECASE)
"""A phrase such as "don't worry" or "do not ask!", which is no preference."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The number of a user's own messages by week.

    Weeks are counted back from the last message, so the values do not change while a user is away. The level is the
    average of the last four weeks: high from 50 messages per week, moderate from 10, otherwise low.
    """

    weeks: dict[date, int]
    """Messages by week, newest first. A week begins on Monday."""
    level: str
    last_at: datetime
    sessions: tuple[ClaimSource, ...]
    """The sessions with these messages, newest first."""

    @property
    def last_session(self) -> ClaimSource:
        """Return the session with the last message."""
        return self.sessions[0]

    @property
    def latest_sessions(self) -> tuple[ClaimSource, ...]:
        """Return the latest sessions, as sources for all of them."""
        return self.sessions[:MAX_FIELD_SOURCES]

    def as_json(self) -> dict[str, int]:
        """Return the latest weeks with messages, by the dates of their Mondays."""
        return {week.isoformat(): count for week, count in list(self.weeks.items())[:MAX_WEEKS_SHOWN]}


@dataclass(frozen=True, slots=True)
class Preference:
    """A user's wish about how the assistant works, in the user's own words."""

    text: str
    at: datetime
    source: ClaimSource


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """Everything that is known about a user."""

    moments: tuple[ProfileMoment, ...]
    """Newest first."""
    activity: Activity | None
    topics: tuple[CountedName, ...]
    people: tuple[CountedName, ...]
    projects: tuple[CountedName, ...]
    preferences: tuple[Preference, ...]
    """Newest first."""
    self_statements: SelfStatements

    @property
    def at(self) -> datetime | None:
        """Return the time of the latest moment or message."""
        times = [moment.ends_at for moment in self.moments[:1]] + ([self.activity.last_at] if self.activity else [])
        return max(times, default=None)

    @property
    def interests(self) -> list[CountedName]:
        """Return the topics of several days, the weightiest first."""
        return [topic for topic in self.topics if len(topic.days) >= MIN_INTEREST_DAYS][:MAX_INTERESTS]

    @property
    def preferred_topics(self) -> list[CountedName]:
        """Return the topics that occurred more than once, and recently, those of most days first."""
        at = self.at
        if at is None:
            return []
        since = (at - RECENT_PERIOD).date()
        by_days = [(sum(day >= since for day in topic.days), topic) for topic in self.topics]
        recent = [(days, topic) for days, topic in by_days if days >= 1 and topic.count > 1]
        recent.sort(key=lambda item: (-item[0], -item[1].weight, item[1].name))
        return [topic for _, topic in recent[:MAX_PREFERRED_TOPICS]]

    @property
    def expertise(self) -> list[CountedName]:
        """Return the topics of several weeks."""
        return [
            topic for topic in self.topics if len({day.isocalendar()[:2] for day in topic.days}) >= MIN_EXPERTISE_WEEKS
        ][:MAX_LISTED_NAMES]

    @property
    def current_projects(self) -> list[CountedName]:
        """Return the projects that are mentioned, the most frequent first."""
        return list(self.projects[:MAX_LISTED_NAMES])

    @property
    def known_people(self) -> list[CountedName]:
        """Return the people that are mentioned, the most frequent first."""
        return list(self.people[:MAX_LISTED_NAMES])

    @property
    def sources(self) -> list[ClaimSource]:
        """Return the sources of all facts."""
        counted = [source for name in (*self.people, *self.projects) for source in name.sources]
        sessions = self.activity.sessions if self.activity else ()
        moments = (moment.source for moment in self.moments)
        return deduplicate_sources([*moments, *sessions, *counted, *self.message_sources])

    @property
    def message_sources(self) -> list[ClaimSource]:
        """Return the messages with self-statements and preferences."""
        return [*self.self_statements.sources, *(preference.source for preference in self.preferences)]


@dataclass(frozen=True, slots=True)
class EarlierSources:
    """The messages that the present profile is based on. Their statements are valid until they are changed."""

    about: frozenset[UUID]
    """Messages with self-statements, and messages that ended one."""
    preferences: frozenset[UUID]
    is_complete: bool
    """False if some of the messages were deleted."""


async def _count_topics(moments: Sequence[ProfileMoment], names: Sequence[str]) -> list[CountedName]:
    """Count the topics of moments. People whom the summaries name are no topics, even if they have no row."""
    topics = count_topics(moments, names)
    words = frozenset(word for topic in topics for word in topic.name.lower().split("-"))
    tagged = await tag_own_words(list_summaries_with(moments, words))
    people = [person.text for found in tagged for person in found]
    return count_topics(moments, [*names, *people]) if people else topics


async def load_facts(run: DreamRun, earlier: EarlierSources, own_names: Iterable[str] = ()) -> ProfileFacts:
    """Load the facts from the latest moments, messages and mentions, and from the sources of the present profile.

    `own_names` are names of the owner. They are no topics, like the names of other people.
    """
    moments = tuple(
        _build_moment(row) for row in await run.fetch_owned("dreams/profiles/profiles", "moments", MAX_MOMENTS)
    )
    weeks = await run.fetch_owned("dreams/profiles/profiles", "messages_by_week", MAX_MESSAGES, WINDOW_DAYS)
    activity = summarize_activity(weeks)
    max_messages = MAX_OWN_MESSAGES if earlier.is_complete else MAX_OWN_MESSAGES_FIRST_RUN
    earlier_ids = list(earlier.about | earlier.preferences)
    messages = await run.fetch_owned(
        "dreams/profiles/profiles", "own_messages", max_messages, MAX_MESSAGE_CHARS, earlier_ids
    )
    sessions = activity.sessions if activity else ()
    sources = {source.ref.id: source for source in (*sessions, *(moment.source for moment in moments))}
    mentions = await run.fetch_owned("dreams/profiles/profiles", "mentions", list(sources), MAX_MENTIONED_ENTITIES)
    people = count_people(moments, mentions, sources)
    organizations = count_mentions(mentions, "organization", sources)
    # In a thread, because a first run reads many messages.
    preferences, self_statements = await asyncio.to_thread(_extract_from_messages, messages, earlier)
    own = [*own_names, self_statements.name or ""]
    names = [*(entity.name for entity in (*people, *organizations)), *own, *collect_aliases(mentions)]
    return ProfileFacts(
        moments,
        activity,
        tuple(await _count_topics(moments, names)),
        tuple(people),
        tuple(count_mentions(mentions, "project", sources)),
        preferences,
        self_statements,
    )


def summarize_activity(rows: Sequence[Any]) -> Activity | None:
    """Return the activity in rows of the query `messages_by_week`; None without rows."""
    if not rows:
        return None
    weeks: Counter[date] = Counter()
    for row in rows:
        weeks[row["week"]] += row["messages"]
    first_week = max(weeks) - timedelta(weeks=LEVEL_WEEKS)
    weekly_messages = sum(count for week, count in weeks.items() if week > first_week) / LEVEL_WEEKS
    level = next(name for minimum, name in _MIN_WEEKLY_MESSAGES if weekly_messages >= minimum)
    sessions = {row["id"]: ClaimSource(RowRef("sessions", row["id"]), row["key"]) for row in rows}
    last_at = max(row["last_at"] for row in rows)
    return Activity(dict(sorted(weeks.items(), reverse=True)), level, last_at, tuple(sessions.values()))


def _build_moment(row: Any) -> ProfileMoment:
    return ProfileMoment(
        ClaimSource(RowRef("moments", row["id"]), row["key"]),
        row["starts_at"],
        row["ends_at"],
        tuple(row["topic_tags"]),
        tuple(row["present_persons"]),
        row["summary"],
    )


def _extract_from_messages(
    messages: Sequence[Any], earlier: EarlierSources
) -> tuple[tuple[Preference, ...], SelfStatements]:
    """Extract preferences and self-statements from the user's messages, which are oldest first."""
    messages = [row for row in messages if row["kind"] not in KINDS_WITHOUT_STATEMENTS]
    about = [row for row in _select_messages(messages, earlier.about) if row["is_owners"]]
    preferences = _find_preferences(_select_messages(messages[::-1], earlier.preferences))
    statements = extract_self_statements((row["content"], row["created_at"], _message_source(row)) for row in about)
    return tuple(preferences), statements


def _select_messages(messages: Iterable[Any], earlier: Collection[UUID]) -> list[Any]:
    """Return the latest messages, and the earlier sources of one part of the profile.

    Sources of another part are left out, because the message that ended their statement may not be among them.
    """
    return [message for message in messages if message["is_latest"] or message["id"] in earlier]


def _message_source(row: Any) -> ClaimSource:
    return ClaimSource(RowRef(row["table"], row["id"]), row["key"])


def _find_preferences(rows: Sequence[Any]) -> list[Preference]:
    """Return the preferences in messages, newest first, each once."""
    preferences: dict[str, Preference] = {}
    for row in rows:
        if len(row["content"]) > MAX_PREFERENCE_MESSAGE_CHARS:
            continue
        content = mask_other_kinds(mask_secrets(row["content"]))
        for start, end in find_sentence_spans(content):
            text = " ".join(content[start:end].split())
            if _is_preference(text):
                preference = Preference(text, row["created_at"], _message_source(row))
                preferences.setdefault(fold_name(text), preference)
    return list(preferences.values())[:MAX_PREFERENCES]


def _is_preference(text: str) -> bool:
    return (
        len(text) <= MAX_PREFERENCE_CHARS
        and _PREFERENCE.search(text) is not None
        and not _ASIDE.search(text)
        and not is_sensitive(text)
    )
