"""Count the topics, people and projects in a user's moments and mentions, and find topics that recur."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.entities.evidence import PERSON
from rem.dreams.entities.name_parsing import is_sentence_start, parse_name_after
from rem.dreams.entities.rule_extraction import extract_evidence
from rem.dreams.moments.tags import COMPANY_WORDS, HOST_NAME, VERB_WORDS
from rem.dreams.text.secrets import contains_secret, is_sensitive
from rem.dreams.text.words import compute_rarity, extract_distinct_words, is_content_word

MAX_FIELD_SOURCES = 5
"""Sources of one entry, the latest ones. With all of them, a profile would be written again with hundreds of sources in
every run."""
MAX_NAME_CHARS = 80
HALF_LIFE_DAYS = 30.0
"""The weight of a day is halved after so many days."""
MIN_RECURRING_DAYS = 3
MIN_TOPIC_RARITY = 0.6
"""More common words (team, meeting, weekend) recur in the moments of everyone."""
_NOT_TOPIC_ENDINGS = ("ing", "ed", "ly")
_CAPITALISED_WORD = re.compile(r"(?<![\w'’-])[^\W\d_a-z][\w+#-]*")
_GERMAN = re.compile(r"\b(?:der|die|das|und|ist|ich|nicht|eine?n?|mit|wir|habe|auf)\b", re.IGNORECASE)
"""German texts, in which every noun has a capital."""
_MY_NAME = re.compile(r"\b(?:my name is|call me|ich heiße|mein name ist) ", re.IGNORECASE)
_SEPARATOR = re.compile(r"[\W_]+")
_NOT_PEOPLE = frozenset({"user", "assistant", "ai", "me", "i", "you", "system"})
_CONTACT_WORDS = frozenset({"call", "calls", "mail", "mails", "message", "messages"})
"""Words for a contact, which say nothing about its topic."""
_ENTITY_TYPES = ("person", "project", "organization")


@dataclass(frozen=True, slots=True)
class ProfileMoment:
    """The parts of a moment that a profile needs."""

    source: ClaimSource
    starts_at: datetime
    ends_at: datetime
    topics: tuple[str, ...]
    persons: tuple[str, ...]
    summary: str

    @property
    def day(self) -> date:
        """Return the day on which it started."""
        return self.starts_at.date()


@dataclass(frozen=True, slots=True)
class CountedName:
    """A topic, person or project, with the number of its occurrences."""

    name: str
    count: int
    weight: float
    """The sum over its days, where recent days count more."""
    days: frozenset[date]
    sources: tuple[ClaimSource, ...]


def deduplicate_sources(sources: Iterable[ClaimSource]) -> list[ClaimSource]:
    """Return each source once, in order."""
    return list({source.ref: source for source in sources}.values())


def count_people(
    moments: Sequence[ProfileMoment], mentions: Sequence[Any], sources: Mapping[UUID, ClaimSource]
) -> list[CountedName]:
    """Count the people in moments and mentions, the most frequent first."""
    present = _count_names(moments, lambda moment: moment.persons)
    people = {fold_name(person.name): person for person in count_mentions(mentions, "person", sources)}
    for person in present:
        folded = fold_name(person.name)
        if folded in _NOT_PEOPLE:
            continue
        known = people.get(folded)
        if known is None:
            people[folded] = person
        else:
            merged_sources = tuple(deduplicate_sources((*known.sources, *person.sources)))
            count = max(known.count, person.count)
            people[folded] = CountedName(known.name, count, known.weight, person.days, merged_sources)
    return sorted(people.values(), key=lambda person: (-person.count, person.name))


def count_mentions(mentions: Sequence[Any], entity_type: str, sources: Mapping[UUID, ClaimSource]) -> list[CountedName]:
    """Count the entities of a type in rows of the query `mentions`. `sources` are newest first."""
    counted = []
    rank = {source_id: number for number, source_id in enumerate(sources)}
    for row in mentions:
        name = row["name"]
        if _get_entity_type(row) == entity_type and not is_sensitive(name) and len(name) <= MAX_NAME_CHARS:
            count = len(row["mentioned_by"])
            latest = sorted(row["mentioned_by"], key=rank.__getitem__)[:MAX_FIELD_SOURCES]
            entity = ClaimSource(RowRef("ontologies", row["id"]), row["key"])
            row_sources = (*(sources[source_id] for source_id in latest), entity)
            counted.append(CountedName(name, count, float(count), frozenset(), row_sources))
    return counted


def count_topics(moments: Sequence[ProfileMoment], names: Iterable[str]) -> list[CountedName]:
    """Count the topics of moments, the weightiest first. Names of people, companies and hosts are no topics."""
    excluded = _split_words(names) | COMPANY_WORDS | VERB_WORDS | _CONTACT_WORDS
    recurring = find_recurring_topics([(moment.day, moment.summary, moment.topics) for moment in moments])
    recurring_by_moment = dict(zip(moments, recurring, strict=True))
    topics = _drop_names(
        excluded, _count_names(moments, lambda moment: _add_recurring_topics(moment, recurring_by_moment[moment]))
    )
    names_in_summaries = _split_words(_find_person_names(moments, _split_words(topic.name for topic in topics)))
    return _drop_names(excluded | names_in_summaries, topics) if names_in_summaries else topics


def collect_aliases(mentions: Iterable[Any]) -> list[str]:
    """Return the aliases of the people in rows of the query `mentions`."""
    people = (row["extracted_data"] for row in mentions if _get_entity_type(row) == "person")
    return [str(alias) for data in people for alias in data.get("aliases") or ()]


def find_recurring_topics(moments: Sequence[tuple[date, str, Iterable[str]]]) -> list[frozenset[str]]:
    """Return the recurring topics of each moment (day, summary, tags), in lower case.

    A word is a recurring topic if it occurs on several days, is rare enough in general, and is either a tag of one of
    the moments or has a capital where only a name has one. The result depends on the moments alone.
    """
    tags_by_moment = [frozenset(tag.lower() for tag in tags) for _, _, tags in moments]
    words_by_moment = [extract_distinct_words(summary) for _, summary, _ in moments]
    days: dict[str, set[date]] = defaultdict(set)
    for (day, _, _), words, tags in zip(moments, words_by_moment, tags_by_moment, strict=True):
        for word in words | tags:
            days[word].add(day)
    frequent = {
        word for word, word_days in days.items() if len(word_days) >= MIN_RECURRING_DAYS and _may_be_topic(word)
    }
    topics = frequent.intersection(tag for tags in tags_by_moment for tag in tags)
    for (_, summary, _), words in zip(moments, words_by_moment, strict=True):
        if not words.isdisjoint(frequent - topics):
            topics |= _find_name_like_words(summary) & frequent
    return [words & topics for words in words_by_moment]


def _may_be_topic(word: str) -> bool:
    has_verb_ending = len(word) > 5 and word.endswith(_NOT_TOPIC_ENDINGS)
    return is_content_word(word) and compute_rarity(word) >= MIN_TOPIC_RARITY and not has_verb_ending


def _find_name_like_words(text: str) -> set[str]:
    """Return the words with a capital inside a sentence, in lower case."""
    if _GERMAN.search(text):
        return set()
    return {
        match.group().lower()
        for match in _CAPITALISED_WORD.finditer(text)
        if match.group()[0].isupper() and not is_sentence_start(text, match.start())
    }


def _add_recurring_topics(moment: ProfileMoment, recurring: Iterable[str]) -> list[str]:
    """Return a moment's topics and the recurring ones that are not part of them."""
    words = _split_words(moment.topics)
    return [*moment.topics, *sorted(word for word in recurring if word not in words)]


