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
from rem.dreaming.claim import Ref, Source
from rem.dreaming.entities.evidence import PERSON
from rem.dreaming.entities.mentions import evidence_in
from rem.dreaming.entities.name_words import words_after
from rem.dreaming.entities.uses import uses
from rem.dreaming.moments.topics import COMPANY_WORDS, DOMAIN, VERB_WORDS
from rem.dreaming.profiles.activity import WITNESSES, Activity, activity_of
from rem.dreaming.profiles.self_told import SelfTold, told
from rem.dreaming.profiles.sensitive import is_sensitive
from rem.dreaming.profiles.subjects import recurring
from rem.dreaming.secrets import tells_secret, without_secrets
from rem.dreaming.sentences import sentence_spans

if TYPE_CHECKING:
    from rem.dreaming.night import Night

_MOST_MOMENTS = 120
_MOST_MESSAGES = 1000
_MOST_OWN_WORDS, _MOST_AT_FIRST = 1000, 100_000
"""What the profile was made from is looked at again whenever it was said; who has no profile yet, or lost a part of it,
is listened to from the beginning."""
_WINDOW_DAYS = 90
_MOST_MENTIONED = 200
_DAYS_OF_INTEREST = 3
"""A topic that came back on so many days is an interest."""
_WEEKS_OF_EXPERTISE = 4
"""One that came back in so many weeks is what somebody knows about."""
_LATELY = timedelta(days=14)
_HALF_LIFE_DAYS = 30.0
_MOST_INTERESTS, _MOST_TOPICS, _MOST_SHOWN, _MOST_WISHES = 15, 10, 10, 20
_LONGEST_TAG = 80
_LONGEST_MESSAGE, _LONGEST_WISHFUL_MESSAGE = 1000, 400
"""What is longer was pasted rather than said; more so if it tells what to do."""
_LONGEST_WISH = 200
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
class Moment:
    """What a profile needs of a moment."""

    source: Source
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
class Counted:
    """Something that came up, and where."""

    name: str
    count: int
    weight: float
    days: frozenset[date]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """How a user wants things done, in the user's own words."""

    text: str
    at: datetime
    source: Source


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What there is to say of a user."""

    moments: tuple[Moment, ...]
    """The newest first."""
    activity: Activity | None
    topics: tuple[Counted, ...]
    people: tuple[Counted, ...]
    projects: tuple[Counted, ...]
    wishes: tuple[Wish, ...]
    """The newest first."""
    told: SelfTold
    """What the user said of themself."""

    @property
    def at(self) -> datetime | None:
        """The last thing that happened."""
        times = [moment.ends_at for moment in self.moments[:1]] + ([self.activity.last_at] if self.activity else [])
        return max(times, default=None)

    @property
    def interests(self) -> list[Counted]:
        """Topics that come back, those of late first."""
        return [topic for topic in self.topics if len(topic.days) >= _DAYS_OF_INTEREST][:_MOST_INTERESTS]

    @property
    def preferred_topics(self) -> list[Counted]:
        """What came up more than once lately, the most frequent first."""
        at = self.at
        if at is None:
            return []
        since = (at - _LATELY).date()
        lately = [(sum(day >= since for day in topic.days), topic) for topic in self.topics]
        often = [(days, topic) for days, topic in lately if days >= 1 and topic.count > 1]
        often.sort(key=lambda found: (-found[0], -found[1].weight, found[1].name))
        return [topic for _, topic in often[:_MOST_TOPICS]]

    @property
    def expertise(self) -> list[Counted]:
        """Topics that came back for weeks."""
        return [
            topic for topic in self.topics if len({day.isocalendar()[:2] for day in topic.days}) >= _WEEKS_OF_EXPERTISE
        ][:_MOST_SHOWN]

    @property
    def current_projects(self) -> list[Counted]:
        """The projects that are spoken of, the most frequent first."""
        return list(self.projects[:_MOST_SHOWN])

    @property
    def known_people(self) -> list[Counted]:
        """The people that come up, the most frequent first."""
        return list(self.people[:_MOST_SHOWN])

    @property
    def sources(self) -> list[Source]:
        """All that was looked at."""
        counted = [source for thing in (*self.people, *self.projects) for source in thing.sources]
        sessions = self.activity.sessions if self.activity else ()
        return unique([*(moment.source for moment in self.moments), *sessions, *counted, *self.said_in])

    @property
    def said_in(self) -> list[Source]:
        """The messages in which the user said what they want and who they are."""
        return [*self.told.sources, *(wish.source for wish in self.wishes)]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The messages that a profile was made from: what was said in them holds until something else is said."""

    about: frozenset[UUID]
    """Those in which the owner said who they are, and what of it has ended."""
    preferences: frozenset[UUID]
    is_whole: bool
    """Whether these are all that there were; otherwise the profile lost some."""


