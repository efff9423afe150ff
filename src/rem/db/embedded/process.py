"""Which processes are ours."""

from __future__ import annotations

import os.path
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from rem.db.embedded.pidfile import PidFile

if TYPE_CHECKING:
    import psutil

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


def supervisor_of(pid: int) -> psutil.Process | None:
    """The launcher that started a server and still watches over it, if there is one."""
    import psutil

    try:
        parent = psutil.Process(pid).parent()
        return parent if parent and any(part.endswith("launch.py") for part in parent.cmdline()) else None
    except psutil.Error:
        return None


def await_end(process: psutil.Process, timeout_seconds: float = 5.0) -> None:
    """Wait a moment for a process that is about to end."""
    import psutil

    psutil.wait_procs([process], timeout=timeout_seconds)
