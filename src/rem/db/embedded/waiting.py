"""Patience with a server that is not ready yet."""

from __future__ import annotations

import time
from collections.abc import Callable

from rem.db.embedded.pidfile import PidFile
from rem.db.embedded.probe import Life

STOPPING_SECONDS = 10.0  # how long the last clients of a server that takes no new ones may stay
RETELL_SECONDS = 10.0


class Waiting:
    """Watches a server that is not ready yet: tells about it, and says when waiting longer is in vain."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._began = self._told = self._heard = time.monotonic()
        self._interrupted = False

    @property
    def silent_seconds(self) -> float:
        """How long the server has not answered at all."""
        return time.monotonic() - self._heard

    def is_over(self, life: Life, pid_file: PidFile | None) -> bool:
        """Whether the server should be shut down for good, true only once."""
        now = time.monotonic()
        if life in (Life.STARTING, Life.STOPPING):
            self._heard = now
        if now - self._told > RETELL_SECONDS:
            self._told = now
            doing = "shutting down" if life is Life.STOPPING else "recovering or starting"
            self._tell(f"PostgreSQL is still {doing} after {now - self._began:.0f} s …")
        if self._interrupted:
            return False
        # A smart shutdown waits for clients that may stay for days and lets nobody else in.
        overdue = life is Life.STOPPING and now - self._began > STOPPING_SECONDS
        self._interrupted = overdue or (life is Life.ABSENT and _lost_its_socket(pid_file))
        return self._interrupted


def _lost_its_socket(pid_file: PidFile | None) -> bool:
    """Whether the socket of a server that is ready was removed, or moved with its REM_HOME."""
    if pid_file is None or pid_file.address is None or pid_file.status != "ready":
        return False
    return not pid_file.address.socket.exists()
