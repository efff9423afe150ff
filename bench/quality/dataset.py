"""The common form of all data sets: cases, which are memories with questions whose answers are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from rem.errors import InvalidInputError
from rem.models import Role


@dataclass(frozen=True, slots=True)
class DatasetMessage:
    """One message of a session."""

    id: str | None
    """The id that questions expect; None if they expect ids of sessions."""
    index: int
    role: Role
    content: str
    at: datetime | None
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetSession:
    """The messages of one session."""

    id: str
    at: datetime | None
    messages: tuple[DatasetMessage, ...]


@dataclass(frozen=True, slots=True)
class DatasetText:
    """A text that is not a message, such as a document."""

    id: str
    content: str
    at: datetime | None
    title: str | None = None
    """None if it has no title but its id."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question and its gold ids, which are the ids that should be found. Without gold ids it is not scored."""

    id: str
    text: str
    kind: str
    gold: tuple[str, ...]
    asked_at: datetime | None = None
    answer: str | None = None
    """The correct answer in words; for a question that cannot be answered, the reason. None if the data has none."""
    is_answerable: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """The memory of one user, and the questions about it."""

    user: str
    questions: tuple[Question, ...]
    sessions: tuple[DatasetSession, ...] = ()
    texts: tuple[DatasetText, ...] = ()

    @property
    def size(self) -> int:
        """Return the number of messages and texts."""
        return sum(len(session.messages) for session in self.sessions) + len(self.texts)


@dataclass(slots=True)
class DroppedCounts:
    """The number of items of a data set that cannot be used."""

    gold_ids: int = 0
    """Gold ids that do not exist in their memory, mostly because they are malformed."""
    blank_messages: int = 0


@dataclass(frozen=True, slots=True)
class Dataset:
    """Cases, and how the results of their questions are scored."""

    name: str
    cases: tuple[Case, ...]
    table: str | None
    """The table that the questions search; None for all tables."""
    id_field: str
    """The field of a row's metadata with the id that questions expect."""
    metrics: tuple[str, ...]
    dropped: DroppedCounts = field(default_factory=DroppedCounts)

    def __post_init__(self) -> None:
        (user, count), *_ = Counter(case.user for case in self.cases).most_common(1) or [("", 0)]
        if count > 1:
            raise InvalidInputError(f"{user} occurs {count} times in this data set, so its memories would be mixed.")


def keep_known_gold(ids: list[str], known_ids: set[str], dropped: DroppedCounts) -> tuple[str, ...]:
    """Return the known ids, each once, and count the unknown ones in `dropped`."""
    kept = tuple(dict.fromkeys(gold_id for gold_id in ids if gold_id in known_ids))
    dropped.gold_ids += len(set(ids)) - len(kept)
    return kept
