"""What went wrong, in words a user can act on."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rem.errors import EmbeddedServerError

LITTLE_SPACE = 32 * 1024 * 1024
TAIL_BYTES = 16 * 1024
TELLING = re.compile(r"FATAL|PANIC|ERROR|error:|HINT|hint:|DETAIL|detail:|[Pp]ermission|No space|could not")
STAMP = re.compile(r"^\d{4}-\d\d-\d\d [\d:.]+ \w+ \[\d+\] ")

ADVICE = {
    errno.EACCES: "Give this user the right to it, or set REM_HOME to a folder of yours.",
    errno.EPERM: "Give this user the right to it, or set REM_HOME to a folder of yours.",
    errno.EROFS: "The file system is read-only: set REM_HOME to a folder that can be written.",
    errno.ENOSPC: "The disk is full: free some space and try again.",
    errno.EDQUOT: "The disk quota is used up: free some space and try again.",
    errno.ENOTDIR: "A file is in the way: move it, or set REM_HOME to a folder.",
    errno.EEXIST: "A file is in the way: move it, or set REM_HOME to a folder.",
}
ELSEWHERE = "Set REM_HOME to a folder where REM can keep its data."


@contextmanager
def explain_os_errors(what: str) -> Iterator[None]:
    """Turn an `OSError` of the block into an error that says what could not be done and what to do next."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        advice = ADVICE.get(error.errno or 0, ELSEWHERE)
        raise EmbeddedServerError(f"Cannot {what}: {error.strerror or error}{where}. {advice}") from error


def extract_error_lines(text: str, limit: int = 6) -> str:
    """The last lines of a PostgreSQL output that say what is wrong, in one line."""
    lines = [STAMP.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    return " ".join(([line for line in lines if TELLING.search(line)] or lines)[-limit:])


def read_log_from(log: Path, offset: int) -> str:
    """What was appended to a log since it had the size `offset`, at most its last part."""
    try:
        with log.open("rb") as file:
            file.seek(max(offset, file.seek(0, 2) - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def describe_full_disk(folder: Path) -> str:
    """A sentence about the disk of a folder if that is nearly full, else nothing."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return ""
    if free >= LITTLE_SPACE:
        return ""
    return f" The disk of {folder} is full ({free // 1024} kB free): free some space and try again."