def _drop_names(names: frozenset[str], topics: Iterable[CountedName]) -> list[CountedName]:
    """Drop topics whose words are all names or past participles ("cached"), and topics that are host names."""
    return [
        topic
        for topic in topics
        if not HOST_NAME.fullmatch(topic.name)
        and not all(word in names or _is_participle(word) for word in _SEPARATOR.split(topic.name.lower()))
    ]


def _is_participle(word: str) -> bool:
    return len(word) > 5 and word.isascii() and word.endswith("ed")


def _find_person_names(moments: Iterable[ProfileMoment], words: frozenset[str]) -> list[str]:
    """Return the names of people in summaries, including the user's own, even if these people have no row.

    Only summaries with one of the words in capitals are read, because a word without a capital is no name.
    """
    texts = list_summaries_with(moments, words)
    evidence = (item for text in texts for item in extract_evidence(text, 0))
    names = [item.words for item in evidence if item.entity_type == PERSON]
    own_names = [parse_name_after(text, match.end())[0] for text in texts for match in _MY_NAME.finditer(text)]
    return [" ".join(name) for name in (*names, *own_names)]


def list_summaries_with(moments: Iterable[ProfileMoment], words: frozenset[str]) -> list[str]:
    """Return the summaries that have one of the words with a capital."""
    return [moment.summary for moment in moments if not words.isdisjoint(_capitalised_words(moment.summary))]


