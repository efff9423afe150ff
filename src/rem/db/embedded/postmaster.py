"""`postmaster.pid`: what a PostgreSQL server says about itself in its data folder."""

from __future__ import annotations

import os.path
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import psutil


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    socket_dir: Path
    port: int
    user: str = "rem"
    database: str = "rem"

    @property
    def socket(self) -> Path:
        """The socket itself."""
        return self.socket_dir / f".s.PGSQL.{self.port}"

    def dsn(self) -> str:
        """A connection string for asyncpg, psycopg and psql."""
        host = quote(str(self.socket_dir), safe="/")
        return f"postgresql:///{quote(self.database)}?host={host}&port={self.port}&user={quote(self.user)}"


@dataclass(frozen=True)
class PidFile:
    """The pid file of a server that runs, or ran and could not remove it."""

    pid: int
    started: int
    address: Address | None
    status: str


def read_pid_file(data_dir: Path) -> PidFile | None:
    """The pid file of a data folder; `address` is missing until the server has told it."""
    try:
        lines = (data_dir / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        # Single-user mode writes its pid negated.
        pid = abs(int(lines[0]))
    except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
        return None
    complete = len(lines) >= 5 and lines[3].strip().isdigit() and bool(lines[4])
    return PidFile(
        pid=pid,
        started=int(lines[2]) if len(lines) >= 3 and lines[2].strip().isdigit() else 0,
        address=Address(Path(lines[4]), int(lines[3])) if complete else None,
        status=lines[7].strip() if len(lines) >= 8 else "",
    )


CLOCK_SECONDS = 5.0  # what two ways to tell when a process began may differ by


def is_alive(pid: int) -> bool:
    """Whether a process runs, not as a zombie."""
    import psutil  # slow, and not needed while the server answers

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_postmaster(pid_file: PidFile, data_dir: Path) -> bool:
    """Whether the server that wrote this pid file lives: no zombie, no other process that got its pid."""
    import psutil

    try:
        process = psutil.Process(pid_file.pid)
        if process.status() == psutil.STATUS_ZOMBIE or process.name() != "postgres":
            return False
        arguments, began = process.cmdline(), process.create_time()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    folder = next((value for option, value in pairwise(arguments) if option == "-D"), "")
    if os.path.exists(folder):  # noqa: PTH110 - no error for a folder of somebody else
        return _is_same(folder, data_dir)
    # REM_HOME was renamed under its server. (Where that works now, root in a container may not see.)
    return abs(began - pid_file.started) < CLOCK_SECONDS


def _is_same(folder: str, data_dir: Path) -> bool:
    try:
        return data_dir.samefile(folder)
    except OSError:
        return False


def find_supervisor(pid: int) -> psutil.Process | None:
    """The launcher that started a server and still watches over it, if there is one."""
    import psutil

    try:
        parent = psutil.Process(pid).parent()
        return parent if parent and any(part.endswith("launch.py") for part in parent.cmdline()) else None
    except psutil.Error:
        return None


def wait_for_exit(process: psutil.Process, timeout_seconds: float = 5.0) -> None:
    """Wait a moment for a process that is about to end."""
    import psutil

    psutil.wait_procs([process], timeout=timeout_seconds)
