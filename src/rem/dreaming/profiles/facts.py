"""ProfileFacts: what counting says of a user, each with where it was counted.

The latest moments and the messages of some weeks are looked at, never the whole history.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query
from rem.dreaming.claims import ClaimSource, RowRef
from rem.dreaming.entities.evidence import PERSON
from rem.dreaming.entities.extraction import extract_evidence
from rem.dreaming.entities.name_parsing import parse_name_after
from rem.dreaming.entities.name_usage import find_name_uses
from rem.dreaming.moments.tags import COMPANY_WORDS, HOST_NAME, VERB_WORDS
from rem.dreaming.profiles.self_statements import SelfStatements, extract_self_statements
from rem.dreaming.profiles.sensitive import is_sensitive
from rem.dreaming.profiles.topics import find_recurring_topics
from rem.dreaming.text.secrets import contains_secret, mask_secrets
from rem.text import find_sentence_spans

if TYPE_CHECKING:
    from rem.dreaming.run import DreamRun


MAX_WEEKS_SHOWN = 8
LEVEL_WEEKS = 4
MAX_FIELD_SOURCES = 5
"""So many of what speaks for something are told as its sources, the latest: they are reason enough to say it, and a
profile that told of all of them would be written anew with hundreds of sources each night."""
_LEVELS = ((50, "high"), (10, "moderate"), (0, "low"))


@dataclass(frozen=True, slots=True)
class Activity:
    """What somebody did lately."""

    weeks: dict[date, int]
    """Messages of each week, which begins on Monday; the newest first."""
    level: str
    last_at: datetime
    sessions: tuple[ClaimSource, ...]
    """The conversations it was in, the newest first."""

    @property
    def last_session(self) -> ClaimSource:
        """Where the last message is."""
        return self.sessions[0]

    @property
    def latest_sessions(self) -> tuple[ClaimSource, ...]:
        """The latest of them: so many speak for the rest."""
        return self.sessions[:MAX_FIELD_SOURCES]

    def as_json(self) -> dict[str, int]:
        """The latest weeks that had any, by their Mondays."""
        return {week.isoformat(): count for week, count in list(self.weeks.items())[:MAX_WEEKS_SHOWN]}


def summarize_activity(rows: Sequence[Any]) -> Activity | None:
    """The activity that the rows of `said_by_week` tell of; None without any."""
    if not rows:
        return None
    weeks: Counter[date] = Counter()
    for row in rows:
        weeks[row["week"]] += row["messages"]
    newest = max(weeks)
    latest = sum(count for week, count in weeks.items() if week > newest - timedelta(weeks=LEVEL_WEEKS))
    level = next(name for least, name in _LEVELS if latest / LEVEL_WEEKS >= least)
    sessions = {row["id"]: ClaimSource(RowRef("sessions", row["id"]), row["key"]) for row in rows}
    return Activity(
        dict(sorted(weeks.items(), reverse=True)), level, max(row["last_at"] for row in rows), tuple(sessions.values())
    )


MAX_MOMENTS = 120
MAX_MESSAGES = 1000
MAX_OWN_MESSAGES, MAX_OWN_MESSAGES_FIRST_RUN = 1000, 100_000
"""What the profile was made from is looked at again whenever it was said; who has no profile yet, or lost a part of it,
is listened to from the beginning."""
WINDOW_DAYS = 90
MAX_MENTIONED_ENTITIES = 200
MIN_INTEREST_DAYS = 3
"""A topic that came back on so many days is an interest."""
MIN_EXPERTISE_WEEKS = 4
"""One that came back in so many weeks is what somebody knows about."""
RECENT_PERIOD = timedelta(days=14)
HALF_LIFE_DAYS = 30.0
MAX_INTERESTS, MAX_PREFERRED_TOPICS, MAX_LISTED_NAMES, MAX_PREFERENCES = 15, 10, 10, 20
MAX_TAG_CHARS = 80
MAX_MESSAGE_CHARS, MAX_PREFERENCE_MESSAGE_CHARS = 1000, 400
"""What is longer was pasted rather than said; more so if it tells what to do."""
MAX_PREFERENCE_CHARS = 200
_NOBODY = frozenset({"user", "assistant", "ai", "me", "i", "you", "system"})
_SEPARATOR = re.compile(r"[\W_]+")
_DOING = (
    r"(?:answer|reply|respond|use|write|give|show|explain|format|call|address|include|add|send|ask|suggest|assume|put|"
    r"keep|start|begin|end|cite|quote|mention|tell|speak|talk|make|return|provide|remind|skip|avoid|translate|summari[sz]e|"
    r"shorten|round|delete|deploy|run|commit|push|schedule|book|change|touch|print|convert|sign|check|test|say|name|leave|"
    r"let|be|do|list|spell|repeat|apologi[sz]e|pad|guess|invent|share|store|remember|rely|link|prefer|greet|write)\b"
)
"""What an assistant can be asked to do, or not to do."""
_WISH = re.compile(
    r"(?:^|[,;:—-]\s*|\b(?:and|but)\s+)"
    rf"(?:i(?:'d| would)?\s+(?:\w+\s+)?prefer\b|(?:please\s+)?(?:always|never)\s+{_DOING}|"
    rf"please\s+(?:always|never)\s+(?!mind\b|again\b)\w+|(?:please\s+)?(?:do not|don['’]?t)\s+(?:ever\s+)?{_DOING}|"
    rf"from now on,?\s+(?:please\s+)?(?:always\s+|never\s+)?{_DOING}|"
    r"ich\s+bevorzuge\b|(?:bitte\s+)?(?:antworte|schreib|schreibe|verwende|nutze|nimm|sag|sage|erkläre)\s+(?:mir\s+)?"
    r"(?:bitte\s+)?(?:immer|nie|niemals)\b|bitte\s+(?:immer|nie|niemals)\s+\w+)",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(
    r"\bdo(?:n['’]?t| not)\s+(?:be|let|tell|worry|mind|say|do|ask)\b[^.!]{0,10}[.!]?\Z", re.IGNORECASE
)
"""Something said by the way ("don't worry", "do not ask!"), which is no wish."""
_ASKS = re.compile(r"\?\s*$")
_MY_NAME = re.compile(r"\b(?:my name is|call me|ich heiße|mein name ist) ", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProfileMoment:
    """What a profile needs of a moment."""

    source: ClaimSource
    starts_at: datetime
    ends_at: datetime
    topics: tuple[str, ...]
    persons: tuple[str, ...]
    summary: str

    @property
    def day(self) -> date:
        """When it was."""
        return self.starts_at.date()


@dataclass(frozen=True, slots=True)
class CountedName:
    """Something that came up, and where."""

    name: str
    count: int
    weight: float
    days: frozenset[date]
    sources: tuple[ClaimSource, ...]


@dataclass(frozen=True, slots=True)
class Preference:
    """How a user wants things done, in the user's own words."""

    text: str
    at: datetime
    source: ClaimSource


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What there is to say of a user."""

    moments: tuple[ProfileMoment, ...]
    """The newest first."""
    activity: Activity | None
    topics: tuple[CountedName, ...]
    people: tuple[CountedName, ...]
    projects: tuple[CountedName, ...]
    wishes: tuple[Preference, ...]
    """The newest first."""
    told: SelfStatements
    """What the user said of themself."""

    @property
    def at(self) -> datetime | None:
        """The last thing that happened."""
        times = [moment.ends_at for moment in self.moments[:1]] + ([self.activity.last_at] if self.activity else [])
        return max(times, default=None)

    @property
    def interests(self) -> list[CountedName]:
        """Topics that come back, those of late first."""
        return [topic for topic in self.topics if len(topic.days) >= MIN_INTEREST_DAYS][:MAX_INTERESTS]

    @property
    def preferred_topics(self) -> list[CountedName]:
        """What came up more than once lately, the most frequent first."""
        at = self.at
        if at is None:
            return []
        since = (at - RECENT_PERIOD).date()
        lately = [(sum(day >= since for day in topic.days), topic) for topic in self.topics]
        often = [(days, topic) for days, topic in lately if days >= 1 and topic.count > 1]
        often.sort(key=lambda found: (-found[0], -found[1].weight, found[1].name))
        return [topic for _, topic in often[:MAX_PREFERRED_TOPICS]]

    @property
    def expertise(self) -> list[CountedName]:
        """Topics that came back for weeks."""
        return [
            topic for topic in self.topics if len({day.isocalendar()[:2] for day in topic.days}) >= MIN_EXPERTISE_WEEKS
        ][:MAX_LISTED_NAMES]

    @property
    def current_projects(self) -> list[CountedName]:
        """The projects that are spoken of, the most frequent first."""
        return list(self.projects[:MAX_LISTED_NAMES])

    @property
    def known_people(self) -> list[CountedName]:
        """The people that come up, the most frequent first."""
        return list(self.people[:MAX_LISTED_NAMES])

    @property
    def sources(self) -> list[ClaimSource]:
        """All that was looked at."""
        counted = [source for thing in (*self.people, *self.projects) for source in thing.sources]
        sessions = self.activity.sessions if self.activity else ()
        return deduplicate_sources(
            [*(moment.source for moment in self.moments), *sessions, *counted, *self.message_sources]
        )

    @property
    def message_sources(self) -> list[ClaimSource]:
        """The messages in which the user said what they want and who they are."""
        return [*self.told.sources, *(wish.source for wish in self.wishes)]


@dataclass(frozen=True, slots=True)
class EarlierSources:
    """The messages that a profile was made from: what was said in them holds until something else is said."""

    about: frozenset[UUID]
    """Those in which the owner said who they are, and what of it has ended."""
    preferences: frozenset[UUID]
    is_whole: bool
    """Whether these are all that there were; otherwise the profile lost some."""


async def load_facts(night: DreamRun, earlier: EarlierSources, own_names: Iterable[str] = ()) -> ProfileFacts:
    """What the owner's latest moments, messages and mentions tell, and the messages that a profile told of before.

    What the owner is called is no topic, as little as the names of others.
    """
    owner = night.scope.tenant_id, night.scope.user_id

    async def rows(name: str, *parameters: Any) -> list[Any]:
        async with night.store.executor.connection() as connection:
            return list(await connection.fetch(query("dream_profiles", name), *owner, *parameters))

    moments = tuple(_build_moment(row) for row in await rows("moments", MAX_MOMENTS))
    activity = summarize_activity(await rows("said_by_week", MAX_MESSAGES, WINDOW_DAYS))
    most = MAX_OWN_MESSAGES if earlier.is_whole else MAX_OWN_MESSAGES_FIRST_RUN
    own_words = await rows("own_words", most, MAX_MESSAGE_CHARS, list(earlier.about | earlier.preferences))
    sessions = activity.sessions if activity else ()
    by_id = {source.ref.id: source for source in (*sessions, *(moment.source for moment in moments))}
    mentions = await rows("mentions", list(by_id), MAX_MENTIONED_ENTITIES)
    at = max((moment.ends_at for moment in moments), default=None)
    people = [
        person
        for person in _count_names(moments, lambda moment: moment.persons, at)
        if _fold_name(person.name) not in _NOBODY
    ]
    people = _merge_people(people, _count_mentions(mentions, "person", by_id))
    # A name is no topic, though moments that were dreamt before it was known may say so.
    named = [one.name for one in (*people, *_count_mentions(mentions, "organization", by_id))]
    names = _split_words([*named, *own_names, *_collect_aliases(mentions)]) | COMPANY_WORDS | VERB_WORDS
    subjects = dict(
        zip(moments, find_recurring_topics([(one.day, one.summary, one.topics) for one in moments]), strict=True)
    )
    topics = _drop_names(
        names, _count_names(moments, lambda moment: _add_recurring_topics(moment, subjects[moment]), at)
    )
    told_names = _split_words(_find_person_names(moments, _split_words(topic.name for topic in topics)))
    topics = _drop_names(names | told_names, topics) if told_names else topics
    return ProfileFacts(
        moments,
        activity,
        tuple(topics),
        tuple(people),
        tuple(_count_mentions(mentions, "project", by_id)),
        # A first night hears many of them, and others wait meanwhile.
        *await asyncio.to_thread(_extract_from_messages, own_words, earlier),
    )


def _extract_from_messages(
    own_words: Sequence[Any], earlier: EarlierSources
) -> tuple[tuple[Preference, ...], SelfStatements]:
    """What an owner wants, and who they are, by their own words."""
    about = [row for row in _select_messages(own_words, earlier.about) if row["is_owners"]]
    return (
        tuple(_find_preferences(_select_messages(own_words[::-1], earlier.preferences))),
        extract_self_statements((row["content"], row["created_at"], _message_source(row)) for row in about),
    )


def _select_messages(messages: Iterable[Any], earlier: Collection[UUID]) -> list[Any]:
    """The latest messages, and earlier ones. What is remembered for one part of the profile says nothing to another:
    who ended it may be forgotten there."""
    return [message for message in messages if message["is_latest"] or message["id"] in earlier]


def _drop_names(names: frozenset[str], topics: Iterable[CountedName]) -> list[CountedName]:
    """The topics that are no names, nor addresses, nor only what was done."""
    return [
        topic
        for topic in topics
        if not names.issuperset(_SEPARATOR.split(topic.name.lower())) and not HOST_NAME.fullmatch(topic.name)
    ]


def _split_words(names: Iterable[str]) -> frozenset[str]:
    return frozenset(word for name in names for word in _SEPARATOR.split(name.lower()) if word)


def _collect_aliases(mentions: Iterable[Any]) -> list[str]:
    """What else the people are called that are mentioned."""
    people = (row["extracted_data"] for row in mentions if _entity_kind(row) == "person")
    return [str(alias) for data in people for alias in data.get("aliases") or ()]


def _find_person_names(moments: Iterable[ProfileMoment], words: frozenset[str]) -> list[str]:
    """The names of people in what is told of moments, of whom there may be no row; also the user's own.

    Only where some words have a capital: what never has one is no name.
    """
    texts = [one.summary for one in moments if not words.isdisjoint(_capitalised_words(one.summary))]
    told = [
        one
        for text in texts
        for one in (*extract_evidence(text, 0), *find_name_uses(text, 0))
        if one.entity_type == PERSON
    ]
    own = [parse_name_after(text, found.end())[0] for text in texts for found in _MY_NAME.finditer(text)]
    return [" ".join(words) for words in (*(one.words for one in told), *own)]


def _capitalised_words(text: str) -> set[str]:
    return {word.lower() for word in _SEPARATOR.split(text) if word[:1].isupper()}


def _add_recurring_topics(moment: ProfileMoment, subjects: Iterable[str]) -> list[str]:
    """A moment's topics with what comes back in others, unless one of the topics says it."""
    said = _split_words(moment.topics)
    return [*moment.topics, *sorted(word for word in subjects if word not in said)]


