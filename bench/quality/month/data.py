"""The data of a month: people with notes, talks and questions. README.md describes the format of the folder."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bench.quality.month.texts import DATE_PREFIX, holds
from rem.db.yaml import load_yaml
from rem.errors import InvalidInputError
from rem.evals.json_files import read_bytes, require_path, validate_model
from rem.models.message import Role

Group: TypeAlias = Literal[
    "just_said",
    "other_session",
    "note",
    "table_cell",
    "corrected",
    "identifier",
    "who_is",
    "list",
    "count",
    "two_hops",
    "time",
    "yes_no",
    "unanswerable",
    "typo",
    "preference",
    "sum",
    "follow_up",
]
GROUPS: tuple[Group, ...] = get_args(Group)
SHIPPED_MONTHS = ("one", "two")
"""The months in this folder."""
MINUTES_PER_MESSAGE = 1


def _require_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value


def _check_expected(value: str) -> str:
    if value.startswith(DATE_PREFIX):
        date.fromisoformat(value.removeprefix(DATE_PREFIX))
    return _require_text(value)


def _to_message(value: Any) -> Any:
    """Convert `{user: text}` or `{assistant: text}` to the fields of a message."""
    if isinstance(value, dict) and len(value) == 1:
        ((role, text),) = value.items()
        return {"role": role, "text": text}
    raise ValueError("must be `user: text` or `assistant: text`")


def _to_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _to_utc(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


_Text = Annotated[str, AfterValidator(_require_text)]
_Expected = Annotated[str, AfterValidator(_check_expected)]
Requirement: TypeAlias = Annotated[list[_Expected], BeforeValidator(_to_list), Field(min_length=1)]
"""Alternatives, of which the answer must contain one."""
_Texts = Annotated[list[_Text], BeforeValidator(_to_list)]


class _MonthPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class TalkMessage(_MonthPart):
    """A message of a talk."""

    role: Literal[Role.USER, Role.ASSISTANT]
    text: _Text


class MonthTalk(_MonthPart):
    """A conversation on a day of the month."""

    id: _Text
    at: Annotated[datetime, AfterValidator(_to_utc)]
    messages: Annotated[list[Annotated[TalkMessage, BeforeValidator(_to_message)]], Field(min_length=2)]

    @property
    def text(self) -> str:
        """All messages."""
        return "\n".join(message.text for message in self.messages)

    def time_of(self, index: int) -> datetime:
        """Return the time of a message."""
        return self.at + timedelta(minutes=MINUTES_PER_MESSAGE * index)


class Computation(_MonthPart):
    """How an expected value follows from the sources, so that a check can compute it again."""

    do: Literal["sum", "count", "max", "min", "list", "date"]
    file: str | None = None
    """The note with the rows: CSV, a Markdown table, or list items."""
    under: str | None = None
    """The heading of the Markdown note below which the rows are."""
    items: Literal["all", "open", "done"] | None = None
    """List items instead of the rows of a table; `open` and `done` are those with an empty or a ticked box."""
    column: str | None = None
    give: str | None = None
    """For `max` and `min`: the column that names the row; for `list`: the column to list."""
    where: dict[str, str] = Field(default_factory=dict)
    """Conditions on columns: a text that the cell contains, or a number after `>`, `>=`, `<`, `<=`."""
    values: list[_Text] = Field(default_factory=list)
    """Texts of the sources, instead of rows."""
    talk: str | None = None
    words: str | None = None
    days: int | None = None
    """For `date`: in `talk`, `words` (“last Friday”) mean the day of the talk plus `days`."""


class MonthQuestion(_MonthPart):
    """A question, and what the answer to it must and must not contain."""

    id: _Text
    group: Group
    ask: _Text
    expect: list[Requirement] = Field(default_factory=list)
    """The answer contains one alternative of each."""
    forbidden: list[_Expected] = Field(default_factory=list, alias="not")
    """Outdated or wrong values, which the first words of the answer must not contain."""
    source: _Texts = Field(default_factory=list)
    """The notes and talks that hold the expected texts."""
    superseded: _Texts = Field(default_factory=list)
    """The notes and talks that hold the outdated values, if other than the sources."""
    compute: Computation | None = None
    absent: list[_Text] = Field(default_factory=list)
    """For an unanswerable question: words that an answer would need, and that no text of the person contains."""
    after: _Texts = Field(default_factory=list)
    """Questions that are asked before it in the same session."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.group == "unanswerable":
            if not self.absent or self.expect or self.compute:
                raise ValueError(f"{self.id}: an unanswerable question has `absent`, and no `expect` or `compute`")
        elif not self.expect or not self.source:
            raise ValueError(f"{self.id}: `expect` or `source` is missing")
        if self.group == "just_said" and len(self.source) != 1:
            raise ValueError(f"{self.id}: `just_said` has one source, the talk in which it is asked")
        if bool(self.after) != (self.group == "follow_up"):
            raise ValueError(f"{self.id}: `follow_up` has `after`, and no other group has")
        return self

    @property
    def is_answerable(self) -> bool:
        """Whether the memory holds the answer."""
        return self.group != "unanswerable"

    def is_answered_by(self, text: str) -> bool:
        """Return whether the text contains everything that is expected."""
        return all(any(holds(text, alternative) for alternative in requirement) for requirement in self.expect)

    def is_wrong_in(self, text: str) -> bool:
        """Return whether the text contains a forbidden value."""
        return any(holds(text, value) for value in self.forbidden)


