"""Proof of life: connect as a client would, without a driver."""

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


class ServerState(Enum):
    """What a server answered."""

    READY = "ready"
    STARTING = "starting"
    STOPPING = "stopping"
    SILENT = "silent"
    ABSENT = "absent"


def probe(address: Address, timeout_seconds: float = 2.0) -> ServerState:
    """Whether a client can log in to the database right now, and if not, why."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(str(address.socket))
            connection.sendall(_startup_packet(address))
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


def _startup_packet(address: Address) -> bytes:
    fields = ("user", address.user, "database", address.database, "application_name", "rem-probe")
    body = struct.pack("!i", PROTOCOL_3_0) + b"".join(field.encode() + b"\0" for field in fields) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def _read_answer(connection: socket.socket, address: Address) -> ServerState:
    with connection.makefile("rb") as stream:
        while len(header := stream.read(5)) == 5:
            kind, length = struct.unpack("!ci", header)
            body = stream.read(length - 4)
            if kind == b"Z":
                connection.sendall(TERMINATE)
                return ServerState.READY
            if kind == b"E":
                return _read_error(body, address)
    return ServerState.ABSENT


def _read_error(body: bytes, address: Address) -> ServerState:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    code, message = fields.get(b"C", ""), fields.get(b"M", "")
    if code == TOO_MANY_CONNECTIONS:
        return ServerState.READY  # the caller's own attempt will say so
    if code == CANNOT_CONNECT_NOW:
        return ServerState.STOPPING if "shutting down" in message else ServerState.STARTING
    raise EmbeddedServerError(
        f"The embedded PostgreSQL at {address.socket_dir} runs but refuses user {address.user}: {message}. "
        "REM makes no other database in its place: restore a backup, or set REM_HOME to another folder."
    )


STOPPING_SECONDS = 10.0  # how long the last clients of a server that takes no new ones may stay
RETELL_SECONDS = 10.0


class StartupMonitor:
    """Watches a server that is not ready yet: tells about it, and says when waiting longer is in vain."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._began = self._told = self._heard = time.monotonic()
        self._interrupted = False

    @property
    def silent_seconds(self) -> float:
        """How long the server has not answered at all."""
        return time.monotonic() - self._heard

    def should_interrupt(self, life: ServerState, pid_file: PidFile | None) -> bool:
        """Whether the server should be shut down for good, true only once."""
        now = time.monotonic()
        if life in (ServerState.STARTING, ServerState.STOPPING):
            self._heard = now
        if now - self._told > RETELL_SECONDS:
            self._told = now
            doing = "shutting down" if life is ServerState.STOPPING else "recovering or starting"
            self._tell(f"PostgreSQL is still {doing} after {now - self._began:.0f} s …")
        if self._interrupted:
            return False
        # A smart shutdown waits for clients that may stay for days and lets nobody else in.
        overdue = life is ServerState.STOPPING and now - self._began > STOPPING_SECONDS
        self._interrupted = overdue or (life is ServerState.ABSENT and _lost_its_socket(pid_file))
        return self._interrupted


def _lost_its_socket(pid_file: PidFile | None) -> bool:
    """Whether the socket of a server that is ready was removed, or moved with its REM_HOME."""
    if pid_file is None or pid_file.address is None or pid_file.status != "ready":
        return False
    return not pid_file.address.socket.exists()