def deduplicate_sources(sources: Iterable[ClaimSource]) -> list[ClaimSource]:
    """Each source once, in order."""
    return list({source.ref: source for source in sources}.values())


def _build_moment(row: Any) -> ProfileMoment:
    return ProfileMoment(
        ClaimSource(RowRef("moments", row["id"]), row["key"]),
        row["starts_at"],
        row["ends_at"],
        tuple(row["topic_tags"]),
        tuple(row["present_persons"]),
        row["summary"],
    )


def _count_names(
    moments: Sequence[ProfileMoment], names_of: Callable[[ProfileMoment], Iterable[str]], at: datetime | None
) -> list[CountedName]:
    """How often names come up, however they are spelled; those of late weigh more. The weightiest first."""
    names = [[name.strip() for name in names_of(moment)] for moment in moments]
    folded = {name: _fold_name(name) for name in set().union(*names) if _may_be_shown(name)}
    found: dict[str, list[tuple[str, ProfileMoment]]] = defaultdict(list)
    for moment, said in zip(moments, names, strict=True):
        for key, name in {folded[name]: name for name in said if name in folded}.items():
            found[key].append((name, moment))
    counted = [_build_counted(uses, at) for uses in found.values()]
    return sorted(counted, key=lambda one: (-one.weight, one.name))


