"""Describe the error of a job for its row: message and last lines of code, without secrets."""

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

_FINAL_ERRORS = (InvalidInputError, NotFoundError, SettingsError, MemoryDisabledError, ImmutableError, DeletedError)
MAX_MESSAGE_CHARS = 2000
MAX_CODE_LINES = 5
_PASSWORD = re.compile(r"(?<=://)([^\s/@:]*):[^\s/@]*@")
MIN_SECRET_CHARS = 4
"""Shorter secrets would redact ordinary words."""


def is_final(error: BaseException) -> bool:
    """Return whether a retry would fail in the same way, because the input of the job is wrong."""
    return isinstance(unwrap_error(error), _FINAL_ERRORS)


def unwrap_error(error: BaseException) -> BaseException:
    """Return the first error of an exception group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_failure(error: BaseException, settings: Settings) -> JobFailure:
    """Return the description of an error for the row of its job."""
    error = unwrap_error(error)
    name = type(error).__name__
    text = str(error) if isinstance(error, RemError) else f"{name}: {error}" if str(error) else name
    # The first frame is always the runner's.
    lines = [
        f"{_shorten_path(frame.filename)}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)[1:][-MAX_CODE_LINES:]
    ]
    return JobFailure(name, redact_secrets(text, settings), lines, datetime.now(UTC).isoformat(timespec="seconds"))


def redact_secrets(text: str, settings: Settings) -> str:
    """Return the text without passwords in URLs and without secrets of the settings, cut to the maximum length."""
    text = clean_text(text)
    for secret in _find_secrets(settings):
        text = text.replace(secret, "***")
    text = _PASSWORD.sub(r"\1:***@", text)
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[:MAX_MESSAGE_CHARS]} …"


def _find_secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        if len(secret) >= MIN_SECRET_CHARS:
            yield secret
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _find_secrets(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _find_secrets(inner)


def _shorten_path(path: str) -> str:
    """Return the last three parts of a path, without the folder that REM is installed in."""
    return "/".join(Path(path.lstrip("/")).parts[-3:])