class MonthNote(_MonthPart):
    """A file, and the day on which it was written."""

    name: _Text
    written: date
    text: _Text


class MonthPerson(_MonthPart):
    """The owner of a memory: notes, talks, and questions about both."""

    user: Annotated[str, Field(pattern=r"^[\w.+-]+@example\.(com|org|net)$")]
    about: _Text
    notes: list[MonthNote]
    talks: list[MonthTalk]
    questions: list[MonthQuestion]

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        if [talk.at for talk in self.talks] != sorted(talk.at for talk in self.talks):
            raise ValueError("talks: must be in the order of their times")
        talks = {talk.id for talk in self.talks}
        names = {note.name for note in self.notes} | talks
        for question in self.questions:
            unknown = [name for name in (*question.source, *question.superseded) if name not in names]
            if unknown:
                raise ValueError(f"{question.id}: there is no note or talk {unknown[0]!r}")
            if question.group == "just_said" and question.source[0] not in talks:
                raise ValueError(f"{question.id}: {question.source[0]!r} is not a talk")
        return self

    def text_of(self, source: str) -> str:
        """Return the text of a note or a talk."""
        texts = {note.name: note.text for note in self.notes} | {talk.id: talk.text for talk in self.talks}
        return texts[source]


class Month(_MonthPart):
    """The people of a month."""

    name: _Text
    people: Annotated[list[MonthPerson], Field(min_length=1)]

    @property
    def questions(self) -> list[MonthQuestion]:
        """The questions of all people."""
        return [question for person in self.people for question in person.questions]

    def keep_groups(self, groups: list[str]) -> Month:
        """Return the month with only the questions of some groups."""
        people = [
            person.model_copy(update={"questions": [item for item in person.questions if item.group in groups]})
            for person in self.people
        ]
        return self.model_copy(update={"people": people})


def read_month(path: Path | None = None, number: int = 1) -> Month:
    """Read a month from a folder with a folder for each person; without one, a month of the repository."""
    folder = path or Path(__file__).parent / SHIPPED_MONTHS[number - 1]
    require_path(folder)
    people = [_read_person(file.parent) for file in sorted(folder.glob("*/person.yaml"))]
    return validate_model(Month, {"name": folder.name, "people": people}, str(folder))


def _read_person(folder: Path) -> MonthPerson:
    value = _read_yaml(folder / "person.yaml")
    written = value.pop("written", {})
    default = value.pop("notes_before", None)
    files = sorted(file for file in (folder / "notes").rglob("*") if file.is_file())
    names = [file.relative_to(folder / "notes").as_posix() for file in files]
    unknown = set(written) - set(names)
    if unknown:
        raise InvalidInputError(f"{folder}/person.yaml: written: there is no note {min(unknown)!r}")
    notes = [
        {"name": name, "written": written.get(name, default), "text": file.read_text(encoding="utf-8")}
        for name, file in zip(names, files, strict=True)
    ]
    rest = {
        "notes": notes,
        "talks": _read_yaml(folder / "talks.yaml"),
        "questions": _read_yaml(folder / "questions.yaml"),
    }
    return validate_model(MonthPerson, {**value, **rest}, str(folder))


def _read_yaml(path: Path) -> Any:
    require_path(path)
    try:
        return load_yaml(read_bytes(path).decode("utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInputError(f"{path} is not YAML: {' '.join(str(error).split())}.") from error
