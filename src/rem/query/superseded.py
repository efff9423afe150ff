"""Recognise which rows of an answer a newer one replaces, and put the newer one first.

"I live in Svendborg" is superseded by a later "We moved to Aarhus". A row is compared only with the other rows of the
same answer, so both are about the question. Without a language model this is a matter of rules: two statements
about the same thing with another value, a word of change ("no longer", "instead"), a correction of what was just said.
The rules are English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query as sql
from rem.message_kinds import refers_back
from rem.rules import alternatives, word_set, word_sets
from rem.text import STOP_WORDS, find_sentence_spans, split_words

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_COMPARED_ROWS = 15
"""Rows of an answer that are compared with each other."""
COMPARED_TABLES = ("messages", "resources")
"""What dreams derived repeats these rows, under the date of the dream."""
MAX_SENTENCES = 5
"""Sentences of a row that are compared: those with most words of the question."""
SAME_TOPIC_COSINE = 0.42
"""Two texts about the same thing have at least this cosine."""
MIN_FIT_SHARE = 0.75
"""A newer row must fit the question about as well as the older one. Otherwise it is about another part of the topic."""
SURE_TOPIC_COSINE = 0.6
MIN_STATE_SHARE = 0.65
"""The same two for a newer text that says how things are now."""
SAME_NOTE_COSINE = 0.75
"""Two notes with a lower cosine have different subjects."""
MAX_REPLACED_SENTENCES = 4
MIN_MOVED_SHARE = 0.5
"""The same for a newer text with a word of change and the kind of value that is asked for."""
MAX_REFERENCE_DISTANCE = 6
"""A correction without a subject ("Actually it's Thursday") refers to one of this many messages before it."""
_TIME_SHAPE = re.compile(r"\b\d{1,2}[:.]\d\d\b|\b\d{1,2} ?(?:am|pm|o'clock)\b|\b(?:noon|midnight)\b")
_DAY = re.compile(
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b\d{1,2}(?:st|nd|rd|th)\b|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b"
    r"|\b(?:today|tomorrow|tonight)\b"
)
_PLACE = re.compile(r"\b(?:in|at|to|near|on)\s+(?:the\s+)?([a-z][\w-]+)")
_SUBJECT = re.compile(
    r"(?:(?:and|but|so|ok|okay|well|also|btw|by the way|fyi|actually|sorry|no|update|correction)[,:]?\s+)*"
    r"(?P<subject>[^,;]{2,80}?)\s*"
    r"(?:\b(?:is|are|was|were|will be|has been|have been|goes|starts|takes place|happens)\b|'s\b|:)\s+(?P<value>.+)",
    re.DOTALL,
)
_ABOUT_AUTHOR = re.compile(
    r"\b(?:do|did|am|have|will) (?:i|we)\b|\b(?:my|our) (?:new )?(?:address|job|employer|birthday)\b", re.I
)
_WANTED_SHAPES = (
    (re.compile(r"\bwhen\b|\b(?:what|which) (?:time|day|date)\b"), frozenset(("time", "day"))),
    (
        re.compile(
            r"\bwhere\b|\b(?:what|which) (?:town|city|place|room|street|country|hospital|clinic|school|hotel|hall)\b"
        ),
        frozenset(("place",)),
    ),
    (
        re.compile(r"\bhow (?:much|many|old|long)\b|\b(?:number|price|cost|costs|code|password)\b"),
        frozenset(("number",)),
    ),
)
_REVOCATION = re.compile(
    r"\b(?:cancel\w*|called off|off|dropped|scrapped|revoked|over|sold|quit|no longer|any ?more)\b"
)
_OWN_VERBS = "live|living|moved|moving|relocated|work|working|joined|quit|hired"
_OWN_NOUNS = "job|address|birthday|employer"
_ABOUT_SELF = re.compile(
    rf"\b(?:i|we)(?:'m|'ve|'re|'d|'ll)?(?: \w+){{0,3}}? (?:{_OWN_VERBS})\b"
    rf"|\b(?:i|we)\b[^.;]{{0,40}}\b(?:{_OWN_NOUNS})\b|\b(?:my|our) (?:new )?(?:{_OWN_NOUNS})\b"
)
_STATE = re.compile(r"(?<!from )\bnow\b|\bno longer\b|\bany ?more\b|\bback (?:again|already)\b")
_NEGATED = re.compile(
    r"\b(?:not|isn't|aren't|wasn't|no longer|instead of|rather than)\s+(?:the\s+|a\s+|in\s+|on\s+|at\s+)?([\w-]+)"
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """What one sentence of a row says about what."""

    words: frozenset[str]
    thing: frozenset[str]
    """The words without those of change."""
    subject: frozenset[str]
    value: frozenset[str]
    shapes: frozenset[str]
    """The kinds of its value: a time, a day, a number, a place."""
    all_shapes: frozenset[str]
    """The same of the whole sentence."""
    properties: frozenset[str]
    negated: frozenset[str]
    has_change: bool
    is_revocation: bool
    is_state: bool
    """Whether it says how something is now."""
    refers_back: bool
    owner: str


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the answer, ready to be compared."""

    place: int
    key: str
    at: datetime
    is_note: bool
    score: float
    similarity: float
    session_id: str | None
    position: int
    entity_id: str
    sentences: tuple[_Sentence, ...]

    @property
    def is_long(self) -> bool:
        """Whether the text has many sentences."""
        return len(self.sentences) > MAX_REPLACED_SENTENCES

    @property
    def words(self) -> frozenset[str]:
        """The words of all compared sentences."""
        return frozenset().union(*(sentence.words for sentence in self.sentences))

    @property
    def shapes(self) -> frozenset[str]:
        """The kinds of values in all compared sentences."""
        return frozenset().union(*(sentence.all_shapes for sentence in self.sentences))

    @property
    def has_change(self) -> bool:
        """Whether one of the sentences has a word of change."""
        return any(sentence.has_change for sentence in self.sentences)

    corrected_ids: frozenset[str] = frozenset()
    """Rows that the user has confirmed to be replaced by this one (`metadata.supersedes`)."""

    @property
    def time(self) -> tuple[datetime, int]:
        """The time, and the place in the session for messages that were stored together."""
        return self.at, self.position

    def fits(self, share: float, other: _Row) -> bool:
        """Return whether the row fits the question at least this share as well as another."""
        return self.score >= share * other.score and self.similarity >= share * other.similarity


