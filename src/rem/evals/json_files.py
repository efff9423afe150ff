"""Unpack, parse and validate files of JSON, with errors that name the file and the position."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rem.errors import InvalidInputError

M = TypeVar("M", bound=BaseModel)
MAX_ERRORS_SHOWN = 3


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
