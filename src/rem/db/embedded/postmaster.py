"""Read `postmaster.pid` of a data folder, and find the processes of the server."""

from __future__ import annotations

import os.path
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import psutil


MAX_CLOCK_DIFFERENCE_SECONDS = 5.0
"""The start time in the pid file and that of the operating system may differ by this much."""


@dataclass(frozen=True)
class Address:
    """The socket of a server, with the user and database of REM."""

    socket_dir: Path
    port: int
    user: str = "rem"
    database: str = "rem"

    @property
    def socket(self) -> Path:
        """Return the path of the socket."""
        return self.socket_dir / f".s.PGSQL.{self.port}"

    def dsn(self) -> str:
        """Return a connection string for asyncpg, psycopg and psql."""
        host = quote(str(self.socket_dir), safe="/")
        return f"postgresql:///{quote(self.database)}?host={host}&port={self.port}&user={quote(self.user)}"


@dataclass(frozen=True)
class PidFile:
    """The pid file of a running server, or of one that was killed and could not remove it."""

    pid: int
    started: int
    address: Address | None
    status: str


def read_pid_file(data_dir: Path) -> PidFile | None:
    """Return the pid file of a data folder, or None. `address` is None until the server has written it."""
    try:
        lines = (data_dir / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        # Single-user mode writes its pid negated.
        pid = abs(int(lines[0]))
    except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
        return None
    is_complete = len(lines) >= 5 and lines[3].strip().isdigit() and bool(lines[4])
    return PidFile(
        pid=pid,
        started=int(lines[2]) if len(lines) >= 3 and lines[2].strip().isdigit() else 0,
        address=Address(Path(lines[4]), int(lines[3])) if is_complete else None,
        status=lines[7].strip() if len(lines) >= 8 else "",
    )


def is_alive(pid: int) -> bool:
    """Return True if a process runs and is not a zombie."""
    import psutil  # a slow import, not needed while the server answers

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_postmaster(pid_file: PidFile, data_dir: Path) -> bool:
    """Return True if the server of this pid file runs: not a zombie, and not another process with its pid."""
    import psutil

    try:
        process = psutil.Process(pid_file.pid)
        if process.status() == psutil.STATUS_ZOMBIE or process.name() != "postgres":
            return False
        arguments, started_at = process.cmdline(), process.create_time()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    folder = next((value for option, value in pairwise(arguments) if option == "-D"), "")
    if os.path.exists(folder):  # noqa: PTH110 - no error for a folder of another user
        return _is_same_folder(folder, data_dir)
    # REM_HOME was renamed while its server ran, so only the start time can tell.
    return abs(started_at - pid_file.started) < MAX_CLOCK_DIFFERENCE_SECONDS


def _is_same_folder(folder: str, data_dir: Path) -> bool:
    try:
        return data_dir.samefile(folder)
    except OSError:
        return False


def find_supervisor(pid: int) -> psutil.Process | None:
    """Return the supervisor of a server (launch.py), or None if it has ended."""
    import psutil

    try:
        parent = psutil.Process(pid).parent()
        return parent if parent and any(part.endswith("launch.py") for part in parent.cmdline()) else None
    except psutil.Error:
        return None


def wait_for_exit(process: psutil.Process, timeout_seconds: float = 5.0) -> None:
    """Wait up to `timeout_seconds` for a process that is about to end."""
    import psutil

    psutil.wait_procs([process], timeout=timeout_seconds)
