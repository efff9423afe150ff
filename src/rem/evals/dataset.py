"""Case: one memory and the questions that are asked of it. Every data set is a list of cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from rem.errors import InvalidInputError
from rem.models import Role


@dataclass(frozen=True, slots=True)
class DatasetMessage:
    """One message of a conversation."""

    id: str | None
    """The id by which the questions know it; None where they know whole conversations only."""
    index: int
    role: Role
    content: str
    at: datetime | None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetSession:
    """What was said in one sitting."""

    id: str
    at: datetime | None
    turns: tuple[DatasetMessage, ...]


@dataclass(frozen=True, slots=True)
class DatasetText:
    """Something to be remembered that nobody said, such as a document."""

    id: str
    content: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the ids of what should be found. Without such ids the answers are not judged."""

    id: str
    text: str
    kind: str
    gold: tuple[str, ...]
    asked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """The memory of one user with its questions."""

    user: str
    questions: tuple[Question, ...]
    conversations: tuple[DatasetSession, ...] = ()
    texts: tuple[DatasetText, ...] = ()

    @property
    def size(self) -> int:
        """How many messages and texts are remembered."""
        return sum(len(conversation.turns) for conversation in self.conversations) + len(self.texts)


@dataclass(slots=True)
class DroppedCounts:
    """What of a data set cannot be used, and is left out."""

    gold_ids: int = 0
    """Evidence that names nothing in its memory, most often because the id is malformed."""
    blank_messages: int = 0


@dataclass(frozen=True, slots=True)
class Dataset:
    """Cases, and how the answers to their questions are judged."""

    name: str
    cases: tuple[Case, ...]
    table: str | None
    """Where the questions are asked; None for everywhere."""
    id_field: str
    """Where in a row's metadata the id stands that the questions know it by."""
    metrics: tuple[str, ...]
    dropped: DroppedCounts = field(default_factory=DroppedCounts)

    def __post_init__(self) -> None:
        (user, times), *_ = Counter(case.user for case in self.cases).most_common(1) or [("", 0)]
        if times > 1:
            raise InvalidInputError(f"{user} is {times} times in this data set, so its memories would run together.")


def keep_known_gold(ids: list[str], known: set[str], dropped: DroppedCounts) -> tuple[str, ...]:
    """The ids that name something, each once; the others are counted."""
    kept = tuple(dict.fromkeys(gold for gold in ids if gold in known))
    dropped.gold_ids += len(set(ids)) - len(kept)
    return kept
