"""EmbeddedServer: start, stop and inspect the PostgreSQL server of a REM_HOME."""

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

from rem.db.embedded.account import choose_server_account
from rem.db.embedded.backend import BackendProcess
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

if sys.platform != "win32":  # EmbeddedServer raises an error there
    import fcntl

MAX_LOG_BYTES = 10 * 1024 * 1024
POLL_SECONDS = 0.02
MAX_ORPHAN_SECONDS = 30.0
"""Time that the child processes of a killed server need to notice its end."""
MAX_SILENT_SECONDS = 60.0
FAST_SHUTDOWN = signal.SIGINT
"""Disconnects the clients, and keeps committed data."""
IMMEDIATE_SHUTDOWN = signal.SIGQUIT if sys.platform != "win32" else signal.SIGTERM
"""Ends all processes at once. Committed data is kept, too: the next start reads it from the WAL."""
FAST_SHUTDOWN_SECONDS = 15.0
"""Time that a fast shutdown gets before an immediate one."""
ORPHANS_MESSAGE = re.compile(r"pre-existing shared memory block|lock file \"[^\"]*\" already exists")
PID_FILE_STATES = {"starting": ServerState.STARTING, "stopping": ServerState.STOPPING}
SERVER_OPTIONS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",  # the probe parses messages
    "jit": "off",
    "logging_collector": "off",
    "log_destination": "stderr",
    # The log must not repeat what users store: erasing a user does not erase the log. A failed statement is logged
    # without its text and parameters, and without the DETAIL line, which quotes the row or the key.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
    "log_parameter_max_length_on_error": "0",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    # Messages quote values, too ("invalid input syntax for type integer: …"), so errors of statements are not logged:
    # REM gets each of them and reports it. Starts, stops, crashes and fatal errors are logged.
    "log_min_messages": "log",
    # A statement whose client was killed ends. PostgreSQL can notice that on some systems only.
    **({"client_connection_check_interval": "5s"} if sys.platform == "linux" else {}),
}


@dataclass(frozen=True)
class ServerStatus:
    """The status of the server of a REM_HOME. `pid`, `port` and `socket_dir` are None if it does not run."""

    running: bool
    pid: int | None
    data_dir: Path
    socket_dir: Path | None
    port: int | None
    version: str
    log_file: Path
    size_bytes: int


