"""Fork `rem` processes from one that has imported everything: a new Python takes up to two seconds for the imports.

`forked_process.py` starts it once for each worker of pytest: `python -P fork_server.py FD`. It has one thread and reads
no settings, so that a fork does what a new process would do, from its arguments to its exit code.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import termios
import threading
from contextlib import suppress
from typing import Any

LIBRARIES = """
asyncpg croniter fastmcp httpx2 jsonschema_rs numpy openai orjson prompt_toolkit pydantic_ai
pydantic_ai.models.function pydantic_ai.models.openai pydantic_ai.providers.openai rich.console rich.live rich.markdown
rich.progress rich.table semchunk.semchunk tokenizers uvicorn uvicorn.lifespan.on uvicorn.loops.uvloop
uvicorn.protocols.http.httptools_impl yaml
"""
"""What REM imports inside of functions. Not onnxruntime: its import starts a thread, without which forks do not end."""
PROGRAMS = ("rem.__main__", "rem.api.main", "rem.ingest.readers.document_process")
"""Modules that do something when they are imported, such as reading the settings."""


def import_everything() -> None:
    """Import all modules of REM and the libraries that they use, and build the command."""
    import rem
    from rem.cli.main import build_command
    from rem.settings import get_settings

    for module in pkgutil.walk_packages(rem.__path__, "rem."):
        if module.name not in PROGRAMS:
            importlib.import_module(module.name)
    for name in LIBRARIES.split():
        importlib.import_module(name)
    build_command()
    assert get_settings.cache_info().currsize == 0, "a module reads the settings when it is imported: see PROGRAMS"


class ForkServer:
    """Forks a process for each request, and sends its exit code when it has ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._running: dict[int, socket.socket] = {}
        self._signals, self._signalled = socket.socketpair()
        for end in (self._signals, self._signalled):
            end.setblocking(False)

    def serve(self) -> dict[str, Any] | None:
        """Serve until the tests end. Return None then, and in each fork what it has to do."""
        # Without a handler, the signal would not wake the selector.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._signalled.fileno())
        with selectors.DefaultSelector() as selector:
            for source in (self._requests, self._signals):
                selector.register(source, selectors.EVENT_READ)
            while True:
                sources = [key.fileobj for key, _ in selector.select()]
                if self._signals in sources:
                    self._report_ended()
                if self._requests in sources:
                    message, descriptors, _, _ = socket.recv_fds(self._requests, 1, 4)
                    if not message:
                        return None
                    *streams, status = descriptors
                    connection = socket.socket(fileno=status)
                    if (pid := os.fork()) == 0:
                        break
                    for stream in streams:
                        os.close(stream)
                    self._running[pid] = connection
                    connection.sendall(_pack(pid))
        return self._become(streams, connection)

    def close(self) -> None:
        """Close all connections."""
        for connection in (self._requests, self._signals, self._signalled, *self._running.values()):
            connection.close()

    def _report_ended(self) -> None:
        with suppress(BlockingIOError):
            self._signals.recv(65536)
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            # Whoever started it may not want to know any more.
            with self._running.pop(pid) as connection, suppress(OSError):
                connection.sendall(_pack(os.waitstatus_to_exitcode(status)))

    def _become(self, streams: list[int], connection: socket.socket) -> dict[str, Any]:
        """Make this fork a process of its own, with its own streams, environment and folder."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.close()
        with connection, connection.makefile("rb") as received:
            request: dict[str, Any] = json.loads(received.readline())
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        if request["in_terminal"]:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _open_standard_streams()
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        return request


def _open_standard_streams() -> None:
    """Open the streams as Python does at its start: a terminal is written line by line, and a pipe cannot seek."""
    encoding, errors = sys.stdout.encoding, sys.stdout.errors
    sys.stdin = os.fdopen(0, encoding=encoding, errors=errors, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, errors=errors, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding=encoding, errors="backslashreplace", closefd=False)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))


def _pack(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def run(request: dict[str, Any]) -> None:
    """Run what the request names: the command `rem`, or Python with `-m` or `-c`."""
    sys.argv = request["arguments"]
    if sys.argv[0] in ("-m", "-c"):
        sys.path.insert(0, request["folder"])
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    if sys.argv[0] == "-c":
        program = compile(sys.argv.pop(1), "<string>", "exec")
        exec(program, {"__name__": "__main__", "__builtins__": __builtins__})
        return
    sys.path.insert(0, os.path.dirname(sys.argv[0]))  # noqa: PTH120
    from rem.__main__ import main

    main()


def run_to_end(request: dict[str, Any]) -> None:
    """Run a request and end this process, without taking all modules apart, which takes longer than most commands."""
    try:
        run(request)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    else:
        code = 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    # Objects that were never closed say so now.
    gc.collect()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        sys.exit(code)
    os._exit(code)


if __name__ == "__main__":
    import_everything()
    # The objects so far stay shared with the forks: collecting garbage would copy their pages.
    gc.collect()
    gc.freeze()
    server = ForkServer(socket.socket(fileno=int(sys.argv[1])))
    request = server.serve()
    if request is None:
        server.close()
    else:
        run_to_end(request)
