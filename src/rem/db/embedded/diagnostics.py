"""Turn system errors and output of PostgreSQL into messages that name the next step."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rem.errors import EmbeddedServerError

MIN_FREE_BYTES = 32 * 1024 * 1024
MAX_LOG_TAIL_BYTES = 16 * 1024
ERROR_LINE = re.compile(r"FATAL|PANIC|ERROR|error:|HINT|hint:|DETAIL|detail:|[Pp]ermission|No space|could not")
LOG_LINE_PREFIX = re.compile(r"^\d{4}-\d\d-\d\d [\d:.]+ \w+ \[\d+\] ")

ADVICE = {
    errno.EACCES: "Give this user the right to it, or set REM_HOME to a folder of yours.",
    errno.EPERM: "Give this user the right to it, or set REM_HOME to a folder of yours.",
    errno.EROFS: "The file system is read-only: set REM_HOME to a folder that can be written.",
    errno.ENOSPC: "The disk is full: free some space and try again.",
    errno.EDQUOT: "The disk quota is used up: free some space and try again.",
    errno.ENOTDIR: "A file is in the way: move it, or set REM_HOME to a folder.",
    errno.EEXIST: "A file is in the way: move it, or set REM_HOME to a folder.",
}
DEFAULT_ADVICE = "Set REM_HOME to a folder where REM can keep its data."


@contextmanager
def explain_os_errors(action: str) -> Iterator[None]:
    """Turn an `OSError` in the block into an EmbeddedServerError: "Cannot {action}: …", with the next step."""
    try:
        yield
    except OSError as error:
        path = f" ({error.filename})" if error.filename else ""
        advice = ADVICE.get(error.errno or 0, DEFAULT_ADVICE)
        raise EmbeddedServerError(f"Cannot {action}: {error.strerror or error}{path}. {advice}") from error


def extract_error_lines(text: str, limit: int = 6) -> str:
    """Return the last error lines of an output of PostgreSQL, joined to one line."""
    lines = [LOG_LINE_PREFIX.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    return " ".join(([line for line in lines if ERROR_LINE.search(line)] or lines)[-limit:])


def read_log_from(log: Path, offset: int) -> str:
    """Return the text that was appended to a log after `offset` bytes, at most its end."""
    try:
        with log.open("rb") as file:
            file.seek(max(offset, file.seek(0, 2) - MAX_LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def describe_full_disk(folder: Path) -> str:
    """Return a sentence if the disk of a folder is almost full, otherwise an empty text."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    if free >= MIN_FREE_BYTES:
        return ""
    return f" The disk of {folder} is full ({free // 1024} kB free): free some space and try again."
