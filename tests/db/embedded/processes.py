"""Helpers of the tests of the embedded server: run psql, Python and shell commands, and wait for conditions."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from rem.db.embedded import Address, EmbeddedServer, launch
from rem.db.embedded.programs import find_bin_folder

ENSURE_RUNNING = """
import sys
from pathlib import Path
from rem.db.embedded import EmbeddedServer
from rem.errors import RemError
try:
    server = EmbeddedServer(Path(sys.argv[1]), idle_timeout_seconds=60)
    server.ensure_running()
    print(server.status().pid)
except RemError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
ENSURE_RUNNING_WITH_FILE_LIMIT = (
    "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n" + ENSURE_RUNNING
)
# Drops the capability that the launcher kept to read the interpreter.
DROP_CAPABILITIES = """
import ctypes, sys
import rem.db.embedded
if sys.platform == "linux":
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
"""
NOBODY = pwd.getpwnam("nobody")
SERVER_UID = os.geteuid() or NOBODY.pw_uid


def run_sql(address: Address, sql: str) -> str:
    """Run SQL with the bundled psql, and return its output."""
    options = ["-XAtw", "-v", "ON_ERROR_STOP=1", "-c", sql, address.dsn()]
    done = run([str(find_bin_folder() / "psql"), *options])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_shell(address: Address, command: str) -> str:
    """Run a shell command as the user of the server, who alone may inspect its processes. Return its output."""
    copy = f"COPY output FROM PROGRAM '{command}'"
    return run_sql(address, f"CREATE TEMP TABLE output (line text); {copy}; TABLE output; DROP TABLE output")


def python(code: str, *arguments: str | Path) -> list[str]:
    """Return a command that runs Python code with warnings as errors."""
    return [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(command, capture_output=True, text=True)


def run_as_ordinary_user(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python code as a user other than root.

    If that user cannot reach the interpreter, the launcher keeps one capability to read it.
    """
    command = python(code, *arguments)
    if os.geteuid() != 0:
        return run(command)
    job: launch.LaunchRequest = {
        "command": command,
        "account": {
            "uid": NOBODY.pw_uid,
            "gid": NOBODY.pw_gid,
            "groups": [NOBODY.pw_gid],
            "folders": [],
            "program": python("import rem.db.embedded, psutil"),
        },
        "server": None,
    }
    return run([sys.executable, "-I", "-S", launch.__file__, json.dumps(job)])


def start_as_server_user(code: str) -> subprocess.Popen[bytes]:
    """Start a process of the same user as the server, so that PostgreSQL could signal it."""
    command = ["/bin/sh", "-c", code]
    return subprocess.Popen(command, user=SERVER_UID) if os.geteuid() == 0 else subprocess.Popen(command)


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


def find_postmaster(server: EmbeddedServer) -> psutil.Process:
    """Return the process of the running server."""
    pid = server.status().pid
    assert pid is not None
    return psutil.Process(pid)


def run_failing(command: list[str]) -> str:
    """Run a command that must fail with one EmbeddedServerError, and return its error output."""
    done = run(command)
    assert done.returncode == 1, done
    assert done.stderr.startswith("EmbeddedServerError: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr
