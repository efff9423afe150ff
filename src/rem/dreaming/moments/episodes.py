"""Episodes: a conversation in stretches that somebody would remember as one thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from rem.dreaming.run import SourceMessage
from rem.dreaming.text.words import extract_content_words
from rem.text import compute_word_cosine

if TYPE_CHECKING:
    from rem.embeddings import Vector

LOOKAHEAD_MESSAGES = 4
"""So many messages from a place on decide whether a new topic begins there; more of them change nothing."""
MAX_EPISODE_MESSAGES = 40
MAX_EPISODE_CHARS = 16_000
_LEFT_MESSAGES = 6
MIN_TOPIC_COSINE = 0.28
"""Two neighbouring stretches that are less alike are about different things. Measured where conversations of
LongMemEval were put end to end: nine of ten seams are found, and 3 in 100 of the places inside are taken for one."""
_LEAST_ON_A_SIDE = 10
"""Content words: fewer do not tell a topic."""
_LEAST_BY_WORDS = 12
_READ_OF_MESSAGE = 4000


@dataclass(frozen=True, slots=True)
class Episode:
    """Neighbouring messages of one conversation."""

    said: tuple[SourceMessage, ...]

    @property
    def first_index(self) -> int:
        """The index of its first message."""
        return self.said[0].index

    @property
    def last_index(self) -> int:
        """The index of its last message."""
        return self.said[-1].index

    @property
    def starts(self) -> datetime:
        """Its earliest message's time; messages may be out of order."""
        return min(message.at for message in self.said)

    @property
    def ends(self) -> datetime:
        """Its latest message's time."""
        return max(message.at for message in self.said)

    @property
    def characters(self) -> int:
        """How long it is."""
        return sum(len(message.content) for message in self.said)

    @property
    def is_meaningful(self) -> bool:
        """Whether it is more than small talk: a person says two things, or an assistant tells a lot."""
        own = {word for message in self.said if _is_person(message) for word in _words(message)}
        if len(own) >= 2:
            return True
        others = {word for message in self.said if not _is_person(message) for word in _words(message)}
        # A question of one word ("Weather?") says something with its answer.
        return len(others) >= (8 if own or not any(_is_person(message) for message in self.said) else 1_000_000)


def is_pause(before: SourceMessage, after: SourceMessage, pause: timedelta) -> bool:
    """Whether so much time lies between two messages that the second begins something new."""
    return abs(after.at - before.at) > pause


def split_into_episodes(
    said: Sequence[SourceMessage], vectors: Mapping[UUID, Vector] | None, pause: timedelta
) -> list[Episode]:
    """The episodes of a conversation, from left to right. Whether one begins at a place depends on what was said since
    the one before began and on the next few messages: cut again from any beginning, the result is the same."""
    episodes: list[Episode] = []
    start = 0
    for place in range(1, len(said) + 1):
        if place == len(said) or _begins(said, start, place, vectors, pause):
            episodes.append(Episode(tuple(said[start:place])))
            start = place
    return episodes


def _begins(
    said: Sequence[SourceMessage], start: int, place: int, vectors: Mapping[UUID, Vector] | None, pause: timedelta
) -> bool:
    if is_pause(said[place - 1], said[place], pause):
        return True
    if place - start >= MAX_EPISODE_MESSAGES:
        return True
    if not _is_person(said[place]):
        # An answer belongs to its question.
        return False
    if sum(len(message.content) for message in said[start:place]) >= MAX_EPISODE_CHARS:
        return True
    left = said[max(start, place - _LEFT_MESSAGES) : place]
    right = _before_pause(said[place : place + LOOKAHEAD_MESSAGES], pause)
    return _shifts(left, right, vectors)


def _before_pause(said: Sequence[SourceMessage], pause: timedelta) -> Sequence[SourceMessage]:
    for place in range(1, len(said)):
        if is_pause(said[place - 1], said[place], pause):
            return said[:place]
    return said


def _shifts(
    left: Sequence[SourceMessage], right: Sequence[SourceMessage], vectors: Mapping[UUID, Vector] | None
) -> bool:
    bags = [Counter(word for message in side for word in _words(message)) for side in (left, right)]
    if vectors is None:
        return min(map(len, bags)) >= _LEAST_BY_WORDS and compute_word_cosine(*bags) == 0
    if min(map(len, bags)) < _LEAST_ON_A_SIDE:
        return False
    means = [_mean(side, vectors) for side in (left, right)]
    return means[0] is not None and means[1] is not None and float(means[0] @ means[1]) < MIN_TOPIC_COSINE


def _mean(said: Sequence[SourceMessage], vectors: Mapping[UUID, Vector]) -> Vector | None:
    """The middle of messages, where a longer one counts more; its length is 1."""
    weighed = [(vectors[message.id], len(set(_words(message)))) for message in said if message.id in vectors]
    weighed = [(vector, min(weight, 30)) for vector, weight in weighed if weight]
    if not weighed:
        return None
    import numpy as np

    total: Vector = np.stack([vector * np.float32(weight) for vector, weight in weighed]).sum(axis=0)
    length = float(np.linalg.norm(total))
    mean: Vector = total / np.float32(length or 1)
    return mean if length else None


def _is_person(message: SourceMessage) -> bool:
    return message.is_persons


def _words(message: SourceMessage) -> tuple[str, ...]:
    return _words_of(message.content[:_READ_OF_MESSAGE])


@lru_cache(maxsize=1024)
def _words_of(text: str) -> tuple[str, ...]:
    # Each message is looked at from several places.
    return tuple(extract_content_words(text))
