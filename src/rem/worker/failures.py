"""What is kept of an error: its text and the last places, without what must not be seen by others."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from rem.errors import (
    DeletedError,
    ImmutableError,
    InvalidInputError,
    MemoryDisabledError,
    NotFoundError,
    RemError,
    SettingsError,
)
from rem.jobs.job import JobFailure
from rem.settings import Settings
from rem.text import clean_text

_FINAL = (InvalidInputError, NotFoundError, SettingsError, MemoryDisabledError, ImmutableError, DeletedError)
_LONGEST_MESSAGE = 2000
_PLACES = 5
_PASSWORD = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]*@")
_SHORTEST_SECRET = 4


def is_final(error: BaseException) -> bool:
    """Whether another attempt would meet the same error: what was asked for is wrong, not the moment."""
    return isinstance(unwrap_error(error), _FINAL)


def unwrap_error(error: BaseException) -> BaseException:
    """The error itself, or the first of a group's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_failure(error: BaseException, settings: Settings) -> JobFailure:
    """What is told about an error."""
    error = unwrap_error(error)
    name = type(error).__name__
    text = str(error) if isinstance(error, RemError) else f"{name}: {error}" if str(error) else name
    # The first place is always the runner's.
    places = [
        f"{_short(frame.filename)}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[1:][-_PLACES:]
    ]
    return JobFailure(name, redact_secrets(text, settings), places, datetime.now(UTC).isoformat(timespec="seconds"))


def redact_secrets(text: str, settings: Settings) -> str:
    """The text without passwords in addresses and without any secret of the settings; a long one is cut."""
    text = clean_text(text)
    for secret in _secrets(settings):
        text = text.replace(secret, "***")
    text = _PASSWORD.sub(r"\1:***@", text)
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]} …"


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        if len(secret) >= _SHORTEST_SECRET:
            yield secret
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _secrets(inner)


def _short(path: str) -> str:
    """The end of a path: where REM is installed is nobody's business."""
    return "/".join(Path(path.lstrip("/")).parts[-3:])
