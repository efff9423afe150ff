"""Episodes: splits the statements of a session into runs of messages that belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from rem.dreams.moments.people import list_speakers
from rem.dreams.run import SourceMessage
from rem.dreams.text.words import extract_content_words
from rem.message_kinds import continues_earlier
from rem.text import compute_word_cosine

if TYPE_CHECKING:
    from rem.search.embedder import Vector

LOOKAHEAD_MESSAGES = 2
"""Messages from a position on that decide whether a new topic begins there. Later messages do not matter."""
LOOKBEHIND_MESSAGES = 4
"""Messages before a position that they are compared with."""
MAX_EPISODE_MESSAGES = 40
MAX_EPISODE_CHARS = 16_000
MIN_TOPIC_COSINE = 0.28
"""Below it, two neighbouring groups of messages have different topics. Measured on sessions of LongMemEval with
their answers that were joined end to end: nine of ten joints are found, and 3 in 100 other positions are taken for
one."""
MIN_TOPIC_WORDS = 10
"""Content words on each side of a position: fewer do not tell a topic."""
MIN_TOPIC_WORDS_WITHOUT_VECTORS = 12
MIN_STATEMENT_COSINE = 0.3
"""Two statements about the same thing have at least this cosine. Measured on ten sessions of single statements."""
MIN_MIXED_MESSAGES = 3
MIN_CONTENT_WORDS = 2
"""Distinct content words of an episode that says something."""
MAX_MESSAGE_CHARS = 4000
"""Characters of a message that are read for content words."""
MAX_MESSAGE_WEIGHT = 30
"""Content words: a very long message does not outweigh all others."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Messages of one session with statements that belong together."""

    messages: tuple[SourceMessage, ...]
    is_mixed: bool = False
    """Whether they are separate statements about different things, told one after the other."""

    @property
    def first_index(self) -> int:
        """Index of the first message."""
        return self.messages[0].index

    @property
    def last_index(self) -> int:
        """Index of the last message."""
        return self.messages[-1].index

    @property
    def starts_at(self) -> datetime:
        """Time of the earliest message; messages may be out of order."""
        return min(message.created_at for message in self.messages)

    @property
    def ends_at(self) -> datetime:
        """Time of the latest message."""
        return max(message.created_at for message in self.messages)

    @property
    def chars(self) -> int:
        """Number of characters."""
        return sum(len(message.content) for message in self.messages)

    @property
    def is_meaningful(self) -> bool:
        """Return whether its statements have at least two content words."""
        return len({word for message in self.messages for word in _get_words(message)}) >= MIN_CONTENT_WORDS


def is_pause(before: SourceMessage, after: SourceMessage, pause: timedelta) -> bool:
    """Return whether so much time lies between two messages that the second begins a new episode."""
    return abs(after.created_at - before.created_at) > pause


def split_into_episodes(
    messages: Sequence[SourceMessage], vectors: Mapping[UUID, Vector] | None, pause: timedelta
) -> list[Episode]:
    """Return the episodes of consecutive messages, from left to right.

    Whether an episode begins at a position depends only on the messages since the previous one began and on the next
    few messages. So the result is the same if splitting starts at the beginning of any episode.
    """
    episodes: list[Episode] = []
    start = 0
    for position in range(1, len(messages) + 1):
        if position == len(messages) or _begins_episode(messages, start, position, vectors, pause):
            episode = tuple(messages[start:position])
            episodes.append(Episode(episode, _is_mixed(episode, vectors)))
            start = position
    return episodes


def _begins_episode(
    messages: Sequence[SourceMessage],
    start: int,
    position: int,
    vectors: Mapping[UUID, Vector] | None,
    pause: timedelta,
) -> bool:
    if is_pause(messages[position - 1], messages[position], pause):
        return True
    if position - start >= MAX_EPISODE_MESSAGES:
        return True
    if sum(len(message.content) for message in messages[start:position]) >= MAX_EPISODE_CHARS:
        return True
    left = messages[max(start, position - LOOKBEHIND_MESSAGES) : position]
    right = _cut_at_pause(messages[position : position + LOOKAHEAD_MESSAGES], pause)
    return _have_different_topics(left, right, vectors)


def _is_mixed(messages: Sequence[SourceMessage], vectors: Mapping[UUID, Vector] | None) -> bool:
    """Return whether most of the statements have nothing to do with the others.

    People tell REM one thing after the other: a gate code, an allergy, a birthday. In a dialogue, each message answers
    the one before it.
    """
    if vectors is None or len(messages) < MIN_MIXED_MESSAGES or list_speakers(other.metadata for other in messages):
        return False
    alone = sum(
        _stands_alone(message, [other for other in messages if other is not message], vectors) for message in messages
    )
    return 2 * alone > len(messages)


def _stands_alone(message: SourceMessage, others: Sequence[SourceMessage], vectors: Mapping[UUID, Vector]) -> bool:
    """Return whether a message neither continues another one nor shares a word or the meaning with it."""
    if message.id not in vectors or continues_earlier(message.content):
        return False
    words = set(_get_words(message))
    return not any(
        words & set(_get_words(other))
        or other.id not in vectors
        or float(vectors[message.id] @ vectors[other.id]) >= MIN_STATEMENT_COSINE
        for other in others
    )


def _cut_at_pause(messages: Sequence[SourceMessage], pause: timedelta) -> Sequence[SourceMessage]:
    """Return the messages before the first pause."""
    for position in range(1, len(messages)):
        if is_pause(messages[position - 1], messages[position], pause):
            return messages[:position]
    return messages


def _have_different_topics(
    left: Sequence[SourceMessage], right: Sequence[SourceMessage], vectors: Mapping[UUID, Vector] | None
) -> bool:
    counts = [Counter(word for message in side for word in _get_words(message)) for side in (left, right)]
    if vectors is None:
        return min(map(len, counts)) >= MIN_TOPIC_WORDS_WITHOUT_VECTORS and compute_word_cosine(*counts) == 0
    if min(map(len, counts)) < MIN_TOPIC_WORDS:
        return False
    means = [_compute_mean(side, vectors) for side in (left, right)]
    return means[0] is not None and means[1] is not None and float(means[0] @ means[1]) < MIN_TOPIC_COSINE


def _compute_mean(messages: Sequence[SourceMessage], vectors: Mapping[UUID, Vector]) -> Vector | None:
    """Return the mean of the messages' vectors with length 1, weighted by content words; None if there is none."""
    weighted = [(vectors[message.id], len(set(_get_words(message)))) for message in messages if message.id in vectors]
    weighted = [(vector, min(weight, MAX_MESSAGE_WEIGHT)) for vector, weight in weighted if weight]
    if not weighted:
        return None
    import numpy as np

    total: Vector = np.stack([vector * np.float32(weight) for vector, weight in weighted]).sum(axis=0)
    length = float(np.linalg.norm(total))
    mean: Vector = total / np.float32(length or 1)
    return mean if length else None


def _get_words(message: SourceMessage) -> tuple[str, ...]:
    return _extract_words(message.content[:MAX_MESSAGE_CHARS])


@lru_cache(maxsize=1024)
def _extract_words(text: str) -> tuple[str, ...]:
    # Each message is read from several positions.
    return tuple(extract_content_words(text))
