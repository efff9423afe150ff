"""Find, unpack, parse and validate the files of data sets, with errors that name the file and the position."""

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
JSON_SUFFIXES = (".json", ".json.gz")
MAX_ERRORS_SHOWN = 3


def find_file(path: Path, name: str) -> Path:
    """Return the file. For a folder: its one JSON file with `name` in its file name, or else its only JSON file."""
    require_path(path)
    if not path.is_dir():
        return path
    files = sorted(file for file in path.iterdir() if file.is_file())
    named = [
        file for file in files if name in file.name.lower() and (file.name.endswith(JSON_SUFFIXES) or not file.suffix)
    ]
    candidates = named or [file for file in files if file.name.endswith(JSON_SUFFIXES)]
    if not candidates:
        raise InvalidInputError(f"{path} has no .json or .json.gz file: name the file of {name}.")
    if len(candidates) > 1:
        names = ", ".join(file.name for file in candidates)
        raise InvalidInputError(f"{path} has several files ({names}): name one of them.")
    return candidates[0]


def require_path(path: Path) -> None:
    """Raise InvalidInputError if the path does not exist."""
    if not path.exists():
        raise InvalidInputError(f"There is no file or folder {path}.")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path} is not a complete gzip file: {error}.") from error


def parse_json(content: bytes, where: str) -> Any:
    """Parse the content of a file as JSON. `where` names the file in errors."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"{where} is not JSON: {error}.") from error


def read_entries(path: Path, dataset_name: str) -> list[Any]:
    """Return the list in the file of a data set. Raise InvalidInputError if it is not a list, or empty."""
    entries = parse_json(read_bytes(path), str(path))
    if not isinstance(entries, list):
        raise InvalidInputError(f"{path} is not a file of {dataset_name}, which is a list.")
    if not entries:
        raise InvalidInputError(f"{path} is an empty list: there is nothing to ask.")
    return entries


def validate_model(model: type[M], value: Any, where: str) -> M:
    """Validate a value. Raise InvalidInputError with `where` and the invalid fields."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidInputError(f"{where}: {describe_validation_errors(error)}") from error


def describe_validation_errors(error: ValidationError) -> str:
    """Return the errors of a value in one line."""
    details = error.errors()
    shown = [_describe_detail(detail) for detail in details[:MAX_ERRORS_SHOWN]]
    more = f"; and {len(details) - MAX_ERRORS_SHOWN} more" if len(details) > MAX_ERRORS_SHOWN else ""
    return f"{'; '.join(shown)}{more}."


def _describe_detail(detail: ErrorDetails) -> str:
    if detail["type"] in ("model_type", "dict_type"):
        message = "is not a JSON object"
    else:
        message = detail["msg"].removeprefix("Value error, ")
    return ": ".join(part for part in (".".join(map(str, detail["loc"])), message) if part)


def parse_time(text: str, formats: Sequence[str], where: str) -> datetime:
    """Parse a time in one of the formats of the data set, as UTC."""
    for time_format in formats:
        try:
            return datetime.strptime(text.strip(), time_format).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise InvalidInputError(f"{where}: {text!r} is not a time in a format of this data set.")
