"""Recognise by rules that a row replaces an older one.

Two statements about the same thing have another value, there is a word of change ("no longer", "instead"), or what was
just said is corrected. The rules are English.
"""

from __future__ import annotations

from dataclasses import dataclass

from rem.query.compared_rows import AnswerRow, AskedQuestion
from rem.query.own_properties import AUTHOR
from rem.query.stated_changes import Part, Sentence, calendar_words, filler_words, general_words

SAME_TOPIC_COSINE = 0.42
"""Two texts about the same thing have at least this cosine."""
MIN_FIT_SHARE = 0.74
"""A newer row must fit the question about as well as the older one. Otherwise it is about another part of the topic."""
RESTATED_COSINE = 0.5
"""The same for a newer text without a word of change."""
MAX_MISSING_WORDS = 2
"""Words of the question that a text may leave out if it clearly revises an earlier one."""
SURE_TOPIC_COSINE = 0.6
MIN_STATE_SHARE = 0.65
"""The same two for a newer text that says how things are now."""
SAME_NOTE_COSINE = 0.75
"""Two notes with a lower cosine have different subjects."""
MIN_MOVED_SHARE = 0.5
"""The same for a newer text with a word of change and the kind of value that is asked for."""
MIN_MOVED_COSINE = 0.28
CLOSER_SHARE = 0.95
"""A newer text with this share of the older one's similarity is as near to the question."""
MIN_DROPPED_SIMILARITY = 0.26
"""The similarity with the question of a newer text that names the value of the older one as dropped."""
MAX_REFERENCE_DISTANCE = 6
"""A correction without a subject ("Actually it's Thursday") refers to one of this many messages before it."""


def replaces(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion, cosine: float) -> bool:
    """Return whether a row says something else about the question than an older one does."""
    if not _is_comparable(newer, older, asked, cosine):
        return False
    if _returns(newer.part, older.part, asked):
        return True
    if drops_value(newer, older, asked):
        return True
    if leaves_alone(newer, older, asked):
        return False
    topic = _Topic(
        is_same=cosine >= SAME_TOPIC_COSINE and newer.fits(MIN_FIT_SHARE, older),
        is_sure=cosine >= SURE_TOPIC_COSINE and newer.fits(MIN_STATE_SHARE, older),
        is_near_in_session=_is_near_in_session(newer, older),
        common=(older.part.covered & newer.covered) - general_words(),
        missing=older.part.covered - newer.covered - general_words(),
        is_near=newer.score >= MIN_MOVED_SHARE * older.score and _is_close(newer, older, asked, cosine),
        is_closer=newer.similarity >= CLOSER_SHARE * older.similarity,
        is_asked=bool(asked.shapes) or 2 * len(older.part.covered) > len(asked.words.words),
        has_kind=bool(asked.shapes),
        is_polar=asked.is_polar,
    )
    if _moves(newer, older, asked, topic) or _restates(newer, older, asked, topic, cosine):
        return True
    if topic.is_near and _renews(newer, older, asked):
        return True
    if _succeeds(newer.part, older, asked, topic) or _changes_hands(newer.part, older.part, asked, topic):
        return True
    if _adjusts(newer.part, older.part, asked):
        return True
    pairs = ((new, old) for new in newer.part.sentences for old in older.part.sentences)
    return any(_contradicts(new, old, asked, topic) for new, old in pairs)


@dataclass(frozen=True, slots=True)
class _Topic:
    """How surely two rows have the same topic."""

    is_same: bool
    is_sure: bool
    is_near_in_session: bool
    common: frozenset[str]
    """The words of the question that both have, without general ones such as "number"."""
    missing: frozenset[str]
    """The words of the question that only the older one has."""
    is_near: bool
    """Whether the newer one fits the question at least half as well, and is about something similar."""

    is_closer: bool
    """Whether the newer one is as near to the question in meaning."""
    is_asked: bool
    """Whether the older one has most words of the question. With a name alone it may be about something else."""
    has_kind: bool
    """Whether the question asks for a kind of value."""
    is_polar: bool
    """Whether the question asks for yes or no."""

    @property
    def is_revised(self) -> bool:
        """Whether a newer text that clearly revises something revises what the question asks for.

        A question for no kind of value may be about another property of the same thing.
        """
        if self.is_polar:
            return self.is_near and len(self.missing) <= MAX_MISSING_WORDS
        can_miss = self.has_kind or self.is_closer
        return self.is_same and len(self.missing) <= (MAX_MISSING_WORDS if can_miss else 0)

    @property
    def is_about_same(self) -> bool:
        """Whether the newer one has nearly all words of the question that the older one has."""
        return len(self.missing) < len(self.common) and len(self.missing) <= 1

    @property
    def has_same_words(self) -> bool:
        """Whether the newer one has all words of the question that the older one has."""
        return bool(self.common) and not self.missing