def _capitalised_words(text: str) -> set[str]:
    return {word.lower() for word in _SEPARATOR.split(text) if word[:1].isupper()}


def _split_words(names: Iterable[str]) -> frozenset[str]:
    return frozenset(word for name in names for word in _SEPARATOR.split(name.lower()) if word)


def _count_names(
    moments: Sequence[ProfileMoment], get_names: Callable[[ProfileMoment], Iterable[str]]
) -> list[CountedName]:
    """Count names in any spelling, the weightiest first. `moments` are newest first."""
    newest = max((moment.ends_at for moment in moments), default=None)
    names_by_moment = [[name.strip() for name in get_names(moment)] for moment in moments]
    folded = {name: fold_name(name) for name in set().union(*names_by_moment) if _may_be_shown(name)}
    occurrences: dict[str, list[tuple[str, ProfileMoment]]] = defaultdict(list)
    for moment, names in zip(moments, names_by_moment, strict=True):
        for key, name in {folded[name]: name for name in names if name in folded}.items():
            occurrences[key].append((name, moment))
    counted = [_build_counted(items, newest) for items in occurrences.values()]
    return sorted(counted, key=lambda name: (-name.weight, name.name))


def _may_be_shown(name: str) -> bool:
    is_short = bool(fold_name(name)) and len(name) <= MAX_NAME_CHARS
    return is_short and not is_sensitive(name) and not contains_secret(name)


def _build_counted(occurrences: Sequence[tuple[str, ProfileMoment]], newest: datetime | None) -> CountedName:
    # The most frequent spelling; of equally frequent ones the first in the alphabet.
    spellings = Counter(name for name, _ in occurrences)
    name = min(spellings, key=lambda spelling: (-spellings[spelling], spelling))
    days = frozenset(moment.day for _, moment in occurrences)
    newest_day = newest.date() if newest else date.min
    weight = sum(0.5 ** ((newest_day - day).days / HALF_LIFE_DAYS) for day in sorted(days))
    sources = tuple(moment.source for _, moment in occurrences[:MAX_FIELD_SOURCES])
    return CountedName(name, len(occurrences), round(weight, 6), days, sources)


def fold_name(name: str) -> str:
    """Return a name in lower case with single spaces, to compare spellings."""
    return " ".join(re.split(r"[\s_-]+", unicodedata.normalize("NFKC", name).casefold().strip()))


def _get_entity_type(row: Any) -> str | None:
    """Return the type of an entity, from its data or its tags."""
    data = row["extracted_data"]
    types = [data.get(name) for name in ("entity_type", "type", "kind")] + list(row["tags"])
    return next((entity_type for entity_type in types if entity_type in _ENTITY_TYPES), None)