async def read_facts(night: Night, earlier: Earlier, own_names: Iterable[str] = ()) -> ProfileFacts:
    """What the owner's latest moments, messages and mentions tell, and the messages that a profile told of before.

    What the owner is called is no topic, as little as the names of others.
    """
    owner = night.scope.tenant_id, night.scope.user_id

    async def rows(name: str, *parameters: Any) -> list[Any]:
        async with night.store.executor.connection() as connection:
            return list(await connection.fetch(query("profiles_dream", name), *owner, *parameters))

    moments = tuple(_moment(row) for row in await rows("moments", _MOST_MOMENTS))
    activity = activity_of(await rows("said_by_week", _MOST_MESSAGES, _WINDOW_DAYS))
    most = _MOST_OWN_WORDS if earlier.is_whole else _MOST_AT_FIRST
    own_words = await rows("own_words", most, _LONGEST_MESSAGE, list(earlier.about | earlier.preferences))
    sessions = activity.sessions if activity else ()
    by_id = {source.ref.id: source for source in (*sessions, *(moment.source for moment in moments))}
    mentions = await rows("mentions", list(by_id), _MOST_MENTIONED)
    at = max((moment.ends_at for moment in moments), default=None)
    people = [
        person for person in _count(moments, lambda moment: moment.persons, at) if _fold(person.name) not in _NOBODY
    ]
    people = _merged(people, _mentioned(mentions, "person", by_id))
    # A name is no topic, though moments that were dreamt before it was known may say so.
    named = [one.name for one in (*people, *_mentioned(mentions, "organization", by_id))]
    names = _words_of([*named, *own_names, *_aliases(mentions)]) | COMPANY_WORDS | VERB_WORDS
    subjects = dict(zip(moments, recurring([(one.day, one.summary, one.topics) for one in moments]), strict=True))
    topics = _without(names, _count(moments, lambda moment: _with_subjects(moment, subjects[moment]), at))
    told_names = _words_of(_named_in(moments, _words_of(topic.name for topic in topics)))
    topics = _without(names | told_names, topics) if told_names else topics
    return ProfileFacts(
        moments,
        activity,
        tuple(topics),
        tuple(people),
        tuple(_mentioned(mentions, "project", by_id)),
        # A first night hears many of them, and others wait meanwhile.
        *await asyncio.to_thread(_heard, own_words, earlier),
    )


def _heard(own_words: Sequence[Any], earlier: Earlier) -> tuple[tuple[Wish, ...], SelfTold]:
    """What an owner wants, and who they are, by their own words."""
    about = [row for row in _among(own_words, earlier.about) if row["is_owners"]]
    return (
        tuple(_wishes(_among(own_words[::-1], earlier.preferences))),
        told((row["content"], row["created_at"], _message(row)) for row in about),
    )


def _among(messages: Iterable[Any], earlier: Collection[UUID]) -> list[Any]:
    """The latest messages, and earlier ones. What is remembered for one part of the profile says nothing to another:
    who ended it may be forgotten there."""
    return [message for message in messages if message["is_latest"] or message["id"] in earlier]


def _without(names: frozenset[str], topics: Iterable[Counted]) -> list[Counted]:
    """The topics that are no names, nor addresses, nor only what was done."""
    return [
        topic
        for topic in topics
        if not names.issuperset(_SEPARATOR.split(topic.name.lower())) and not DOMAIN.fullmatch(topic.name)
    ]


def _words_of(names: Iterable[str]) -> frozenset[str]:
    return frozenset(word for name in names for word in _SEPARATOR.split(name.lower()) if word)


def _aliases(mentions: Iterable[Any]) -> list[str]:
    """What else the people are called that are mentioned."""
    people = (row["extracted_data"] for row in mentions if _kind(row) == "person")
    return [str(alias) for data in people for alias in data.get("aliases") or ()]


def _named_in(moments: Iterable[Moment], words: frozenset[str]) -> list[str]:
    """The names of people in what is told of moments, of whom there may be no row; also the user's own.

    Only where some words have a capital: what never has one is no name.
    """
    texts = [one.summary for one in moments if not words.isdisjoint(_capitalised(one.summary))]
    told = [one for text in texts for one in (*evidence_in(text, 0), *uses(text, 0)) if one.entity_type == PERSON]
    own = [words_after(text, found.end())[0] for text in texts for found in _MY_NAME.finditer(text)]
    return [" ".join(words) for words in (*(one.words for one in told), *own)]


def _capitalised(text: str) -> set[str]:
    return {word.lower() for word in _SEPARATOR.split(text) if word[:1].isupper()}


def _with_subjects(moment: Moment, subjects: Iterable[str]) -> list[str]:
    """A moment's topics with what comes back in others, unless one of the topics says it."""
    said = _words_of(moment.topics)
    return [*moment.topics, *sorted(word for word in subjects if word not in said)]