def _is_comparable(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion, cosine: float) -> bool:
    """Return whether a row may replace an older one at all."""
    if newer.time <= older.time or newer.is_about_other_owner:
        return False
    is_change = newer.part.is_revision or _renews(newer, older, asked)
    is_clear_change = drops_value(newer, older, asked) or (is_change and _is_close(newer, older, asked, cosine))
    if older.is_undated and not is_clear_change:
        return False
    # What was said is not outdated because a note was stored later.
    return not newer.is_note or (older.is_note and cosine >= SAME_NOTE_COSINE)


def _is_close(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion, cosine: float) -> bool:
    """Return whether two rows are about something similar.

    The vector of a note with many facts says little about one of them. Then the same words and the same kind of value
    are enough.
    """
    has_same_words = bool(older.part.covered - general_words()) and older.part.covered <= newer.covered
    return cosine >= MIN_MOVED_COSINE or (has_same_words and bool(asked.shapes & newer.part.shapes & older.part.shapes))


def _renews(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion) -> bool:
    """Return whether a row says that there is a new value of the asked kind: "The Wi-Fi has a new password: …"."""
    renewed = frozenset().union(*(sentence.renewed for sentence in newer.part.sentences))
    common = (newer.words & older.words) - filler_words() - general_words()
    shapes = asked.shapes & newer.part.shapes & older.part.shapes
    missing = older.part.covered - newer.covered - general_words()
    return bool(shapes) and bool(common) and not missing and bool(asked.words.find_in(renewed))


def _is_near_in_session(newer: AnswerRow, older: AnswerRow) -> bool:
    is_same_session = newer.session_id is not None and newer.session_id == older.session_id
    return is_same_session and 0 < newer.position - older.position <= MAX_REFERENCE_DISTANCE


def _contradicts(new: Sentence, old: Sentence, asked: AskedQuestion, topic: _Topic) -> bool:
    """Return whether a sentence says something else than an older one."""
    if new.words <= old.words and not new.negated:
        return False  # it repeats the older one
    return (
        _states_same_property(new, old, asked.properties)
        or _revokes(new, old)
        or (topic.is_same and topic.is_about_same and topic.is_asked and _changes(new, old))
        or (new.is_revision and topic.is_revised and bool(topic.common))
        or (asked.is_polar and topic.is_same and _answers_yes_or_no(new, old, asked))
        or (topic.is_sure and new.is_state and topic.is_about_same and topic.is_asked)
        or _names_old_value(new, old)
        or (topic.is_near_in_session and _corrects(new, old))
    )


def _answers_yes_or_no(new: Sentence, old: Sentence, asked: AskedQuestion) -> bool:
    """Return whether a sentence is about the subject of the question, as the older one is.

    Of a subject without words that tell much, such as "my back", only a change is taken for an answer.
    """
    if not new.subject:
        return new.has_change
    return new.subject <= old.words & asked.words.words