class EmbeddedServer:
    """The PostgreSQL server of a REM_HOME. All processes with this REM_HOME share it."""

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
        self._paths = ServerPaths(home.expanduser().absolute())
        self._run_as = run_as
        self._idle_seconds = idle_timeout_seconds
        self._on_progress = on_progress or (lambda message: None)

    @property
    def data_dir(self) -> Path:
        """Return the data folder."""
        return self._paths.data_dir

    @property
    def log_file(self) -> Path:
        """Return the log of the server."""
        return self._paths.log_file

    def address(self) -> Address | None:
        """Return the address in the pid file. The server may have ended without removing it."""
        pid_file = self._read_pid_file()
        return pid_file.address if pid_file else None

    def ensure_running(self) -> Address:
        """Return the address of a server that answers. Create the database and start the server if necessary."""
        if address := self._find_answering_server():
            return address
        if "\n" in str(self._paths.home):
            raise EmbeddedServerError("REM_HOME must not contain a line break: set it to another folder.")
        self._paths.prepare(self._programs.account)
        while True:
            with _try_lock(self._paths.lock_file) as is_locked:
                if is_locked:
                    return self._create_and_start()
            # The process with the lock may have been suspended after it started the server.
            if address := self._find_answering_server():
                return address
            time.sleep(POLL_SECONDS * 3)

    def stop(self, timeout_seconds: float = 60) -> bool:
        """Stop the server and wait for its end. Return False if no server ran."""
        if self._read_pid_file() is None:
            return False
        self._paths.prepare(self._programs.account)
        deadline = time.monotonic() + timeout_seconds
        with self._lock(deadline):
            pid_file = self._read_pid_file()
            if pid_file is None or not is_postmaster(pid_file, self.data_dir):
                self._refuse_invisible(pid_file)
                return False
            supervisor = find_supervisor(pid_file.pid)
            _signal(pid_file.pid, FAST_SHUTDOWN)
            patience_end = time.monotonic() + min(FAST_SHUTDOWN_SECONDS, timeout_seconds / 2)
            while is_postmaster(pid_file, self.data_dir):
                if time.monotonic() > patience_end:
                    # A backend inside a long computation does not notice a fast shutdown.
                    _signal(pid_file.pid, IMMEDIATE_SHUTDOWN)
                    patience_end = deadline
                if time.monotonic() > deadline:
                    raise EmbeddedServerError(
                        f"The server (process {pid_file.pid}) was asked to stop, but still runs after "
                        f"{timeout_seconds:g} s. Its log is {self.log_file}."
                    )
                time.sleep(POLL_SECONDS)
            self._remove_socket(pid_file)
            if supervisor is not None:
                # The supervisor has the log open, so the folder could be neither removed nor unmounted.
                wait_for_exit(supervisor)
            return True

    def erase_log(self) -> None:
        """Empty the log and remove the older one, in case that a message quotes a value."""
        with explain_os_errors(f"erase the log {self.log_file}"):
            if self.log_file.exists():
                os.truncate(self.log_file, 0)
            self._older_log_file.unlink(missing_ok=True)

    def find_backend(self, pid: int) -> BackendProcess | None:
        """Return the process of a connection. Return None if it has ended or runs in another container."""
        import psutil  # a slow import

        pid_file = self._read_pid_file()
        if pid_file is None or not is_postmaster(pid_file, self.data_dir):
            return None
        try:
            process = psutil.Process(pid)
            # In another container the same pid is another process.
            return BackendProcess(process, self._programs) if process.ppid() == pid_file.pid else None
        except psutil.NoSuchProcess:
            return None

    def status(self) -> ServerStatus:
        """Return the status of the server, without starting or changing anything."""
        pid_file = self._read_pid_file()
        running = pid_file is not None and self._is_running(pid_file)
        address = pid_file.address if pid_file and running else None
        return ServerStatus(
            running=running,
            pid=pid_file.pid if pid_file and running else None,
            data_dir=self.data_dir,
            socket_dir=address.socket_dir if address else None,
            port=address.port if address else None,
            version=self._programs.version,
            log_file=self.log_file,
            size_bytes=_compute_size(self.data_dir),
        )

    @cached_property
    def _programs(self) -> PostgresPrograms:
        return PostgresPrograms(find_bin_folder(), choose_server_account(self._run_as), (self._paths.folder,))

    def _read_pid_file(self) -> PidFile | None:
        with explain_os_errors(f"read the data folder {self.data_dir}"):
            return read_pid_file(self.data_dir)

    def _is_running(self, pid_file: PidFile) -> bool:
        """Return True if a server runs, also one in another container, whose process is not visible here."""
        return is_postmaster(pid_file, self.data_dir) or self._probe_state(pid_file) is not ServerState.ABSENT

    def _probe_state(self, pid_file: PidFile | None) -> ServerState:
        return probe(pid_file.address) if pid_file and pid_file.address else ServerState.ABSENT

    def _find_answering_server(self) -> Address | None:
        pid_file = self._read_pid_file()
        return pid_file.address if pid_file and self._probe_state(pid_file) is ServerState.READY else None

    @contextmanager
    def _lock(self, deadline: float) -> Iterator[None]:
        while True:
            with _try_lock(self._paths.lock_file) as is_locked:
                if is_locked:
                    yield
                    return
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"Another process is starting or stopping the server of {self._paths.home}. Try again."
                )
            time.sleep(POLL_SECONDS)

    def _refuse_invisible(self, pid_file: PidFile | None) -> None:
        if self._probe_state(pid_file) is not ServerState.ABSENT:
            raise EmbeddedServerError(
                f"The server of {self._paths.home} answers, but its process cannot be seen from here: "
                "stop it in the container where it was started."
            )

    def _create_and_start(self) -> Address:
        """Wait for a server that is starting, or else start one. The caller holds the lock."""
        if address := self._wait_for_running_server():
            return address
        if not check_cluster(self._paths, self._programs):
            remove_unfinished(self._paths.folder)
            self._on_progress(f"Creating a new database in {self.data_dir} …")
            create_cluster(self._paths, self._programs)
        return self._start()

    def _wait_for_running_server(self) -> Address | None:
        """Wait until a running server answers, and return its address. Return None if there is none."""
        pid_file = self._read_pid_file()
        if pid_file is None or not self._is_running(pid_file):
            return None
        return self._wait_until_ready(pid_file.pid, lambda _: is_postmaster(pid_file, self.data_dir))

    def _start(self) -> Address:
        socket_dir = self._paths.prepare_socket_dir(self._programs.account)
        self._rotate_log()
        has_crashed = self._read_pid_file() is not None
        self._on_progress(
            "Recovering after a crash …" if has_crashed else f"Starting PostgreSQL {self._programs.version} …"
        )
        deadline = time.monotonic() + MAX_ORPHAN_SECONDS
        while True:
            self._remove_stale_files(socket_dir)
            offset = self.log_file.stat().st_size if self.log_file.exists() else 0
            try:
                pid = self._launch(socket_dir)
            except EmbeddedServerError as error:
                raise self._create_start_error(str(error)) from error
            # A launcher whose parent was killed may have started another server first.
            if address := self._wait_until_ready(pid, is_alive) or self._wait_for_running_server():
                return address
            output = read_log_from(self.log_file, offset)
            if not ORPHANS_MESSAGE.search(output) or time.monotonic() > deadline:
                raise self._create_start_error(extract_error_lines(output) or "it ended without a message")
            time.sleep(POLL_SECONDS * 5)

    def _launch(self, socket_dir: Path) -> int:
        options = SERVER_OPTIONS | {"unix_socket_directories": str(socket_dir)}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        psql = [str(self._programs.bin / "psql"), "-XAtqw", "-U", "rem", "-d", "postgres"]
        return self._programs.serve(
            ["-D", str(self.data_dir), *arguments],
            {
                "log": str(self.log_file),
                "lock": str(self._paths.lock_file),
                "psql": [*psql, "-h", str(socket_dir), "-p", str(PORT)],
                "idle_seconds": self._idle_seconds,
            },
        )

    def _wait_until_ready(self, pid: int, is_running: Callable[[int], bool]) -> Address | None:
        """Wait until the server answers, however long it recovers, and return its address. Return None if it ended."""
        monitor = StartupMonitor(self._on_progress)
        while True:
            is_process_running = is_running(pid)
            pid_file = self._read_pid_file()
            if pid_file and pid_file.pid != pid:
                pid_file = None  # of an earlier server
            # The status in the pid file saves a probe, which would log a refused connection.
            state = PID_FILE_STATES.get(pid_file.status) if is_process_running and pid_file else None
            state = state or self._probe_state(pid_file)
            if state is ServerState.READY and pid_file:
                return pid_file.address
            if state is ServerState.ABSENT and not is_process_running:
                return None
            if monitor.should_interrupt(state, pid_file) and is_process_running:
                _signal(pid, FAST_SHUTDOWN)
            if monitor.silent_seconds > MAX_SILENT_SECONDS:
                raise EmbeddedServerError(
                    f"The server (process {pid}) runs, but has not answered for {MAX_SILENT_SECONDS:g} s. "
                    f"See its log {self.log_file}, then stop it: rem db stop"
                )
            time.sleep(POLL_SECONDS)

    def _remove_stale_files(self, socket_dir: Path) -> None:
        """Remove the pid file and socket of a killed server, if no server runs. The caller holds the lock.

        PostgreSQL refuses to start if their pid belongs to a zombie or another process. It still notices orphans of
        the killed server, because they hold its shared memory.
        """
        pid_file = self._read_pid_file()
        if pid_file and self._is_running(pid_file):
            return
        with explain_os_errors(f"remove the files of a killed server in {self._paths.folder}"):
            (self.data_dir / "postmaster.pid").unlink(missing_ok=True)
            for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
                (socket_dir / name).unlink(missing_ok=True)

    def _remove_socket(self, pid_file: PidFile) -> None:
        """Remove the socket folder if it is a temporary folder."""
        if pid_file.address and pid_file.address.socket_dir != self._paths.socket_dir:
            try:
                pid_file.address.socket_dir.rmdir()
            except OSError:
                return  # not empty, or already removed

    def _rotate_log(self) -> None:
        with explain_os_errors(f"write the log {self.log_file}"):
            if self.log_file.exists() and self.log_file.stat().st_size > MAX_LOG_BYTES:
                self.log_file.replace(self._older_log_file)

    @property
    def _older_log_file(self) -> Path:
        return self.log_file.with_suffix(".log.1")

    def _create_start_error(self, reason: str) -> EmbeddedServerError:
        return EmbeddedServerError(
            f"PostgreSQL could not be started on {self.data_dir}: {reason.rstrip('.')}."
            f"{describe_full_disk(self._paths.folder)} No data was deleted. The log is {self.log_file}."
        )


@contextmanager
def _try_lock(path: Path) -> Iterator[bool]:
    """Lock a file for the block if it is free, and yield True if it is locked now."""
    with explain_os_errors(f"lock {path}"):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        is_locked = _flock(descriptor)
        try:
            yield is_locked
        finally:
            if is_locked:
                # Not left to close(): a forked child of the caller may share the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise EmbeddedServerError(
            f"The server (process {pid}) belongs to another user: stop it as that user or as root."
        ) from error


def _compute_size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{parent}/{name}").st_size
            except FileNotFoundError:
                continue  # a running server creates and removes files
    return total
