"""Files of data sets: found in a folder, unpacked, and read with errors that name the file and the place."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rem.errors import InvalidInputError

M = TypeVar("M", bound=BaseModel)
_JSON = (".json", ".json.gz")
_PROBLEMS_SHOWN = 3


def find_file(path: Path, name: str) -> Path:
    """The file itself, or the one JSON file of a folder that the data set's name fits, or else the only one."""
    require_path(path)
    if not path.is_dir():
        return path
    files = sorted(file for file in path.iterdir() if file.is_file())
    named = [file for file in files if name in file.name.lower() and (file.name.endswith(_JSON) or not file.suffix)]
    fitting = named or [file for file in files if file.name.endswith(_JSON)]
    if not fitting:
        raise InvalidInputError(f"{path} holds no .json or .json.gz file: name the file of {name}.")
    if len(fitting) > 1:
        names = ", ".join(file.name for file in fitting)
        raise InvalidInputError(f"{path} holds several files ({names}): name one of them.")
    return fitting[0]


def require_path(path: Path) -> None:
    """An error if there is nothing at the path."""
    if not path.exists():
        raise InvalidInputError(f"There is no file or folder {path}.")


def read_bytes(path: Path) -> bytes:
    """What a file holds, unpacked if its name ends in .gz."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path} is not a whole gzip file: {error}.") from error


def parse_json(content: bytes, where: str) -> Any:
    """The JSON of a file."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"{where} is not JSON: {error}.") from error


def read_entries(path: Path, what: str) -> list[Any]:
    """The list that a data set's file holds."""
    entries = parse_json(read_bytes(path), str(path))
    if not isinstance(entries, list):
        raise InvalidInputError(f"{path} is not a file of {what}, which is a list.")
    if not entries:
        raise InvalidInputError(f"{path} is an empty list: there is nothing to ask.")
    return entries


def validate_model(model: type[M], value: Any, where: str) -> M:
    """The value as a model, or an error that names the place and the fields that are wrong."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInputError(f"{where}: {describe_validation_errors(error)}") from error


def describe_validation_errors(error: ValidationError) -> str:
    """What is wrong with a value, in a line."""
    problems = error.errors()
    shown = [_describe(problem) for problem in problems[:_PROBLEMS_SHOWN]]
    more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
    return f"{'; '.join(shown)}{more}."


def _describe(problem: ErrorDetails) -> str:
    if problem["type"] in ("model_type", "dict_type"):
        message = "is not a JSON object"
    else:
        message = problem["msg"].removeprefix("Value error, ")
    return ": ".join(part for part in (".".join(map(str, problem["loc"])), message) if part)


def parse_time(text: str, patterns: Sequence[str], where: str) -> datetime:
    """A time in one of the data set's own notations, taken as UTC."""
    for pattern in patterns:
        try:
            return datetime.strptime(text.strip(), pattern).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise InvalidInputError(f"{where}: {text!r} is not a time that this data set is known to use.")
