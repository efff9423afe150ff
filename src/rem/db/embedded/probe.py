"""Proof of life: connect as a client would, without a driver."""

from __future__ import annotations

import socket
import struct
from enum import Enum

from rem.db.embedded.pidfile import Address
from rem.errors import EmbeddedServerError

PROTOCOL_3_0 = 196608
TERMINATE = b"X\x00\x00\x00\x04"
CANNOT_CONNECT_NOW = "57P03"
TOO_MANY_CONNECTIONS = "53300"


class Life(Enum):
    """What a server answered."""

    READY = "ready"
    STARTING = "starting"
    STOPPING = "stopping"
    SILENT = "silent"
    ABSENT = "absent"


def probe(address: Address, timeout_seconds: float = 2.0) -> Life:
    """Whether a client can log in to the database right now, and if not, why."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(str(address.socket))
            connection.sendall(_startup_packet(address))
            return _read_answer(connection, address)
    except (TimeoutError, BlockingIOError):
        return Life.SILENT
    except (FileNotFoundError, ConnectionError):
        return Life.ABSENT
    except OSError as error:
        raise EmbeddedServerError(
            f"Cannot connect to the embedded PostgreSQL at {address.socket}: {error.strerror or error}. "
            "It belongs to another user: run REM as that user, or set REM_HOME to a folder of yours."
        ) from error


def _startup_packet(address: Address) -> bytes:
    fields = ("user", address.user, "database", address.database, "application_name", "rem-probe")
    body = struct.pack("!i", PROTOCOL_3_0) + b"".join(field.encode() + b"\0" for field in fields) + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def _read_answer(connection: socket.socket, address: Address) -> Life:
    with connection.makefile("rb") as stream:
        while len(header := stream.read(5)) == 5:
            kind, length = struct.unpack("!ci", header)
            body = stream.read(length - 4)
            if kind == b"Z":
                connection.sendall(TERMINATE)
                return Life.READY
            if kind == b"E":
                return _read_error(body, address)
    return Life.ABSENT


def _read_error(body: bytes, address: Address) -> Life:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    code, message = fields.get(b"C", ""), fields.get(b"M", "")
    if code == TOO_MANY_CONNECTIONS:
        return Life.READY  # the caller's own attempt will say so
    if code == CANNOT_CONNECT_NOW:
        return Life.STOPPING if "shutting down" in message else Life.STARTING
    raise EmbeddedServerError(
        f"The embedded PostgreSQL at {address.socket_dir} runs but refuses user {address.user}: {message}. "
        "REM makes no other database in its place: restore a backup, or set REM_HOME to another folder."
    )