def _may_be_shown(name: str) -> bool:
    return (
        bool(_fold_name(name)) and len(name) <= MAX_TAG_CHARS and not is_sensitive(name) and not contains_secret(name)
    )


def _build_counted(uses: Sequence[tuple[str, ProfileMoment]], at: datetime | None) -> CountedName:
    # As it is spelled most often; of those that are equally frequent, the first in the alphabet.
    spellings = Counter(name for name, _ in uses)
    name = min(spellings, key=lambda spelling: (-spellings[spelling], spelling))
    days = frozenset(moment.day for _, moment in uses)
    newest = at.date() if at else date.min
    weight = sum(0.5 ** ((newest - day).days / HALF_LIFE_DAYS) for day in sorted(days))
    # The moments come the newest first.
    return CountedName(
        name, len(uses), round(weight, 6), days, tuple(moment.source for _, moment in uses[:MAX_FIELD_SOURCES])
    )


def _fold_name(name: str) -> str:
    return " ".join(re.split(r"[\s_-]+", unicodedata.normalize("NFKC", name).casefold().strip()))


def _count_mentions(rows: Sequence[Any], kind: str, by_id: dict[UUID, ClaimSource]) -> list[CountedName]:
    found = []
    newest_first = {source_id: place for place, source_id in enumerate(by_id)}
    for row in rows:
        if _entity_kind(row) == kind and not is_sensitive(row["name"]) and len(row["name"]) <= MAX_TAG_CHARS:
            count = len(row["mentioned_by"])
            latest = sorted(row["mentioned_by"], key=newest_first.__getitem__)[:MAX_FIELD_SOURCES]
            sources = (
                *(by_id[source_id] for source_id in latest),
                ClaimSource(RowRef("ontologies", row["id"]), row["key"]),
            )
            found.append(CountedName(row["name"], count, float(count), frozenset(), sources))
    return found


