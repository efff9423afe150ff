"""Which processes are ours."""

from __future__ import annotations

import os.path
from itertools import pairwise
from pathlib import Path

from rem.db.embedded.pidfile import PidFile

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
