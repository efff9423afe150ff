"""The data of a week: notes, sessions, questions with their answers, and people. Read it from YAML and check it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, TypeAlias

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from rem.db.yaml import load_yaml
from rem.errors import InvalidInputError
from rem.evals.json_files import read_bytes, require_path, validate_model
from rem.models.field_types import check_text
from rem.models.message import MessageKind
from rem.text import collapse_spaces

DAYS = 7
SHIPPED_WEEKS = ("week.yaml", "week-2.yaml")
"""The weeks in this folder."""
Group: TypeAlias = Literal["just_said", "other_session", "notes", "corrected", "identifiers", "people"]
GROUPS: tuple[Group, ...] = ("just_said", "other_session", "notes", "corrected", "identifiers", "people")
_MESSAGE_KINDS = (MessageKind.STATEMENT, MessageKind.QUESTION, MessageKind.COMMAND, MessageKind.SMALL_TALK)


def _require_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return check_text(value)


def _require_relative_markdown(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or path.suffix != ".md":
        raise ValueError("must be the relative path of a .md file")
    return value


def _to_message(value: Any) -> Any:
    """Convert the short forms `text` and `{question: text}` to the fields of a message."""
    if isinstance(value, str):
        return {"kind": MessageKind.STATEMENT, "text": value}
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _MESSAGE_KINDS:
        ((kind, text),) = value.items()
        return {"kind": kind, "text": text}
    raise ValueError(f"must be a text, or a text after one of {', '.join(_MESSAGE_KINDS)}")


_Text = Annotated[str, AfterValidator(_require_text)]
_Texts = Annotated[list[_Text], Field(min_length=1)]
_Day = Annotated[int, Field(ge=1, le=DAYS)]


class _WeekPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class WeekNote(_WeekPart):
    """A Markdown file. Without a day it was written before the week."""

    file: Annotated[_Text, AfterValidator(_require_relative_markdown)]
    text: _Text
    day: _Day | None = None


class WeekMessage(_WeekPart):
    """A message of the user. A statement may also ask something; the other kinds state nothing."""

    kind: MessageKind
    text: _Text


class WeekSession(_WeekPart):
    """A conversation."""

    id: _Text
    day: _Day
    at: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]
    messages: Annotated[list[Annotated[WeekMessage, BeforeValidator(_to_message)]], Field(min_length=1)]


class WeekQuestion(_WeekPart):
    """A question, and the texts of which one must be in the answer."""

    ask: _Text
    group: Group
    source: _Text
    """The session or the file in which the answer becomes known."""
    answer: _Texts
    outdated: list[_Text] = Field(default_factory=list, alias="not")
    """Texts that must not come before the answer."""
    until: str | None = None
    """The session in which the answer becomes outdated."""

    def is_answered_by(self, text: str) -> bool:
        """Return whether the text contains the answer."""
        return _find_first(self.answer, text) is not None

    def is_outdated_in(self, text: str) -> bool:
        """Return whether the text contains an outdated value before the answer."""
        answer, outdated = _find_first(self.answer, text), _find_first(self.outdated, text)
        return outdated is not None and (answer is None or outdated < answer)


class WeekPerson(_WeekPart):
    """A name that LOOKUP should find after the night of the day on which it is mentioned."""

    name: _Text
    source: _Text


class Week(_WeekPart):
    """A week of one user."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    user: _Text
    notes: list[WeekNote] = Field(default_factory=list)
    sessions: Annotated[list[WeekSession], Field(min_length=1)]
    questions: Annotated[list[WeekQuestion], Field(min_length=1)]
    people: list[WeekPerson] = Field(default_factory=list)

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        names = [note.file for note in self.notes] + [session.id for session in self.sessions]
        if len(set(names)) < len(names):
            name = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{name!r} occurs twice among the files and the sessions")
        if [session.day for session in self.sessions] != sorted(session.day for session in self.sessions):
            raise ValueError("sessions: must be in the order of their days")
        sessions = {session.id for session in self.sessions}
        sources = [(item.ask, item.source) for item in self.questions]
        for label, source in (*sources, *((person.name, person.source) for person in self.people)):
            if source not in names:
                raise ValueError(f"{label!r}: there is no session or file {source!r}")
        for question in self.questions:
            if question.until is not None and question.until not in sessions:
                raise ValueError(f"{question.ask!r}: there is no session {question.until!r}")
        return self

    @property
    def last_day(self) -> int:
        """The day of the last session."""
        return self.sessions[-1].day

    def day_of(self, source: str) -> int:
        """Return the day on which a session takes place or a note is written; 1 for a note from before the week."""
        for session in self.sessions:
            if session.id == source:
                return session.day
        return next(note.day or 1 for note in self.notes if note.file == source)

    def list_sessions(self, day: int) -> list[WeekSession]:
        """Return the sessions of a day."""
        return [session for session in self.sessions if session.day == day]

    def list_notes(self, day: int) -> list[WeekNote]:
        """Return the notes that are ingested on a day. Notes from before the week are ingested on the first day."""
        return [note for note in self.notes if (note.day or 1) == day]

    def list_questions(self, session: WeekSession) -> list[WeekQuestion]:
        """Return the questions to ask at the end of a session, about what was said in it."""
        return [item for item in self.questions if item.source == session.id and item.group != "other_session"]

    def list_known_questions(self, day: int) -> list[WeekQuestion]:
        """Return the questions whose answer is known, and not outdated yet, at the end of a day."""
        return [
            item
            for item in self.questions
            if self.day_of(item.source) <= day and (item.until is None or self.day_of(item.until) > day)
        ]

    def list_texts(self, *kinds: MessageKind) -> list[str]:
        """Return the messages of these kinds."""
        return [message.text for session in self.sessions for message in session.messages if message.kind in kinds]


def read_week(path: Path | None = None, number: int = 1) -> Week:
    """Read a week from a file; without a file, one of the weeks in this folder."""
    if path is None:
        where = SHIPPED_WEEKS[number - 1]
        text = (Path(__file__).parent / where).read_text(encoding="utf-8")
    else:
        require_path(path)
        if path.is_dir():
            raise InvalidInputError(f"{path} is a folder: name the YAML file of a week.")
        text, where = _decode(read_bytes(path), path), str(path)
    try:
        value = load_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidInputError(f"{where} is not YAML: {' '.join(str(error).split())}.") from error
    return validate_model(Week, value, where)


def simplify(text: str) -> str:
    """Return the text in one line and in lower case, with plain apostrophes."""
    return collapse_spaces(text.replace("’", "'")).casefold()


def _find_first(phrases: Sequence[str], text: str) -> int | None:
    """Return the first position at which one of the phrases occurs as whole words, or None."""
    plain = simplify(text)
    matches = (re.search(rf"(?<!\w){re.escape(simplify(phrase))}(?!\w)", plain) for phrase in phrases)
    return min((match.start() for match in matches if match), default=None)


def _decode(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{path} is not UTF-8 text: save it as UTF-8.") from error
