"""Run Debian's PgBouncer in transaction mode in front of the tests' server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.db.embedded.processes import wait_until
from tests.deployment.servers import USER, PostgresServer, find_free_port

SERVER_CONNECTIONS = 3
"""Fewer than the clients, so that transactions of all clients meet on each connection."""


@dataclass(frozen=True)
class Pooler:
    """A running PgBouncer."""

    port: int
    version: tuple[int, ...]

    @property
    def dsn(self) -> str:
        """Return the address of the database `rem` by way of the pooler."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/rem"

    @property
    def console(self) -> str:
        """Return the address of the console of the pooler."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/pgbouncer"

    @property
    def can_prepare(self) -> bool:
        """Return True if this version passes prepared statements on."""
        return self.version >= (1, 21)


@contextmanager
def running_pooler(folder: Path, server: PostgresServer) -> Iterator[Pooler]:
    """Run PgBouncer in front of a server."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None, "PgBouncer is missing: `make test-deployment` installs it"
    pooler = Pooler(find_free_port(), _read_version(program))
    config = folder / "pgbouncer.ini"
    config.write_text(_make_config(pooler, server))
    # PgBouncer refuses to run as root.
    account = ["--user", "nobody"] if os.geteuid() == 0 else []
    with (folder / "pgbouncer.log").open("w") as log:
        process = subprocess.Popen([program, *account, str(config)], stderr=log, cwd="/")
    try:
        wait_until(lambda: _accepts(pooler.port))
        yield pooler
    finally:
        process.kill()
        process.wait()


def _make_config(pooler: Pooler, server: PostgresServer) -> str:
    return f"""
[databases]
rem = host=127.0.0.1 port={server.port} user={USER}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {pooler.port}
unix_socket_dir =
auth_type = any
admin_users = {USER}
pool_mode = transaction
default_pool_size = {SERVER_CONNECTIONS}
{"max_prepared_statements = 200" if pooler.can_prepare else ""}
"""


def _read_version(program: str) -> tuple[int, ...]:
    printed = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in printed.split()[1].split("."))


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
