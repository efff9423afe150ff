"""A corpus and questions of one's own, as JSON lines: a memory measured by the people who use it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator

from rem.context import Scope
from rem.errors import InvalidInputError
from rem.evals.dataset import Case, Dataset, DatasetMessage, DatasetSession, DatasetText, Question
from rem.evals.datasets.json_files import parse_json, read_bytes, require_path, validate_model
from rem.models import Role
from rem.models.field_types import UtcDateTime, check_label, check_text, utc_now

METRICS = ("recall@1", "recall@5", "recall@10", "recall_all@5", "mrr@10")
_NOBODY = "me"
_NO_KIND = "none"


def _as_text(value: Any) -> Any:
    """Ids are often numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return check_text(value)


def _past(value: datetime) -> datetime:
    if value > utc_now():
        raise ValueError("is in the future")
    return value


def _user(value: str) -> str:
    try:
        Scope.for_user(value)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error
    return value


_Words = Annotated[str, AfterValidator(_not_blank)]
_Id = Annotated[_Words, BeforeValidator(_as_text)]
_User = Annotated[_Words, AfterValidator(_user)]


class _Line(BaseModel):
    """What the store would refuse is refused here, where the line is known."""

    model_config = ConfigDict(extra="forbid")

    id: _Id
    text: _Words
    session: _Id | None = None
    role: Role = Role.USER
    time: Annotated[UtcDateTime, AfterValidator(_past)] | None = None
    user: _User | None = None

    @model_validator(mode="after")
    def _text_can_be_named_by_id(self) -> Self:
        if self.session is None:
            try:
                check_label(self.id)
            except ValueError as error:
                raise ValueError(f"id: {error}") from error
        return self


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: _Words
    expected: list[_Id]
    id: _Id | None = None
    kind: _Words | None = None
    user: _User | None = None


@dataclass(slots=True)
class _Memory:
    """What one user's lines come to."""

    lines: dict[str, int] = field(default_factory=dict)
    """The number of each id's line."""
    texts: list[DatasetText] = field(default_factory=list)
    sessions: dict[str, list[DatasetMessage]] = field(default_factory=lambda: defaultdict(list))
    questions: list[Question] = field(default_factory=list)


def read_dataset(corpus: Path, questions: Path, limit: int | None = None) -> Dataset:
    """The memories of a corpus, one for each user in it, and the questions, or the first few of them."""
    memories: dict[str, _Memory] = defaultdict(_Memory)
    for number, value in _json_lines(corpus):
        where = f"{corpus}:{number}"
        _remember(memories, validate_model(_Line, value, where), number, where)
    known: set[str] = set()
    for number, value in list(_json_lines(questions))[:limit]:
        where = f"{questions}:{number}"
        _ask(memories, validate_model(_Asked, value, where), number, where, known)
    cases = tuple(_case(user, memory) for user, memory in memories.items())
    return Dataset("own", cases, _table(cases), "id", METRICS)


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    require_path(path)
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder: name a file of JSON lines.")
    count = 0
    for number, line in enumerate(read_bytes(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            count += 1
            yield number, parse_json(line, f"{path}:{number}")
    if not count:
        raise InvalidInputError(f"{path} is empty: write one JSON object on each line.")


def _remember(memories: dict[str, _Memory], line: _Line, number: int, where: str) -> None:
    user = line.user or _NOBODY
    memory = memories[user]
    if line.id in memory.lines:
        raise InvalidInputError(f"{where}: the id {line.id!r} is that of line {memory.lines[line.id]} too.")
    memory.lines[line.id] = number
    if line.session is None:
        memory.texts.append(DatasetText(line.id, line.text, line.time))
    else:
        turns = memory.sessions[line.session]
        turns.append(DatasetMessage(line.id, len(turns), line.role, line.text, line.time))


def _ask(memories: dict[str, _Memory], asked: _Asked, number: int, where: str, known: set[str]) -> None:
    user = asked.user or _NOBODY
    if user not in memories:
        whose = f"of the user {user!r}" if asked.user else "without a user, and the question names none"
        raise InvalidInputError(f"{where}: the corpus has no line {whose}.")
    memory = memories[user]
    unknown = [expected for expected in asked.expected if expected not in memory.lines]
    if unknown:
        raise InvalidInputError(f"{where}: this memory has nothing with the id {unknown[0]!r}, which is expected.")
    question_id = asked.id or f"line {number}"
    if question_id in known:
        raise InvalidInputError(f"{where}: there is a question with the id {question_id!r} before.")
    known.add(question_id)
    gold = tuple(dict.fromkeys(asked.expected))
    memory.questions.append(Question(question_id, asked.question, asked.kind or _NO_KIND, gold))


def _case(user: str, memory: _Memory) -> Case:
    conversations = tuple(DatasetSession(name, turns[0].at, tuple(turns)) for name, turns in memory.sessions.items())
    return Case(user, tuple(memory.questions), conversations, tuple(memory.texts))


def _table(cases: tuple[Case, ...]) -> str | None:
    """The one table that everything is in, if it is one."""
    has_texts = any(case.texts for case in cases)
    has_messages = any(case.conversations for case in cases)
    if has_texts and has_messages:
        return None
    return "messages" if has_messages else "resources"
