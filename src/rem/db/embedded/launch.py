"""Run a PostgreSQL program as the right user, and supervise a server.

This file is a script: `python -I -S launch.py REQUEST`, where REQUEST is a LaunchRequest as JSON. It imports only the
standard library, to stay small while it supervises. It imports everything at the start, because the library may be
unreachable after `setuid`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
PR_SET_KEEPCAPS = 8
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
LINUX_CAPABILITY_VERSION_3 = 0x20080522

MAX_SHUTDOWN_SECONDS = 10.0
# `sessions` also counts clients that connected between two checks. psql itself uses the database postgres.
ACTIVITY_QUERY = """
SELECT (SELECT count(*) FROM pg_stat_activity
        WHERE backend_type IN ('client backend', 'walsender') AND pid <> pg_backend_pid()),
       (SELECT sum(sessions) FROM pg_stat_database WHERE datname <> 'postgres')
"""


class LaunchAccount(TypedDict):
    """The user to switch to, and the folders and the program that this user must be able to reach."""

    uid: int
    gid: int
    groups: list[int]
    folders: list[str]
    program: list[str]


class LaunchServer(TypedDict):
    """The parameters of the supervisor of a server."""

    log: str
    lock: str
    psql: list[str]
    idle_seconds: float


class LaunchLimit(TypedDict):
    """The limits of a running process of the account."""

    pid: int
    max_bytes: int
    nice: int


class LaunchRequest(TypedDict):
    """The argument of this script: run a command, run it as a server, or limit a process."""

    command: list[str]
    account: LaunchAccount | None
    server: LaunchServer | None
    limit: NotRequired[LaunchLimit]


def switch_user(account: LaunchAccount) -> None:
    """Switch from root to the account. Keep one capability if the account cannot reach its files without it."""
    errors = []
    for capability in (None, CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        error = _try_in_child(account, capability)
        if not error:
            _drop_root(account, capability)
            return
        errors.append(error)
    sys.exit(f"error: cannot work as user {account['uid']}: {errors[0]}")


def _try_in_child(account: LaunchAccount, capability: int | None) -> str:
    """Try the account with this capability in a child process. Return the error, or an empty text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        message = ""
        try:
            _drop_root(account, capability)
            for folder in account["folders"]:
                os.listdir(folder)  # noqa: PTH208 - fails if the folder is not readable
            if not os.access(account["program"][0], os.R_OK | os.X_OK):  # PostgreSQL checks itself in this way
                raise PermissionError(f"Permission denied: {account['program'][0]}")
            subprocess.run(account["program"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            message = str(error) or type(error).__name__
        os.write(write, os.fsencode(message))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        output = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.fsdecode(output) or ("" if status == 0 else f"the check of user {account['uid']} failed")


def _drop_root(account: LaunchAccount, capability: int | None) -> None:
    if capability is not None:
        # Without this bit access(2) ignores the capabilities of a user other than root.
        with contextlib.suppress(OSError):
            _prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
        _prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups(account["groups"])
    os.setgid(account["gid"])
    os.setuid(account["uid"])
    if capability is not None:
        _keep_capability(capability)


def _keep_capability(capability: int) -> None:
    """Keep only this capability, also across exec."""
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
    """Start the server, write its pid to standard output, and stay its parent until it ends."""
    if os.fork():
        os._exit(0)  # the caller has no child to wait for then
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
    )
    os.write(1, str(server.pid).encode())
    # The caller waits until these pipes are closed.
    for stream, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(target, stream)
    has_ended = threading.Event()
    threading.Thread(target=_reap, args=(server, has_ended), daemon=True).start()
    if job["idle_seconds"] > 0:
        stop_when_idle(server.pid, job, has_ended)
    has_ended.wait()


def _reap(server: subprocess.Popen[bytes], has_ended: threading.Event) -> None:
    server.wait()
    has_ended.set()


def stop_when_idle(pid: int, job: LaunchServer, has_ended: threading.Event) -> None:
    """Stop the server when it was idle for `idle_seconds`. Return when the server has ended."""
    last_used, last_activity = time.monotonic(), ""
    interval = min(max(job["idle_seconds"] / 10, 0.2), 30.0)
    while not has_ended.wait(interval):
        activity = _read_activity(job["psql"])
        if _is_used(activity, last_activity):
            last_used, last_activity = time.monotonic(), activity
        elif time.monotonic() - last_used >= job["idle_seconds"]:
            _stop_if_unused(pid, job, activity, has_ended)


def _read_activity(psql: Sequence[str]) -> str:
    """Return `clients|sessions so far`, or an empty text if the server does not answer."""
    try:
        process = subprocess.run(
            [*psql, "-c", ACTIVITY_QUERY],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.decode(errors="replace").strip() if process.returncode == 0 else ""


def _is_used(activity: str, last_activity: str) -> bool:
    return activity != last_activity or not activity.startswith("0|")


def _stop_if_unused(pid: int, job: LaunchServer, activity: str, has_ended: threading.Event) -> None:
    """Request a smart shutdown, unless another process starts, stops or uses the server."""
    try:
        with Path(job["lock"]).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_used(_read_activity(job["psql"]), activity) and not has_ended.is_set():
                os.kill(pid, signal.SIGTERM)
                has_ended.wait(MAX_SHUTDOWN_SECONDS)
    except OSError:
        return  # locked, or REM_HOME was removed: check again later


def limit_process(limit: LaunchLimit) -> None:
    """Bound the memory of a process, and lower its priority. Only Linux can limit a process that already runs."""
    if sys.platform != "linux":
        sys.exit("error: only Linux can limit a running process")
    max_bytes = limit["max_bytes"]
    # Not the whole address space: it contains the shared memory, and would depend on its size.
    resource.prlimit(limit["pid"], resource.RLIMIT_DATA, (max_bytes, max_bytes))
    os.setpriority(os.PRIO_PROCESS, limit["pid"], limit["nice"])


def main(argument: str) -> None:
    """Run the program of the request."""
    request: LaunchRequest = json.loads(argument)
    os.umask(0o077)
    if request["account"] is not None:
        switch_user(request["account"])
    if "limit" in request:
        limit_process(request["limit"])
    elif request["server"] is not None:
        serve(request["command"], request["server"])
    else:
        os.execv(request["command"][0], request["command"])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1])