@dataclass(frozen=True, slots=True)
class _Question:
    """What a question asks for."""

    words: frozenset[str]
    properties: frozenset[str]
    """The properties of its author, such as the residence."""
    shapes: frozenset[str]
    """The kinds of values that answer it: a day or a time for "When …?"; empty if any."""


async def mark_superseded(store: Store, question: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with each newer one before those that it replaces.

    A replaced row gets `superseded_by`, the key of the newer row, and `superseded_at`, its date.
    """
    compared = list(_prepare(question, rows))
    if len(compared) < 2:
        return rows
    cosines = await _load_cosines(store, rows[:MAX_COMPARED_ROWS])
    asked = _parse_question(question)
    newest: dict[int, _Row] = {}
    for older in compared:
        for newer in compared:
            cosine = cosines.get(frozenset((newer.entity_id, older.entity_id)), 0.0)
            is_newest = older.place not in newest or newest[older.place].time < newer.time
            is_corrected = older.entity_id in newer.corrected_ids
            if is_newest and (is_corrected or _replaces(newer, older, asked, cosine)):
                newest[older.place] = newer
    return _reorder(rows, newest, {row.place for row in compared if row.is_long})


def _reorder(rows: list[dict[str, Any]], newest: dict[int, _Row], long_places: set[int]) -> list[dict[str, Any]]:
    """Return the rows with each newer one before the older ones. Long texts are not marked: most of them holds."""
    ordered: list[dict[str, Any]] = []
    seen: set[int] = set()

    def add(place: int) -> None:
        if place in seen:
            return
        seen.add(place)
        newer = newest.get(place)
        if newer is None:
            ordered.append(rows[place])
            return
        add(newer.place)
        if place in long_places:
            ordered.append(rows[place])
            return
        ordered.append({**rows[place], "superseded_by": newer.key, "superseded_at": newer.at.date().isoformat()})

    for place in range(len(rows)):
        add(place)
    return ordered


def _prepare(question: str, rows: Sequence[dict[str, Any]]) -> Iterator[_Row]:
    asked = _content_words(question)
    for place, row in enumerate(rows[:MAX_COMPARED_ROWS]):
        record, passage = row.get("record"), row.get("passage")
        happened_at, key = row.get("happened_at"), row.get("key")
        if not (isinstance(record, dict) and isinstance(passage, dict) and happened_at and key):
            continue
        if row["table"] not in COMPARED_TABLES or (row["table"] == "resources" and not record.get("timestamp")):
            continue  # when a note was read says nothing about when it was written
        position = record.get("message_index")
        yield _Row(
            place,
            str(key),
            datetime.fromisoformat(str(happened_at)),
            row["table"] == "resources",
            float(row.get("score") or 0.0),
            float(row.get("similarity") or 0.0),
            str(record["session_id"]) if record.get("session_id") else None,
            position if isinstance(position, int) else -1,
            str(record.get("id")),
            tuple(_pick_sentences(str(passage.get("text") or ""), asked)),
            _read_corrected_ids(record),
        )


def _read_corrected_ids(record: dict[str, Any]) -> frozenset[str]:
    """Return the ids in `metadata.supersedes`, which lists rows as table/id. Users can write anything there."""
    metadata = record.get("metadata")
    names = metadata.get("supersedes") if isinstance(metadata, dict) else None
    return frozenset(str(name).rpartition("/")[2] for name in names) if isinstance(names, list) else frozenset()


def _pick_sentences(text: str, asked: frozenset[str]) -> Iterator[_Sentence]:
    """Yield the sentences with most words of the question, in their order."""
    sentences = [text[start:end] for start, end in find_sentence_spans(text)]
    by_fit = sorted(range(len(sentences)), key=lambda i: -len(asked & _content_words(sentences[i])))
    for index in sorted(by_fit[:MAX_SENTENCES]):
        yield _parse_sentence(sentences[index])


def _parse_sentence(sentence: str) -> _Sentence:
    text = " ".join(sentence.lower().replace("’", "'").split())
    changed = _object_of_change().search(text)
    stated = _SUBJECT.match(text)
    subject: frozenset[str] = frozenset()
    value = text
    if changed is not None:
        subject, value = _content_words(changed["object"] or changed["thing"]), changed["value"] or ""
    elif stated is not None:
        subject, value = _content_words(stated["subject"]), stated["value"]
    words = _content_words(text)
    return _Sentence(
        words=words,
        thing=_content_words(_cues().sub(" ", text)) - _fillers(),
        subject=subject - _fillers(),
        value=_content_words(value),
        shapes=frozenset(_find_shapes(value)),
        all_shapes=frozenset(_find_shapes(text)),
        properties=_find_properties(text),
        negated=frozenset(_stem(word) for word in _NEGATED.findall(text) if word not in _empty_words()),
        has_change=_cues().search(text) is not None,
        is_revocation=_REVOCATION.search(text) is not None,
        is_state=_STATE.search(text) is not None,
        refers_back=refers_back(text),
        owner=_find_owner(text),
    )


def _parse_question(question: str) -> _Question:
    text = question.lower().replace("’", "'")
    return _Question(
        _content_words(text),
        _find_properties(text) if _ABOUT_AUTHOR.search(text) else frozenset(),
        next((shapes for pattern, shapes in _WANTED_SHAPES if pattern.search(text)), frozenset()),
    )


def _find_properties(text: str) -> frozenset[str]:
    words = set(split_words(text))
    return frozenset(name for name, verbs in _properties().items() if verbs & words)


def _find_shapes(value: str) -> Iterator[str]:
    """Yield of what kind the value of a sentence is: a time, a day, a number, a place."""
    if _TIME_SHAPE.search(value):
        yield "time"
    if _DAY.search(value):
        yield "day"
    if re.search(r"\d", value):
        yield "number"
    if any(not _DAY.fullmatch(place) and place not in _empty_words() for place in _PLACE.findall(value)):
        yield "place"


def _find_owner(text: str) -> str:
    """Return whom a sentence is about: the author, or the first word of it."""
    words = split_words(text)
    if _ABOUT_SELF.search(text):
        return "author"
    return words[0] if words else ""


def _replaces(newer: _Row, older: _Row, asked: _Question, cosine: float) -> bool:
    """Return whether a row says something else about the question than an older one does."""
    if not _is_comparable(newer, older, cosine) or _misses_point(newer, older, asked):
        return False
    if _moves(newer, older, asked):
        return True
    if older.is_long:
        return False  # most of a long text is still true
    topic = _Topic(
        is_same=cosine >= SAME_TOPIC_COSINE and newer.fits(MIN_FIT_SHARE, older),
        is_sure=cosine >= SURE_TOPIC_COSINE and newer.fits(MIN_STATE_SHARE, older),
        is_near_in_session=_is_near_in_session(newer, older),
    )
    pairs = ((new, old) for new in newer.sentences for old in older.sentences)
    return any(_contradicts(new, old, asked, topic) for new, old in pairs)


@dataclass(frozen=True, slots=True)
class _Topic:
    """How surely two rows have the same topic."""

    is_same: bool
    is_sure: bool
    is_near_in_session: bool


def _is_comparable(newer: _Row, older: _Row, cosine: float) -> bool:
    """Return whether a row may replace an older one at all."""
    if newer.time <= older.time:
        return False
    # What was said is not outdated because a note was stored later.
    return not newer.is_note or (older.is_note and cosine >= SAME_NOTE_COSINE)


def _is_near_in_session(newer: _Row, older: _Row) -> bool:
    is_same_session = newer.session_id is not None and newer.session_id == older.session_id
    return is_same_session and 0 < newer.position - older.position <= MAX_REFERENCE_DISTANCE


def _contradicts(new: _Sentence, old: _Sentence, asked: _Question, topic: _Topic) -> bool:
    """Return whether a sentence says something else than an older one."""
    if new.words <= old.words and not new.negated:
        return False  # it repeats the older one
    return (
        _states_same_property(new, old, asked.properties)
        or _revokes(new, old)
        or (topic.is_same and _changes(new, old))
        or (topic.is_sure and new.is_state)
        or (topic.is_near_in_session and _corrects(new, old))
    )


def _misses_point(newer: _Row, older: _Row, asked: _Question) -> bool:
    """Return whether only the older row has the kind of value that is asked for, and is not revoked."""
    is_revoked = any(sentence.is_revocation for sentence in newer.sentences)
    return bool(asked.shapes & older.shapes) and not asked.shapes & newer.shapes and not is_revoked


def _moves(newer: _Row, older: _Row, asked: _Question) -> bool:
    """Return whether a row with a word of change has another time, place or number for the thing that is asked for."""
    if not newer.has_change or newer.score < MIN_MOVED_SHARE * older.score:
        return False
    return bool((asked.shapes & newer.shapes & older.shapes) - {"number"}) and bool(
        (newer.words & older.words & asked.words) - _fillers()
    )


def _states_same_property(new: _Sentence, old: _Sentence, asked: frozenset[str]) -> bool:
    """Return whether two sentences are about the property of their author that is asked for, such as the residence."""
    is_same_person = new.owner == old.owner == "author"
    return is_same_person and bool(new.properties & old.properties & asked) and new.value != old.value


def _revokes(new: _Sentence, old: _Sentence) -> bool:
    """Return whether a sentence says nothing but that the thing of the older one has changed: "The offsite is off"."""
    return new.has_change and bool(new.thing) and new.thing <= old.words


def _changes(new: _Sentence, old: _Sentence) -> bool:
    """Return whether a sentence has a word of change, or states another value of the same kind for the same thing."""
    common = (new.words & old.words) - _fillers()
    if new.has_change or new.negated & old.words:
        return bool(common)
    return bool(new.subject) and new.subject == old.subject and bool(new.shapes & old.shapes)


def _corrects(new: _Sentence, old: _Sentence) -> bool:
    """Return whether a sentence corrects what was just said, without naming it again."""
    if not new.refers_back or not (new.has_change or new.negated):
        return False
    return bool((new.words & old.words) - _fillers() or new.negated & old.words)


async def _load_cosines(store: Store, rows: Sequence[dict[str, Any]]) -> dict[frozenset[str], float]:
    """Return the cosine of each two shown passages, by the ids of their rows."""
    shown = [(UUID(str(row["record"]["id"])), row["passage"]["start"]) for row in rows if row.get("passage")]
    async with store.executor.connection() as connection:
        pairs = await connection.fetch(
            sql("query", "passage_cosines"),
            store.scope.tenant_id,
            [entity_id for entity_id, _ in shown],
            [start for _, start in shown],
        )
    return {frozenset((str(first), str(second))): cosine for first, second, cosine in pairs}


def _content_words(text: str) -> frozenset[str]:
    """Return the stems of the words with content. Days and months are content here."""
    words = split_words(text.replace("’", "'").replace("'s", "").replace("'", ""))
    return frozenset(_stem(word) for word in words if word not in _empty_words())


def _stem(word: str) -> str:
    for ending in ("ies", "es", "s", "ing", "ed", "d"):
        if word.endswith(ending) and len(word) - len(ending) > 2:
            return word[: -len(ending)]
    return word


@cache
def _empty_words() -> frozenset[str]:
    return STOP_WORDS - word_set("names.calendar_words") - word_set("message_kinds.time_words") - {"work", "place"}


@cache
def _fillers() -> frozenset[str]:
    return frozenset(_stem(word) for word in word_set("changes.fillers")) | word_set("changes.fillers")


@cache
def _properties() -> dict[str, frozenset[str]]:
    return word_sets("changes.properties")


@cache
def _cues() -> re.Pattern[str]:
    return re.compile(rf"\b{alternatives('changes.cues')}\b")


@cache
def _object_of_change() -> re.Pattern[str]:
    """Return the pattern of "we moved OBJECT to VALUE" and of "THING moved to VALUE"."""
    verb = alternatives("changes.change_verbs")
    value = r"(?:\s+(?:to|with|by|until|for|from .{1,40}? to)\s+(?P<value>.+))?"
    owned = r"(?:my|our|the|his|her|their)"
    by_person = rf"\b(?:i|we|they|he|she)(?:'ve| have| has| had| just)*\s+{verb}\s+(?P<object>{owned}\s.{{2,60}}?)"
    by_itself = (
        rf"(?P<thing>{owned}?\s?.{{2,50}}?)\s+(?:has |have |got |was |is |been |just )*{verb}(?: back| forward)?"
    )
    return re.compile(rf"(?:{by_person}|{by_itself}){value}[.!]*\Z")