def _names_old_value(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence says that the value of the older one is wrong: "on Saturday instead of Friday"."""
    common = (new.words & old.words) - filler_words() - new.negated
    return bool(new.negated & old.words) and len(common) > 1


def leaves_alone(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion) -> bool:
    """Return whether a row, even if it corrects an older one, says nothing about what the question asks for."""
    return (
        _misses_point(newer.part, older.part, asked)
        or _misses_name(newer, older, asked)
        or _is_about_other_day(newer, older, asked)
        or _changes_other_value(newer, older, asked)
    )


def _misses_point(newer: Part, older: Part, asked: AskedQuestion) -> bool:
    """Return whether only the older part has the kind of value that is asked for, and is not revoked."""
    # What is called off has no time or place any more, but a phone number stays the same.
    is_revoked = newer.is_revocation and not asked.shapes & {"code", "reason"}
    return bool(asked.shapes & older.shapes) and not asked.shapes & newer.shapes and not is_revoked


def _misses_name(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion) -> bool:
    """Return whether the question asks for a name, and the newer row has no other one than the older row.

    That the dentist's appointment is on Thursday does not change who the dentist is.
    """
    if "name" not in asked.words.kinds or not older.part.names - asked.words.words or newer.part.is_revocation:
        return False
    return not newer.possible_names - older.words - asked.words.words - filler_words() - general_words()


def _is_about_other_day(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion) -> bool:
    """Return whether the question names a day that only the older row has, and the newer one has another, unchanged.

    "The meeting on Tuesday is in room 5" says nothing about the meeting on Monday.
    """
    days = asked.words.words & older.words & calendar_words()
    return bool(days - newer.words) and bool(newer.words & calendar_words()) and not newer.part.has_change


def _changes_other_value(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion) -> bool:
    """Return whether a row has nothing new but a day, a time or a number, and the question asks for something else.

    "My sister's wedding is on 21 June" does not change the dress code of the wedding.
    """
    added = newer.part.words - older.part.words - filler_words() - calendar_words()
    if any(not word.isdigit() for word in added) or not newer.part.shapes & {"day", "time", "number"}:
        return False
    if asked.words.kinds:
        return asked.words.kinds.isdisjoint(newer.part.shapes)
    return not newer.part.is_revocation and bool(older.part.covered - newer.covered - general_words())


def drops_value(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion) -> bool:
    """Return whether a row names the value of the older one as dropped, and a new one."""
    if asked.shapes - {"place", "origin"} and _misses_point(newer.part, older.part, asked):
        return False
    dropped = (newer.replaced - asked.words.words) & (older.part.words if older.is_long else older.words)
    # A question for something else of the older text shares little with the new value: "Which channel is for alarms?"
    is_near = newer.similarity >= MIN_DROPPED_SIMILARITY or any(
        sentence.owner == AUTHOR and sentence.properties & asked.properties for sentence in newer.part.sentences
    )
    return bool(dropped) and is_near and asked.names <= newer.words


def _moves(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion, topic: _Topic) -> bool:
    """Return whether a row with a word of change has another time, place or code for the thing that is asked for."""
    new, old = newer.part, older.part
    if not new.has_change or not topic.is_near or not topic.common:
        return False
    if len(topic.missing) > (MAX_MISSING_WORDS if new.is_revision or topic.is_sure else 1):
        return False
    shapes = asked.shapes & new.shapes & old.shapes
    if shapes & {"code"}:
        return len(topic.common) > 1 or (new.is_revision and not topic.missing)
    return bool(shapes - {"number", "reason"}) and bool((newer.words & old.words & asked.words.words) - filler_words())


def _restates(newer: AnswerRow, older: AnswerRow, asked: AskedQuestion, topic: _Topic, cosine: float) -> bool:
    """Return whether a row says as much about the question, with another day or time."""
    new, old = newer.part, older.part
    shapes = asked.shapes & new.shapes & old.shapes & {"day", "time"}
    is_about_same = topic.is_same and topic.has_same_words and cosine >= RESTATED_COSINE
    return is_about_same and bool(shapes) and not new.words <= old.words


def _states_same_property(new: Sentence, old: Sentence, asked: frozenset[str]) -> bool:
    """Return whether two sentences are about the property of their author that is asked for, such as the residence."""
    is_same_person = new.owner == old.owner == AUTHOR
    return is_same_person and bool(new.properties & old.properties & asked) and new.value != old.value


def _revokes(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence says nothing but that the thing of the older one has changed: "The offsite is off"."""
    return new.has_change and bool(new.thing) and new.thing <= old.words


def _succeeds(new: Part, older: AnswerRow, asked: AskedQuestion, topic: _Topic) -> bool:
    """Return whether somebody took the place of the one whom the older row names: "Jonas took over from Priya"."""
    if "name" not in asked.words.kinds or not topic.is_near or len((new.words & older.words) - filler_words()) < 2:
        return False
    return any(sentence.is_succession for sentence in new.sentences)


def _changes_hands(new: Part, old: Part, asked: AskedQuestion, topic: _Topic) -> bool:
    """Return whether a thing has another holder, if the question asks who has it.

    "The spare key is with Mrs Doherty", and then "Mrs Doherty moved away, the key is with Tom now".
    """
    is_near = topic.is_near and bool(topic.common) and len(topic.missing) <= 1
    holders = (new.words & old.words) - asked.words.words - filler_words() - general_words()
    return asked.is_about_holder and new.has_change and is_near and bool(holders)


def _adjusts(new: Part, old: Part, asked: AskedQuestion) -> bool:
    """Return whether a part has another value of the asked kind for "it": "Aviva put it up to 455"."""
    shapes = asked.shapes & new.shapes & old.shapes
    common = (new.words & old.words) - filler_words() - general_words()
    return bool(shapes) and bool(common) and any(sentence.is_adjustment for sentence in new.sentences)


def _returns(new: Part, old: Part, asked: AskedQuestion) -> bool:
    """Return whether a thing is back that was lent, or lay somewhere else, if the question asks where it is."""
    is_back = any(sentence.is_return for sentence in new.sentences)
    was_away = any(sentence.is_absence for sentence in old.sentences)
    return "place" in asked.shapes and is_back and was_away and bool((new.covered & old.covered) - filler_words())


def _changes(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence has a word of change, or states another value of the same kind for the same thing."""
    common = (new.words & old.words) - filler_words()
    if new.has_change or new.negated & old.words:
        return bool(common)
    return bool(new.subject) and new.subject == old.subject and bool(new.shapes & old.shapes)


def _corrects(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence corrects what was just said, without naming it again."""
    if not new.refers_back or not (new.has_change or new.negated):
        return False
    return bool((new.words & old.words) - filler_words() or new.negated & old.words)
