"""Read a user's own corpus and questions, as JSON lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator

from bench.quality.dataset import Case, Dataset, DatasetMessage, DatasetSession, DatasetText, Question
from rem.context import Scope
from rem.errors import InvalidInputError
from rem.evals.json_files import parse_json, read_bytes, require_path, validate_model
from rem.models import Role
from rem.models.field_types import UtcDateTime, check_label, check_text, utc_now

METRICS = ("recall@1", "recall@5", "recall@10", "recall_all@5", "mrr@10")
DEFAULT_USER = "me"
DEFAULT_KIND = "none"


def _number_to_text(value: Any) -> Any:
    """Convert integers to text, because ids are often numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _require_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return check_text(value)


def _require_past(value: datetime) -> datetime:
    if value > utc_now():
        raise ValueError("is in the future")
    return value


def _require_user(value: str) -> str:
    try:
        Scope.for_user(value)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error
    return value


_NonBlankText = Annotated[str, AfterValidator(_require_text)]
_Id = Annotated[_NonBlankText, BeforeValidator(_number_to_text)]
_User = Annotated[_NonBlankText, AfterValidator(_require_user)]


class _CorpusLine(BaseModel):
    """A line of the corpus. It refuses what the store would refuse, because here the line number is known."""

    model_config = ConfigDict(extra="forbid")

    id: _Id
    text: _NonBlankText
    session: _Id | None = None
    role: Role = Role.USER
    time: Annotated[UtcDateTime, AfterValidator(_require_past)] | None = None
    user: _User | None = None

    @model_validator(mode="after")
    def _require_key(self) -> Self:
        if self.session is None:
            try:
                check_label(self.id)
            except ValueError as error:
                raise ValueError(f"id: {error}") from error
        return self


class _QuestionLine(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: _NonBlankText
    expected: list[_Id]
    id: _Id | None = None
    kind: _NonBlankText | None = None
    user: _User | None = None


@dataclass(slots=True)
class _UserData:
    """The lines of one user."""

    line_by_id: dict[str, int] = field(default_factory=dict)
    """The line number of each id."""
    texts: list[DatasetText] = field(default_factory=list)
    sessions: dict[str, list[DatasetMessage]] = field(default_factory=lambda: defaultdict(list))
    questions: list[Question] = field(default_factory=list)


def read_dataset(corpus: Path, questions: Path, limit: int | None = None) -> Dataset:
    """Return one case for each user of the corpus, with the questions; with `limit`, only the first questions."""
    data_by_user: dict[str, _UserData] = defaultdict(_UserData)
    for number, value in _read_json_lines(corpus):
        where = f"{corpus}:{number}"
        _add_line(data_by_user, validate_model(_CorpusLine, value, where), number, where)
    question_ids: set[str] = set()
    for number, value in list(_read_json_lines(questions))[:limit]:
        where = f"{questions}:{number}"
        _add_question(data_by_user, validate_model(_QuestionLine, value, where), number, where, question_ids)
    cases = tuple(_build_case(user, data) for user, data in data_by_user.items())
    return Dataset("own", cases, _common_table(cases), "id", METRICS)


def _read_json_lines(path: Path) -> Iterator[tuple[int, Any]]:
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


def _add_line(data_by_user: dict[str, _UserData], line: _CorpusLine, number: int, where: str) -> None:
    user = line.user or DEFAULT_USER
    data = data_by_user[user]
    if line.id in data.line_by_id:
        raise InvalidInputError(f"{where}: the id {line.id!r} is also on line {data.line_by_id[line.id]}.")
    data.line_by_id[line.id] = number
    if line.session is None:
        data.texts.append(DatasetText(line.id, line.text, line.time))
    else:
        messages = data.sessions[line.session]
        messages.append(DatasetMessage(line.id, len(messages), line.role, line.text, line.time))


def _add_question(
    data_by_user: dict[str, _UserData], line: _QuestionLine, number: int, where: str, question_ids: set[str]
) -> None:
    user = line.user or DEFAULT_USER
    if user not in data_by_user:
        owner = f"of the user {user!r}" if line.user else "without a user, and the question names none"
        raise InvalidInputError(f"{where}: the corpus has no line {owner}.")
    data = data_by_user[user]
    unknown = [expected for expected in line.expected if expected not in data.line_by_id]
    if unknown:
        raise InvalidInputError(f"{where}: the expected id {unknown[0]!r} is not in the corpus of this user.")
    question_id = line.id or f"line {number}"
    if question_id in question_ids:
        raise InvalidInputError(f"{where}: another question has the id {question_id!r}.")
    question_ids.add(question_id)
    gold = tuple(dict.fromkeys(line.expected))
    data.questions.append(Question(question_id, line.question, line.kind or DEFAULT_KIND, gold))


def _build_case(user: str, data: _UserData) -> Case:
    sessions = tuple(DatasetSession(name, messages[0].at, tuple(messages)) for name, messages in data.sessions.items())
    return Case(user, tuple(data.questions), sessions, tuple(data.texts))


def _common_table(cases: tuple[Case, ...]) -> str | None:
    """Return the table of all rows, or None if there are resources and messages."""
    has_texts = any(case.texts for case in cases)
    has_messages = any(case.sessions for case in cases)
    if has_texts and has_messages:
        return None
    return "messages" if has_messages else "resources"
