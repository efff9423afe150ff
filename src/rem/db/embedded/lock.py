"""The lock that everyone takes who creates, starts or stops the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rem.db.embedded.diagnostics import explain_os_errors

if sys.platform != "win32":  # where the server says what to use instead
    import fcntl


@contextmanager
def attempt(path: Path) -> Iterator[bool]:
    """Take the lock for the block if it is free, and say whether it was taken."""
    with explain_os_errors(f"lock {path}"):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        taken = _take(descriptor)
        try:
            yield taken
        finally:
            if taken:
                # Not left to close(): a forked child of the caller may share the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
