"""The process of one connection to the embedded server: limit its memory, and end it wherever its code is."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from typing import TYPE_CHECKING

from rem.db.embedded.programs import PostgresPrograms
from rem.errors import EmbeddedServerError

if TYPE_CHECKING:
    import psutil

POLL_SECONDS = 0.02
MAX_DEAF_CPU_SECONDS = 0.3
"""A backend that computes this long after SIGTERM is inside a function that never looks for interrupts."""
LOWER_PRIORITY = 5
"""Other backends come first, by this many steps of `nice`."""


class BackendProcess:
    """A backend on this machine, found by `EmbeddedServer.find_backend`."""

    def __init__(self, process: psutil.Process, programs: PostgresPrograms) -> None:
        self._process = process
        self._programs = programs

    def limit(self, max_bytes: int) -> bool:
        """Bound the memory of the backend, and lower its priority. Return False if this system cannot do that.

        An allocation beyond the bound fails with "out of memory", which PostgreSQL reports as an ordinary error.
        """
        if sys.platform != "linux":
            return False
        try:
            self._programs.limit(self._process.pid, max_bytes, min(self._process.nice() + LOWER_PRIORITY, 19))
        except (EmbeddedServerError, OSError):
            return False
        return True

    def has_ended(self) -> bool:
        """Return True if the process has ended."""
        import psutil

        try:
            return not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    async def end(self, timeout_seconds: float) -> bool:
        """End the backend without harm to the others, and return whether it has ended in time.

        SIGTERM ends it where PostgreSQL looks for interrupts. For code that does not look there is SIGFPE: its handler
        raises an ordinary error at once, wherever the backend is, and the backend then notices the SIGTERM. SIGKILL
        would restart the whole server.
        """
        import psutil

        deadline = time.monotonic() + timeout_seconds
        try:
            self._process.send_signal(signal.SIGTERM)
            cpu_seconds = self._read_cpu_seconds()
            while not self.has_ended():
                if time.monotonic() > deadline:
                    return False
                await asyncio.sleep(POLL_SECONDS)
                # Time on the CPU, not on the clock: a backend that waits for a disk or for its turn is not deaf.
                if self._read_cpu_seconds() - cpu_seconds >= MAX_DEAF_CPU_SECONDS:
                    self._process.send_signal(signal.SIGFPE)
                    cpu_seconds = self._read_cpu_seconds()
        except psutil.NoSuchProcess:
            return True
        except psutil.AccessDenied:
            return False
        return True

    def _read_cpu_seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)
