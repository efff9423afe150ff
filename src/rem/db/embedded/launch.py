"""Runs a PostgreSQL program as the right user; a server it also supervises.

A script, not a module: `python -I -S launch.py JOB`, where JOB is JSON. It imports nothing but the standard
library, to stay small while it supervises, and that at once: it may be out of reach after `setuid`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
LINUX_CAPABILITY_VERSION_3 = 0x20080522

SHUTDOWN_SECONDS = 10.0
# A client that came and went between two looks shows in `sessions`; psql itself uses another database.
ACTIVITY = """
SELECT (SELECT count(*) FROM pg_stat_activity
        WHERE backend_type IN ('client backend', 'walsender') AND pid <> pg_backend_pid()),
       (SELECT sum(sessions) FROM pg_stat_database WHERE datname <> 'postgres')
"""


class LaunchAccount(TypedDict):
    """The user to become, and what that user must be able to list and to run."""

    uid: int
    gid: int
    groups: list[int]
    folders: list[str]
    program: list[str]


class LaunchServer(TypedDict):
    """What the supervisor of a server needs to know."""

    log: str
    lock: str
    psql: list[str]
    idle_seconds: float


class LaunchRequest(TypedDict):
    """One call of this script."""

    command: list[str]
    account: LaunchAccount | None
    server: LaunchServer | None


def become(account: LaunchAccount) -> None:
    """Give up root for the account, keeping one capability only if it cannot reach its files without."""
    problems = []
    for capability in (None, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        problem = _try_in_child(account, capability)
        if not problem:
            _drop(account, capability)
            return
        problems.append(problem)
    sys.exit(f"error: cannot work as user {account['uid']}: {problems[0]}")


def _try_in_child(account: LaunchAccount, capability: int | None) -> str:
    """Why the account could not work with this capability; empty if it could."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        problem = ""
        try:
            _drop(account, capability)
            for folder in account["folders"]:
                os.listdir(folder)  # noqa: PTH208 - only whether it works
            if not os.access(account["program"][0], os.R_OK | os.X_OK):  # as PostgreSQL asks about itself
                raise PermissionError(f"Permission denied: {account['program'][0]}")
            subprocess.run(account["program"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            problem = str(error) or type(error).__name__
        os.write(write, os.fsencode(problem))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.fsdecode(answer) or ("" if status == 0 else f"the check of user {account['uid']} failed")


def _drop(account: LaunchAccount, capability: int | None) -> None:
    if capability is not None:
        # Without this bit access(2) ignores the capabilities of a user other than root.
        with contextlib.suppress(OSError):
            _prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
        _prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups(account["groups"])
    os.setgid(account["gid"])
    os.setuid(account["uid"])
    if capability is not None:
        _keep(capability)


def _keep(capability: int) -> None:
    """Keep this one capability, also across exec."""
    bit = 1 << capability
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)  # effective, permitted, inheritable; low and high words
    if ctypes.CDLL(None, use_errno=True).capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), f"capset: {os.strerror(ctypes.get_errno())}")
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def _prctl(option: int, *arguments: int) -> None:
    if sys.platform != "linux":
        raise OSError("only Linux can keep a single capability")
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if ctypes.CDLL(None, use_errno=True).prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl: {os.strerror(ctypes.get_errno())}")


def serve(command: Sequence[str], job: LaunchServer) -> None:
    """Start the server, tell its pid on standard output, and stay its parent until it ends."""
    if os.fork():
        os._exit(0)  # so that the starter has no child left to wait for
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
    )
    os.write(1, str(server.pid).encode())
    # The starter waits for the end of these pipes.
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(target, stream)
    ended = threading.Event()
    threading.Thread(target=_reap, args=(server, ended), daemon=True).start()
    if job["idle_seconds"] > 0:
        stop_when_idle(server.pid, job, ended)
    ended.wait()


def _reap(server: subprocess.Popen[bytes], ended: threading.Event) -> None:
    server.wait()
    ended.set()


def stop_when_idle(pid: int, job: LaunchServer, ended: threading.Event) -> None:
    """Shut the server down once nobody has used it for the idle time; return when it ended."""
    last_used, last_seen = time.monotonic(), ""
    interval = min(max(job["idle_seconds"] / 10, 0.2), 30.0)
    while not ended.wait(interval):
        seen = _activity(job["psql"])
        if _is_used(seen, last_seen):
            last_used, last_seen = time.monotonic(), seen
        elif time.monotonic() - last_used >= job["idle_seconds"]:
            _shut_down(pid, job, seen, ended)


def _activity(psql: Sequence[str]) -> str:
    """`clients|sessions so far`, or nothing if the server does not say (it may be full, or recovering)."""
    try:
        done = subprocess.run(
            [*psql, "-c", ACTIVITY],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def _is_used(seen: str, before: str) -> bool:
    return seen != before or not seen.startswith("0|")


def _shut_down(pid: int, job: LaunchServer, seen: str, ended: threading.Event) -> None:
    """Ask for a smart shutdown, unless somebody starts, stops or uses the server just now."""
    try:
        with Path(job["lock"]).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_used(_activity(job["psql"]), seen) and not ended.is_set():
                os.kill(pid, signal.SIGTERM)
                ended.wait(SHUTDOWN_SECONDS)
    except OSError:
        return  # busy, or REM_HOME is gone: look again later


def main(argument: str) -> None:
    """Do the job."""
    job: LaunchRequest = json.loads(argument)
    os.umask(0o077)
    if job["account"] is not None:
        become(job["account"])
    if job["server"] is not None:
        serve(job["command"], job["server"])
    else:
        os.execv(job["command"][0], job["command"])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1])
