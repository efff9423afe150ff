"""Check whether a server answers, without a driver, and watch it until it is ready."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from enum import Enum

from rem.db.embedded.postmaster import Address, PidFile
from rem.errors import EmbeddedServerError

PROTOCOL_3_0 = 196608
TERMINATE = b"X\x00\x00\x00\x04"
CANNOT_CONNECT_NOW = "57P03"
TOO_MANY_CONNECTIONS = "53300"
MAX_STOPPING_SECONDS = 10.0
"""Time that the last clients may stay on a server that accepts no new ones."""
PROGRESS_INTERVAL_SECONDS = 10.0


class ServerState(Enum):
    """The answer of a server. SILENT: it does not answer in time. ABSENT: nothing listens."""

    READY = "ready"
    STARTING = "starting"
    STOPPING = "stopping"
    SILENT = "silent"
    ABSENT = "absent"


def probe(address: Address, timeout_seconds: float = 2.0) -> ServerState:
    """Log in as a client, and return the state of the server. Raise EmbeddedServerError if it refuses the user."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(str(address.socket))
            connection.sendall(_build_startup_packet(address))
            return _read_answer(connection, address)
    except (TimeoutError, BlockingIOError):
        return ServerState.SILENT
    except (FileNotFoundError, ConnectionError):
        return ServerState.ABSENT
    except OSError as error:
        raise EmbeddedServerError(
            f"Cannot connect to the embedded PostgreSQL at {address.socket}: {error.strerror or error}. "
            "It belongs to another user: run REM as that user, or set REM_HOME to a folder of yours."
        ) from error


def _build_startup_packet(address: Address) -> bytes:
    fields = ("user", address.user, "database", address.database, "application_name", "rem-probe")
    body = struct.pack("!i", PROTOCOL_3_0) + b"".join(field.encode() + b"\0" for field in fields) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def _read_answer(connection: socket.socket, address: Address) -> ServerState:
    with connection.makefile("rb") as stream:
        while len(header := stream.read(5)) == 5:
            message_type, length = struct.unpack("!ci", header)
            body = stream.read(length - 4)
            if message_type == b"Z":
                connection.sendall(TERMINATE)
                return ServerState.READY
            if message_type == b"E":
                return _read_error(body, address)
    return ServerState.ABSENT


def _read_error(body: bytes, address: Address) -> ServerState:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    code, message = fields.get(b"C", ""), fields.get(b"M", "")
    if code == TOO_MANY_CONNECTIONS:
        return ServerState.READY  # the caller gets this error when it connects
    if code == CANNOT_CONNECT_NOW:
        return ServerState.STOPPING if "shutting down" in message else ServerState.STARTING
    raise EmbeddedServerError(
        f"The embedded PostgreSQL at {address.socket_dir} runs but refuses user {address.user}: {message}. "
        "REM never replaces a database: restore a backup, or set REM_HOME to another folder."
    )


class StartupMonitor:
    """Watches a server that is not ready yet: reports progress, and decides when to interrupt it."""

    def __init__(self, on_progress: Callable[[str], None]) -> None:
        self._on_progress = on_progress
        self._started_at = self._reported_at = self._answered_at = time.monotonic()
        self._is_interrupted = False

    @property
    def silent_seconds(self) -> float:
        """Return the time since the last answer of the server."""
        return time.monotonic() - self._answered_at

    def should_interrupt(self, state: ServerState, pid_file: PidFile | None) -> bool:
        """Return True, once, if the server should be interrupted: it hangs in a shutdown, or lost its socket."""
        now = time.monotonic()
        if state in (ServerState.STARTING, ServerState.STOPPING):
            self._answered_at = now
        if now - self._reported_at > PROGRESS_INTERVAL_SECONDS:
            self._reported_at = now
            activity = "shutting down" if state is ServerState.STOPPING else "recovering or starting"
            self._on_progress(f"PostgreSQL is still {activity} after {now - self._started_at:.0f} s …")
        if self._is_interrupted:
            return False
        # A smart shutdown waits for clients, which may stay for days, and accepts no new ones.
        is_overdue = state is ServerState.STOPPING and now - self._started_at > MAX_STOPPING_SECONDS
        self._is_interrupted = is_overdue or (state is ServerState.ABSENT and _has_lost_socket(pid_file))
        return self._is_interrupted


def _has_lost_socket(pid_file: PidFile | None) -> bool:
    """Return True if the socket of a ready server was removed, or moved with its REM_HOME."""
    if pid_file is None or pid_file.address is None or pid_file.status != "ready":
        return False
    return not pid_file.address.socket.exists()
