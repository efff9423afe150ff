"""PostgreSQL servers of the embedded package on ports of this machine: primaries, streaming replicas and failovers."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path

import asyncpg
import psutil

from rem.db.database import Database, migrate_schema
from rem.db.embedded.account import choose_server_account, give_to_account
from rem.db.embedded.cluster import INITDB_OPTIONS
from rem.db.embedded.programs import PostgresPrograms, find_bin_folder
from rem.db.preflight import read_server_info
from rem.settings import Settings
from tests.jobs.conftest import eventually

USER = "rem"
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "32MB",
    # A killed server must not lose what it has acknowledged, and that is tested: fsync is on.
    "wal_level": "replica",
    "hot_standby": "on",
    "hot_standby_feedback": "on",
    "wal_receiver_timeout": "5s",
    "wal_retrieve_retry_interval": "200ms",
}


class PostgresServer:
    """A server with its data in one folder, which the test starts, kills and promotes."""

    def __init__(self, folder: Path) -> None:
        account = choose_server_account("nobody")
        self.port = find_free_port()
        self._folder = folder
        self._data = folder / "data"
        folder.mkdir()
        give_to_account(folder, account)
        self._programs = PostgresPrograms(find_bin_folder(), account, (folder,))
        self._pid: int | None = None

    def dsn(self, database: str = "rem") -> str:
        """Return the address of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    async def create(self, **options: str) -> None:
        """Create a cluster with an empty database `rem`, and start the server."""
        await asyncio.to_thread(self._programs.run, "initdb", "-D", str(self._data), *INITDB_OPTIONS)
        await self.start(**options)
        await self.execute("CREATE DATABASE rem", database="postgres")

    async def start(self, **options: str) -> None:
        """Start the server, and wait until it accepts connections."""
        arguments = ["-D", str(self._data), "-p", str(self.port)]
        for name, value in {**OPTIONS, **options}.items():
            arguments += ["-c", f"{name}={value}"]
        self._pid = await asyncio.to_thread(
            self._programs.serve,
            arguments,
            {"log": str(self._folder / "log"), "idle_seconds": 0, "lock": "", "psql": []},
        )
        await eventually(self._accepts)

    async def _accepts(self) -> bool:
        await self.execute("SELECT 1", database="postgres")
        return True

    async def execute(self, statement: str, database: str = "rem") -> object:
        """Run a statement, and return its first value."""
        connection = await asyncpg.connect(self.dsn(database), timeout=5)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async def replicate(self, folder: Path, **options: str) -> PostgresServer:
        """Start a streaming replica of this server."""
        replica = PostgresServer(folder)
        arguments = ("-D", str(replica._data), "-d", self.dsn("postgres"), "-R", "-X", "stream", "-c", "fast")
        await asyncio.to_thread(self._programs.run, "pg_basebackup", *arguments)
        await replica.start(**options)
        return replica

    def read_log(self) -> str:
        """Return what the server has logged."""
        return (self._folder / "log").read_text(errors="replace")

    def freeze(self, *, is_frozen: bool = True) -> None:
        """Stop all processes of the server without ending them, as a machine that hangs, or continue them."""
        assert self._pid is not None
        postmaster = psutil.Process(self._pid)
        for process in (postmaster, *postmaster.children()):
            process.suspend() if is_frozen else process.resume()

    async def promote(self) -> None:
        """Make a replica the primary, and wait until it accepts writes."""
        await asyncio.to_thread(self._programs.run, "pg_ctl", "-D", str(self._data), "-w", "promote")

    def kill(self) -> None:
        """Kill all processes of the server at once, as a power failure does. A second call has no effect."""
        if self._pid is None or not psutil.pid_exists(self._pid):
            return
        postmaster = psutil.Process(self._pid)
        # First the postmaster: it would start again what is killed before it.
        processes = [postmaster, *postmaster.children()]
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(processes, timeout=20)

    def remove(self) -> None:
        """Kill the server, and remove its files."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


async def migrate(settings: Settings) -> None:
    """Do what `rem db migrate` does."""
    async with Database(settings).unpooled_connection() as connection:
        await migrate_schema(connection, settings, await read_server_info(connection))


def find_free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