def unique(sources: Iterable[Source]) -> list[Source]:
    """Each source once, in order."""
    return list({source.ref: source for source in sources}.values())


def _moment(row: Any) -> Moment:
    return Moment(
        Source(Ref("moments", row["id"]), row["key"]),
        row["starts_at"],
        row["ends_at"],
        tuple(row["topic_tags"]),
        tuple(row["present_persons"]),
        row["summary"],
    )


def _count(
    moments: Sequence[Moment], names_of: Callable[[Moment], Iterable[str]], at: datetime | None
) -> list[Counted]:
    """How often names come up, however they are spelled; those of late weigh more. The weightiest first."""
    names = [[name.strip() for name in names_of(moment)] for moment in moments]
    folded = {name: _fold(name) for name in set().union(*names) if _may_be_told(name)}
    found: dict[str, list[tuple[str, Moment]]] = defaultdict(list)
    for moment, said in zip(moments, names, strict=True):
        for key, name in {folded[name]: name for name in said if name in folded}.items():
            found[key].append((name, moment))
    counted = [_counted(uses, at) for uses in found.values()]
    return sorted(counted, key=lambda one: (-one.weight, one.name))


def _may_be_told(name: str) -> bool:
    return bool(_fold(name)) and len(name) <= _LONGEST_TAG and not is_sensitive(name) and not tells_secret(name)


def _counted(uses: Sequence[tuple[str, Moment]], at: datetime | None) -> Counted:
    # As it is spelled most often; of those that are equally frequent, the first in the alphabet.
    spellings = Counter(name for name, _ in uses)
    name = min(spellings, key=lambda spelling: (-spellings[spelling], spelling))
    days = frozenset(moment.day for _, moment in uses)
    newest = at.date() if at else date.min
    weight = sum(0.5 ** ((newest - day).days / _HALF_LIFE_DAYS) for day in sorted(days))
    # The moments come the newest first.
    return Counted(name, len(uses), round(weight, 6), days, tuple(moment.source for _, moment in uses[:WITNESSES]))


def _fold(name: str) -> str:
    return " ".join(re.split(r"[\s_-]+", unicodedata.normalize("NFKC", name).casefold().strip()))


def _mentioned(rows: Sequence[Any], kind: str, by_id: dict[UUID, Source]) -> list[Counted]:
    found = []
    newest_first = {source_id: place for place, source_id in enumerate(by_id)}
    for row in rows:
        if _kind(row) == kind and not is_sensitive(row["name"]) and len(row["name"]) <= _LONGEST_TAG:
            count = len(row["mentioned_by"])
            latest = sorted(row["mentioned_by"], key=newest_first.__getitem__)[:WITNESSES]
            sources = (*(by_id[source_id] for source_id in latest), Source(Ref("ontologies", row["id"]), row["key"]))
            found.append(Counted(row["name"], count, float(count), frozenset(), sources))
    return found


def _kind(row: Any) -> str | None:
    """What an entity is, as whoever stored it says."""
    data = row["extracted_data"]
    said = [data.get(name) for name in ("entity_type", "type", "kind")] + list(row["tags"])
    return next((word for word in said if word in ("person", "project", "organization")), None)


def _merged(present: Iterable[Counted], mentioned: Iterable[Counted]) -> list[Counted]:
    """The same people from moments and from mentions, once each."""
    people = {_fold(person.name): person for person in mentioned}
    for person in present:
        known = people.get(_fold(person.name))
        if known is None:
            people[_fold(person.name)] = person
        else:
            sources = tuple(unique((*known.sources, *person.sources)))
            count = max(known.count, person.count)
            people[_fold(person.name)] = Counted(known.name, count, known.weight, person.days, sources)
    return sorted(people.values(), key=lambda person: (-person.count, person.name))


def _message(row: Any) -> Source:
    return Source(Ref("messages", row["id"]), row["key"])


def _is_wish(text: str) -> bool:
    return (
        len(text) <= _LONGEST_WISH
        and _WISH.search(text) is not None
        and not _ASKS.search(text)
        and not _OTHERWISE.search(text)
        and not is_sensitive(text)
    )


def _wishes(rows: Sequence[Any]) -> list[Wish]:
    """What was said of how things should be done, the newest first; of what was said twice, the newest."""
    found: dict[str, Wish] = {}
    for row in rows:
        if len(row["content"]) > _LONGEST_WISHFUL_MESSAGE:
            continue
        said = without_secrets(row["content"])
        for start, end in sentence_spans(said):
            text = " ".join(said[start:end].split())
            if _is_wish(text):
                wish = Wish(text, row["created_at"], _message(row))
                found.setdefault(_fold(text), wish)
    return list(found.values())[:_MOST_WISHES]
