"""The file with the answers: one line of JSON for each question, written at once, so that a run can be resumed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal, TextIO

from pydantic import BaseModel, ConfigDict, ValidationError

from rem.errors import InvalidInputError


class AnswersHeader(BaseModel):
    """What a run was made with. A run is resumed only with the same."""

    model_config = ConfigDict(extra="forbid")

    dataset: str
    data: str
    """The fingerprint of the questions."""
    reader: str
    judge: str
    prompts: str
    """The fingerprint of the prompts."""
    top_k: int
    context_tokens: int
    seed: int
    rem: str
    embedder: str
    began_at: datetime


class ModelCalls(BaseModel):
    """The use of a model for one question."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """In US dollars; None if the price of the model is not known."""
    seconds: float = 0.0


class AnsweredQuestion(BaseModel):
    """One question with its answer and the verdict."""

    id: str
    kind: str
    is_answerable: bool
    question: str
    answer: str
    """The correct answer."""
    found: list[str]
    """The ids of the sessions or messages that the reader got, best first."""
    history_tokens: int
    response: str
    verdict: bool | None
    """None if the judge said neither yes nor no."""
    judgement: str
    f1: float | None = None
    reader: ModelCalls
    judge: ModelCalls


class AnswersFile:
    """Reads what was answered before, and appends what is answered now."""

    def __init__(self, path: Path, header: AnswersHeader) -> None:
        self._path = path
        self._header = header
        self._stream: TextIO | None = None

    def load(self, *, restart: bool = False) -> list[AnsweredQuestion]:
        """Return the answers of an earlier run with the same header; none if there is no file, or with `restart`.

        Raise InvalidInputError if the file is of another run.
        """
        if restart or not self._path.exists() or not self._path.stat().st_size:
            self._write(self._header, mode="w")
            return []
        lines = self._read_lines()
        try:
            header = AnswersHeader.model_validate_json(lines[0])
        except ValidationError as error:
            raise InvalidInputError(f"{self._path} has no answers of this command: name another --output.") from error
        self._require_same(header)
        answers = [AnsweredQuestion.model_validate_json(line) for line in lines[1:]]
        self._header = header
        return answers

    def add(self, answer: AnsweredQuestion) -> None:
        """Append an answer."""
        self._write(answer)

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    @property
    def header(self) -> AnswersHeader:
        """What the run was made with; of a resumed run, as it began."""
        return self._header

    def _read_lines(self) -> list[str]:
        """Return the complete lines. The last one may be cut off if the run was killed: it is removed."""
        try:
            text = self._path.read_text(encoding="utf-8")
            complete = text[: text.rfind("\n") + 1]
            if complete != text:
                self._path.write_text(complete, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"{self._path} cannot be read: {error}.") from error
        return complete.splitlines() or [""]

    def _require_same(self, other: AnswersHeader) -> None:
        ours, theirs = (item.model_dump(exclude={"began_at"}) for item in (self._header, other))
        different = [name for name in ours if ours[name] != theirs[name]]
        if different:
            raise InvalidInputError(
                f"{self._path} is of a run with another {' and '.join(different)}: name another --output, "
                "or add --restart."
            )

    def _write(self, item: BaseModel, mode: Literal["a", "w"] = "a") -> None:
        try:
            if self._stream is None:
                self._stream = self._path.open(mode, encoding="utf-8")
            self._stream.write(item.model_dump_json() + "\n")
            self._stream.flush()
        except OSError as error:
            raise InvalidInputError(f"{self._path} cannot be written: {error.strerror}.") from error