def _entity_kind(row: Any) -> str | None:
    """What an entity is, as whoever stored it says."""
    data = row["extracted_data"]
    said = [data.get(name) for name in ("entity_type", "type", "kind")] + list(row["tags"])
    return next((word for word in said if word in ("person", "project", "organization")), None)


def _merge_people(present: Iterable[CountedName], mentioned: Iterable[CountedName]) -> list[CountedName]:
    """The same people from moments and from mentions, once each."""
    people = {_fold_name(person.name): person for person in mentioned}
    for person in present:
        known = people.get(_fold_name(person.name))
        if known is None:
            people[_fold_name(person.name)] = person
        else:
            sources = tuple(deduplicate_sources((*known.sources, *person.sources)))
            count = max(known.count, person.count)
            people[_fold_name(person.name)] = CountedName(known.name, count, known.weight, person.days, sources)
    return sorted(people.values(), key=lambda person: (-person.count, person.name))


def _message_source(row: Any) -> ClaimSource:
    return ClaimSource(RowRef("messages", row["id"]), row["key"])


def _is_preference(text: str) -> bool:
    return (
        len(text) <= MAX_PREFERENCE_CHARS
        and _WISH.search(text) is not None
        and not _ASKS.search(text)
        and not _OTHERWISE.search(text)
        and not is_sensitive(text)
    )


def _find_preferences(rows: Sequence[Any]) -> list[Preference]:
    """What was said of how things should be done, the newest first; of what was said twice, the newest."""
    found: dict[str, Preference] = {}
    for row in rows:
        if len(row["content"]) > MAX_PREFERENCE_MESSAGE_CHARS:
            continue
        said = mask_secrets(row["content"])
        for start, end in find_sentence_spans(said):
            text = " ".join(said[start:end].split())
            if _is_preference(text):
                wish = Preference(text, row["created_at"], _message_source(row))
                found.setdefault(_fold_name(text), wish)
    return list(found.values())[:MAX_PREFERENCES]
