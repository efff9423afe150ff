"""Processes of REM that the fork server starts: as `subprocess.Popen`, without the time of all imports."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, TypeAlias

import psutil

Stream: TypeAlias = int | IO[str] | IO[bytes]
"""A descriptor, an open file, or one of the constants PIPE and DEVNULL of `subprocess`."""
_SCRIPT = Path(__file__).with_name("fork_server.py")


@cache
def _connect() -> socket.socket:
    """Start the fork server of this process, and return a connection to it. Closing it ends the server."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class ForkedProcess:
    """A process that runs `rem`, or Python with `-m` or `-c` as its first argument. Its streams are text."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = subprocess.DEVNULL,
        stderr: Stream = subprocess.DEVNULL,
        in_terminal: bool = False,
    ) -> None:
        self.returncode: int | None = None
        self._arguments = list(arguments)
        self._status, theirs = socket.socketpair()
        request = {
            "arguments": self._arguments,
            "environment": dict(environment),
            "folder": str(folder),
            "in_terminal": in_terminal,
        }
        with (
            _open_stream(stdin, "r") as (own_stdin, in_fd),
            _open_stream(stdout, "w") as (own_stdout, out_fd),
            _open_stream(stderr, "w") as (own_stderr, err_fd),
            theirs,
        ):
            socket.send_fds(_connect(), [b"x"], [in_fd, out_fd, err_fd, theirs.fileno()])
        self._status.sendall(json.dumps(request).encode() + b"\n")
        self.stdin, self.stdout, self.stderr = own_stdin, own_stdout, own_stderr
        self.pid = self._receive()

    def _receive(self) -> int:
        data = self._status.recv(8, socket.MSG_WAITALL)
        assert len(data) == 8, "the fork server has ended"
        return int.from_bytes(data, "big", signed=True)

    def poll(self) -> int | None:
        """Return the exit code, or None if the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code; negative if a signal has ended the process."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = self._receive()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0) from None
            self._status.close()
        return self.returncode

    def communicate(self, text: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Write a text to the standard input, and return what the process prints until its end."""
        with ThreadPoolExecutor(3) as pool:
            printed = [pool.submit(stream.read) if stream else None for stream in (self.stdout, self.stderr)]
            if self.stdin is not None:
                pool.submit(self._write, text)
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            out, err = (found.result() if found else "" for found in printed)
        self.close()
        return out, err

    def _write(self, text: str) -> None:
        assert self.stdin is not None
        # The process may end without reading all.
        with suppress(BrokenPipeError):
            self.stdin.write(text)
            self.stdin.close()

    def close(self) -> None:
        """Close this side of the streams."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._status.close()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def kill_with_children(self) -> None:
        """Kill a supervisor and its children, which would otherwise end by themselves in good order."""
        try:
            children = psutil.Process(self.pid).children()
        except psutil.NoSuchProcess:
            return
        self.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()


@contextmanager
def _open_stream(stream: Stream, mode: str) -> Iterator[tuple[IO[str] | None, int]]:
    """Yield this side of a pipe, if one is wanted, and the descriptor for the process. Close the latter."""
    if stream == subprocess.PIPE:
        read, write = os.pipe()
        ours, theirs = (write, read) if mode == "r" else (read, write)
        try:
            yield os.fdopen(ours, "w" if mode == "r" else "r"), theirs
        finally:
            os.close(theirs)
    elif stream == subprocess.DEVNULL:
        with Path(os.devnull).open(mode) as devnull:
            yield None, devnull.fileno()
    else:
        yield None, stream if isinstance(stream, int) else stream.fileno()
