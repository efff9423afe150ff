"""Read BEAM: long chats with an assistant, and questions of ten kinds with the ids of messages that answer them."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from bench.quality.dataset import (
    Case,
    Dataset,
    DatasetMessage,
    DatasetSession,
    DroppedCounts,
    Question,
    keep_known_gold,
)
from bench.quality.datasets.published_files import parse_time
from rem.errors import InvalidInputError
from rem.evals.json_files import describe_validation_errors, parse_json, read_bytes, require_path, validate_model
from rem.models import Role
from rem.text import clean_text

METRICS = ("recall@5", "recall@10")
CHAT_FILE = "chat.json"
QUESTIONS_FILE = "probing_questions/probing_questions.json"
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar")
TIME_FORMATS = ("%B-%d-%Y", "%B %d, %Y", "%Y-%m-%d")
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)


class _Message(BaseModel):
    id: int | str
    role: Role
    content: str
    time_anchor: str | None = None


class _Batch(BaseModel):
    batch_number: int | None = None
    time_anchor: str | None = None
    turns: list[list[_Message]]


class _Question(BaseModel):
    question: str
    source_chat_ids: Any = None


QUESTIONS_BY_KIND = TypeAdapter(dict[str, list[_Question]])


class _Chat(NamedTuple):
    """The folder of a chat, and the content of its two files."""

    name: str
    chat: bytes
    questions: bytes


def read_dataset(path: Path, limit: int | None = None) -> Dataset:
    """Return the chats of the official archive, or of its unpacked folder; with `limit`, only the first ones."""
    require_path(path)
    chats = _read_chats(path)[:limit]
    if not chats:
        raise InvalidInputError(
            f"{path} has no chats of BEAM, which are folders with {CHAT_FILE} and {QUESTIONS_FILE}: "
            "name the archive, or the folder of the unpacked archive."
        )
    dropped = DroppedCounts()
    return Dataset(
        "beam", tuple(_build_case(chat, dropped, path) for chat in chats), "messages", "message_id", METRICS, dropped
    )


def _read_chats(path: Path) -> list[_Chat]:
    files = dict(_read_folder(path) if path.is_dir() else _read_archive(path))
    if not files and path.is_dir():
        archives = sorted(file for file in path.iterdir() if file.name.endswith(ARCHIVE_SUFFIXES))
        if len(archives) > 1:
            names = ", ".join(file.name for file in archives)
            raise InvalidInputError(f"{path} has several archives ({names}): name one of them.")
        files = dict(_read_archive(archives[0])) if archives else {}
    folders = sorted({name.parent for name in files if name.name == CHAT_FILE}, key=_numeric_order)
    return [
        _Chat(str(folder), files[folder / CHAT_FILE], files[folder / QUESTIONS_FILE])
        for folder in folders
        if folder / QUESTIONS_FILE in files
    ]


def _numeric_order(folder: PurePosixPath) -> list[tuple[int, str]]:
    """Return a sort key that puts chat 2 before chat 10."""
    return [(int(part) if part.isdecimal() else 0, part) for part in folder.parts]


def _read_folder(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    for name in (CHAT_FILE, PurePosixPath(QUESTIONS_FILE).name):
        for file in path.rglob(name):
            yield PurePosixPath(file.relative_to(path).as_posix()), read_bytes(file)


def _read_archive(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                stream = archive.extractfile(member) if name.match(CHAT_FILE) or name.match(QUESTIONS_FILE) else None
                if stream is not None:
                    yield name, stream.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InvalidInputError(f"{path} is neither a complete archive of BEAM nor a folder: {error}.") from error


def _build_case(chat: _Chat, dropped: DroppedCounts, path: Path) -> Case:
    where = f"{path}: {chat.name}"
    batches = [
        validate_model(_Batch, batch, f"{where}/{CHAT_FILE}: batch {number}")
        for number, batch in enumerate(_find_batches(parse_json(chat.chat, f"{where}/{CHAT_FILE}")), start=1)
    ]
    sessions = tuple(_build_sessions(batches, dropped, where))
    known_ids = {message.id for session in sessions for message in session.messages if message.id}
    try:
        by_kind = QUESTIONS_BY_KIND.validate_python(parse_json(chat.questions, f"{where}/{QUESTIONS_FILE}"))
    except ValidationError as error:
        raise InvalidInputError(f"{where}/{QUESTIONS_FILE}: {describe_validation_errors(error)}") from error
    questions = tuple(
        Question(
            f"{chat.name}:{kind}:{number}",
            question.question,
            kind,
            keep_known_gold(list(_flatten(question.source_chat_ids)), known_ids, dropped),
        )
        for kind, questions_of_kind in by_kind.items()
        for number, question in enumerate(questions_of_kind, start=1)
    )
    return Case(f"chat-{chat.name}", questions, sessions)


def _find_batches(value: Any) -> Iterator[Any]:
    """Yield the batches of a chat, at any depth. The longest chats have them under plans."""
    if isinstance(value, dict) and "turns" in value:
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _find_batches(inner)


def _build_sessions(batches: list[_Batch], dropped: DroppedCounts, where: str) -> Iterator[DatasetSession]:
    """Yield one session for each batch. A batch without a date is one day after the batch before it."""
    at = FIRST_DAY - timedelta(days=1)
    for number, batch in enumerate(batches, start=1):
        batch_messages = [message for turn in batch.turns for message in turn]
        date = batch.time_anchor or next(
            (message.time_anchor for message in batch_messages if message.time_anchor), None
        )
        at = parse_time(date, TIME_FORMATS, f"{where}: batch {number}") if date else at + timedelta(days=1)
        messages = tuple(
            DatasetMessage(
                str(message.id), index, message.role, clean_text(message.content), at + timedelta(seconds=index)
            )
            for index, message in enumerate(batch_messages)
            if message.content.strip()
        )
        dropped.blank_messages += len(batch_messages) - len(messages)
        yield DatasetSession(str(batch.batch_number or number), at, messages)


def _flatten(value: Any) -> Iterator[str]:
    """Yield the ids of the evidence, which is a list, a list of lists, or an object whose values are lists."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _flatten(inner)
    elif value is not None:
        yield str(value)
