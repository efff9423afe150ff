"""The embedded PostgreSQL server of a REM_HOME: started when needed, shared by all, back after any crash."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rem.db.embedded import lock
from rem.db.embedded.account import choose_server_account
from rem.db.embedded.cluster import check_cluster, create_cluster, remove_unfinished
from rem.db.embedded.diagnostics import describe_full_disk, explain_os_errors, extract_error_lines, read_log_from
from rem.db.embedded.paths import PORT, ServerPaths
from rem.db.embedded.postmaster import (
    Address,
    PidFile,
    find_supervisor,
    is_alive,
    is_postmaster,
    read_pid_file,
    wait_for_exit,
)
from rem.db.embedded.probe import ServerState, StartupMonitor, probe
from rem.db.embedded.programs import PostgresPrograms, find_bin_folder
from rem.errors import EmbeddedServerError

LOG_BYTES = 10 * 1024 * 1024
POLL_SECONDS = 0.02
REMAINS_SECONDS = 30.0  # how long the orphans of a killed server may take to notice
SILENT_SECONDS = 60.0
REMAINS = re.compile(r"pre-existing shared memory block|lock file \".*\" already exists")
STATED = {"starting": ServerState.STARTING, "stopping": ServerState.STOPPING}
OPTIONS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",  # the probe reads them
    "jit": "off",
    "logging_collector": "off",
    "log_destination": "stderr",
}


@dataclass(frozen=True)
class ServerStatus:
    """What is known about the server of a REM_HOME; `port` and `socket_dir` are None when it does not run."""

    running: bool
    pid: int | None
    data_dir: Path
    socket_dir: Path | None
    port: int | None
    version: str
    log_file: Path
    size_bytes: int


class EmbeddedServer:
    """The one PostgreSQL server of a REM_HOME, whoever started it."""

    def __init__(
        self,
        home: Path,
        *,
        run_as: str = "nobody",
        idle_timeout_seconds: float = 1800.0,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        if sys.platform == "win32":
            raise EmbeddedServerError(
                "The embedded PostgreSQL runs on Linux and macOS. On Windows use WSL, "
                "or set POSTGRES__CONNECTION_STRING to a PostgreSQL server."
            )
        self._layout = ServerPaths(home.expanduser().absolute())
        self._run_as = run_as
        self._idle_seconds = idle_timeout_seconds
        self._tell = on_progress or (lambda sentence: None)

    @property
    def data_dir(self) -> Path:
        """The folder of the database."""
        return self._layout.data

    @property
    def log_file(self) -> Path:
        """Where the server writes its log."""
        return self._layout.log

    def address(self) -> Address | None:
        """Where the server listens by its own account, without proof that it lives."""
        pid_file = self._pid_file()
        return pid_file.address if pid_file else None

    def ensure_running(self) -> Address:
        """A server that just answered: the one that runs, or one started (and first created) now."""
        if address := self._answering():
            return address
        if "\n" in str(self._layout.home):
            raise EmbeddedServerError("REM_HOME must not contain a line break: set it to another folder.")
        self._layout.prepare(self._programs.account)
        while True:
            with lock.attempt(self._layout.lock) as taken:
                if taken:
                    return self._bring_up()
            # Not only the holder's business: it may have been suspended after its server was up.
            if address := self._answering():
                return address
            time.sleep(POLL_SECONDS * 3)

    def stop(self, timeout_seconds: float = 60) -> bool:
        """Shut the server down and wait until it is gone; False if none ran."""
        if self._pid_file() is None:
            return False
        self._layout.prepare(self._programs.account)
        deadline = time.monotonic() + timeout_seconds
        with self._locked(deadline):
            pid_file = self._pid_file()
            if pid_file is None or not is_postmaster(pid_file, self.data_dir):
                self._refuse_unseen(pid_file)
                return False
            supervisor = find_supervisor(pid_file.pid)
            _interrupt(pid_file.pid)
            while is_postmaster(pid_file, self.data_dir):
                if time.monotonic() > deadline:
                    raise EmbeddedServerError(
                        f"The server (process {pid_file.pid}) did not stop within {timeout_seconds:g} s, "
                        f"but was told to. Its log is {self.log_file}."
                    )
                time.sleep(POLL_SECONDS)
            self._remove_socket(pid_file)
            if supervisor is not None:
                # It still has the log open, so that the folder could be neither removed nor unmounted.
                wait_for_exit(supervisor)
            return True

    def status(self) -> ServerStatus:
        """What is known about the server, without starting or changing anything."""
        pid_file = self._pid_file()
        running = pid_file is not None and self._lives(pid_file)
        address = pid_file.address if pid_file and running else None
        return ServerStatus(
            running=running,
            pid=pid_file.pid if pid_file and running else None,
            data_dir=self.data_dir,
            socket_dir=address.socket_dir if address else None,
            port=address.port if address else None,
            version=self._programs.version,
            log_file=self.log_file,
            size_bytes=_size(self.data_dir),
        )

    @cached_property
    def _programs(self) -> PostgresPrograms:
        return PostgresPrograms(find_bin_folder(), choose_server_account(self._run_as), (self._layout.folder,))

    def _pid_file(self) -> PidFile | None:
        with explain_os_errors(f"read the data folder {self.data_dir}"):
            return read_pid_file(self.data_dir)

    def _lives(self, pid_file: PidFile) -> bool:
        """Whether there is a server, also one in another container, whose process cannot be seen."""
        return is_postmaster(pid_file, self.data_dir) or self._life(pid_file) is not ServerState.ABSENT

    def _life(self, pid_file: PidFile | None) -> ServerState:
        return probe(pid_file.address) if pid_file and pid_file.address else ServerState.ABSENT

    def _answering(self) -> Address | None:
        pid_file = self._pid_file()
        return pid_file.address if pid_file and self._life(pid_file) is ServerState.READY else None

    @contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        while True:
            with lock.attempt(self._layout.lock) as taken:
                if taken:
                    yield
                    return
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"Another process is starting or stopping the server of {self._layout.home}. Try again."
                )
            time.sleep(POLL_SECONDS)

    def _refuse_unseen(self, pid_file: PidFile | None) -> None:
        if self._life(pid_file) is not ServerState.ABSENT:
            raise EmbeddedServerError(
                f"The server of {self._layout.home} answers, but its process cannot be seen from here: "
                "stop it in the container where it was started."
            )

    def _bring_up(self) -> Address:
        """Under the lock: wait for a server that is there already, else start one."""
        if address := self._await_present():
            return address
        if not check_cluster(self._layout, self._programs):
            remove_unfinished(self._layout.folder)
            self._tell(f"Creating a new database in {self.data_dir} …")
            create_cluster(self._layout, self._programs)
        return self._start()

    def _await_present(self) -> Address | None:
        """The address of a server that is there already, once it answers; None if there is none any more."""
        pid_file = self._pid_file()
        if pid_file is None or not self._lives(pid_file):
            return None
        return self._await_ready(pid_file.pid, lambda _: is_postmaster(pid_file, self.data_dir))

    def _start(self) -> Address:
        socket_dir = self._layout.prepare_socket_dir(self._programs.account)
        self._rotate_log()
        crashed = self._pid_file() is not None
        self._tell("Recovering after a crash …" if crashed else f"Starting PostgreSQL {self._programs.version} …")
        deadline = time.monotonic() + REMAINS_SECONDS
        while True:
            self._remove_remains(socket_dir)
            offset = self.log_file.stat().st_size if self.log_file.exists() else 0
            try:
                pid = self._launch(socket_dir)
            except EmbeddedServerError as error:
                raise self._failure(str(error)) from error
            # A launcher whose starter was killed may have come first.
            if address := self._await_ready(pid, is_alive) or self._await_present():
                return address
            output = read_log_from(self.log_file, offset)
            if not REMAINS.search(output) or time.monotonic() > deadline:
                raise self._failure(extract_error_lines(output) or "it ended without a word")
            time.sleep(POLL_SECONDS * 5)

    def _launch(self, socket_dir: Path) -> int:
        options = OPTIONS | {"unix_socket_directories": str(socket_dir)}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        psql = [str(self._programs.bin / "psql"), "-XAtqw", "-U", "rem", "-d", "postgres"]
        return self._programs.serve(
            ["-D", str(self.data_dir), *arguments],
            {
                "log": str(self.log_file),
                "lock": str(self._layout.lock),
                "psql": [*psql, "-h", str(socket_dir), "-p", str(PORT)],
                "idle_seconds": self._idle_seconds,
            },
        )

    def _await_ready(self, pid: int, is_there: Callable[[int], bool]) -> Address | None:
        """The address once the server answers, however long it recovers; None if it ended."""
        wait = StartupMonitor(self._tell)
        while True:
            alive = is_there(pid)
            pid_file = self._pid_file()
            if pid_file and pid_file.pid != pid:
                pid_file = None  # left by its predecessor
            # What the server writes about itself spares its log a refused connection per look.
            life = STATED.get(pid_file.status) if alive and pid_file else None
            life = life or self._life(pid_file)
            if life is ServerState.READY and pid_file:
                return pid_file.address
            if life is ServerState.ABSENT and not alive:
                return None
            if wait.should_interrupt(life, pid_file) and alive:
                _interrupt(pid)
            if wait.silent_seconds > SILENT_SECONDS:
                raise EmbeddedServerError(
                    f"The server (process {pid}) is there, but has not answered for {SILENT_SECONDS:g} s. "
                    f"See its log {self.log_file}, then stop it: rem db stop"
                )
            time.sleep(POLL_SECONDS)

    def _remove_remains(self, socket_dir: Path) -> None:
        """Remove what a killed server left, under the lock and with no server alive.

        PostgreSQL itself refuses to start when the pid in them is that of a zombie or of another process.
        The orphans of a killed server still hold its shared memory, and that PostgreSQL does notice.
        """
        pid_file = self._pid_file()
        if pid_file and self._lives(pid_file):
            return
        with explain_os_errors(f"remove what a killed server left in {self._layout.folder}"):
            (self.data_dir / "postmaster.pid").unlink(missing_ok=True)
            for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
                (socket_dir / name).unlink(missing_ok=True)

    def _remove_socket(self, pid_file: PidFile) -> None:
        """Leave no empty folder among the temporary files."""
        if pid_file.address and pid_file.address.socket_dir != self._layout.run:
            try:
                pid_file.address.socket_dir.rmdir()
            except OSError:
                return  # not empty or gone: no harm

    def _rotate_log(self) -> None:
        with explain_os_errors(f"write the log {self.log_file}"):
            if self.log_file.exists() and self.log_file.stat().st_size > LOG_BYTES:
                self.log_file.replace(self.log_file.with_suffix(".log.1"))

    def _failure(self, reason: str) -> EmbeddedServerError:
        return EmbeddedServerError(
            f"PostgreSQL could not be started on {self.data_dir}: {reason.rstrip('.')}."
            f"{describe_full_disk(self._layout.folder)} Nothing was deleted; the log is {self.log_file}."
        )


def _interrupt(pid: int) -> None:
    """Ask for a fast shutdown: clients are cut, everything committed is kept."""
    try:
        os.kill(pid, signal.SIGINT)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise EmbeddedServerError(
            f"The server is process {pid} of another user: stop it as that user or as root."
        ) from error


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{parent}/{name}").st_size
            except FileNotFoundError:
                continue  # files come and go while the server runs
    return total
