"""BEAM: long chats with an assistant, and questions of ten kinds with the messages that answer them."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from rem.errors import InvalidInputError
from rem.evals.dataset import Case, Dataset, DatasetMessage, DatasetSession, DroppedCounts, Question, keep_known_gold
from rem.evals.datasets.json_files import (
    describe_validation_errors,
    parse_json,
    parse_time,
    read_bytes,
    require_path,
    validate_model,
)
from rem.models import Role
from rem.text import clean_text

METRICS = ("recall@5", "recall@10")
_CHAT = "chat.json"
_QUESTIONS = "probing_questions/probing_questions.json"
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_TIMES = ("%B-%d-%Y", "%B %d, %Y", "%Y-%m-%d")
_START = datetime(2024, 1, 1, tzinfo=UTC)


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


_QUESTIONS_BY_KIND = TypeAdapter(dict[str, list[_Question]])


class _Chat(NamedTuple):
    """A chat's folder, and what is in its two files."""

    name: str
    chat: bytes
    questions: bytes


def read_dataset(path: Path, limit: int | None = None) -> Dataset:
    """The chats of the official archive or of the folder that it becomes, or the first few, with their questions."""
    require_path(path)
    chats = _chats(path)[:limit]
    if not chats:
        raise InvalidInputError(
            f"{path} holds no chats of BEAM, which are folders with {_CHAT} and {_QUESTIONS}: "
            "name the archive, or a folder that holds it unpacked."
        )
    dropped = DroppedCounts()
    return Dataset(
        "beam", tuple(_case(chat, dropped, path) for chat in chats), "messages", "message_id", METRICS, dropped
    )


def _chats(path: Path) -> list[_Chat]:
    files = dict(_unpacked(path) if path.is_dir() else _in_archive(path))
    if not files and path.is_dir():
        archives = sorted(file for file in path.iterdir() if file.name.endswith(_ARCHIVES))
        if len(archives) > 1:
            names = ", ".join(file.name for file in archives)
            raise InvalidInputError(f"{path} holds several archives ({names}): name one of them.")
        files = dict(_in_archive(archives[0])) if archives else {}
    folders = sorted({name.parent for name in files if name.name == _CHAT}, key=_order)
    return [
        _Chat(str(folder), files[folder / _CHAT], files[folder / _QUESTIONS])
        for folder in folders
        if folder / _QUESTIONS in files
    ]


def _order(folder: PurePosixPath) -> list[tuple[int, str]]:
    """Chat 2 comes before chat 10."""
    return [(int(part) if part.isdecimal() else 0, part) for part in folder.parts]


def _unpacked(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    for name in (_CHAT, PurePosixPath(_QUESTIONS).name):
        for file in path.rglob(name):
            yield PurePosixPath(file.relative_to(path).as_posix()), read_bytes(file)


def _in_archive(path: Path) -> Iterator[tuple[PurePosixPath, bytes]]:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                stream = archive.extractfile(member) if name.match(_CHAT) or name.match(_QUESTIONS) else None
                if stream is not None:
                    yield name, stream.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InvalidInputError(f"{path} is neither a whole archive of BEAM nor a folder: {error}.") from error


def _case(chat: _Chat, dropped: DroppedCounts, path: Path) -> Case:
    where = f"{path}: {chat.name}"
    batches = [
        validate_model(_Batch, batch, f"{where}/{_CHAT}: batch {number}")
        for number, batch in enumerate(_batches(parse_json(chat.chat, f"{where}/{_CHAT}")), start=1)
    ]
    conversations = tuple(_conversations(batches, dropped, where))
    known = {turn.id for conversation in conversations for turn in conversation.turns if turn.id}
    try:
        by_kind = _QUESTIONS_BY_KIND.validate_python(parse_json(chat.questions, f"{where}/{_QUESTIONS}"))
    except ValidationError as error:
        raise InvalidInputError(f"{where}/{_QUESTIONS}: {describe_validation_errors(error)}") from error
    questions = tuple(
        Question(
            f"{chat.name}:{kind}:{number}",
            question.question,
            kind,
            keep_known_gold(list(_leaves(question.source_chat_ids)), known, dropped),
        )
        for kind, asked in by_kind.items()
        for number, question in enumerate(asked, start=1)
    )
    return Case(f"chat-{chat.name}", questions, conversations)


def _batches(value: Any) -> Iterator[Any]:
    """The batches of a chat. The longest chats have them under plans."""
    if isinstance(value, dict) and "turns" in value:
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _batches(inner)


def _conversations(batches: list[_Batch], dropped: DroppedCounts, where: str) -> Iterator[DatasetSession]:
    """Each batch is a conversation. One without a date comes a day after the one before."""
    at = _START - timedelta(days=1)
    for number, batch in enumerate(batches, start=1):
        messages = [message for turn in batch.turns for message in turn]
        date = batch.time_anchor or next((message.time_anchor for message in messages if message.time_anchor), None)
        at = parse_time(date, _TIMES, f"{where}: batch {number}") if date else at + timedelta(days=1)
        turns = tuple(
            DatasetMessage(
                str(message.id), index, message.role, clean_text(message.content), at + timedelta(seconds=index)
            )
            for index, message in enumerate(messages)
            if message.content.strip()
        )
        dropped.blank_messages += len(messages) - len(turns)
        yield DatasetSession(str(batch.batch_number or number), at, turns)


def _leaves(value: Any) -> Iterator[str]:
    """Evidence is a list, a list of lists, or an object whose values are lists."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)
