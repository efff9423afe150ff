"""The supervisor of `rem serve` and `rem worker`, with a small program as its children."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.rem_command import REPOSITORY

PROGRAM = Path(__file__).with_name("supervised_program.py")
SUPERVISOR = REPOSITORY / "src" / "rem" / "cli" / "supervisor.py"
LIMITS = {"freeze_seconds": 2.0, "kill_seconds": 2.0, "retry_seconds": 0.1}
PATIENCE_SECONDS = 60.0
JUMPING_CLOCK = """
import runpy, sys, time
real, hours = time.time, iter(range(10**9))
time.time = lambda: real() + 3600 * (next(hours) % 3 - 1)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Supervised:
    """A supervisor and its children."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def start(self, **options: object) -> None:
        command = [sys.executable, "-P", str(PROGRAM), str(self.folder)]
        self.process = subprocess.Popen([*command, json.dumps(LIMITS | options)], stderr=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def started(self) -> list[int]:
        """The process ids of all children that were started so far."""
        file = self.folder / "started"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def ask(self) -> int:
        """Return the process id of the child that answers."""
        port = int((self.folder / "port").read_text())
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
            return int(connection.recv(100))

    def freeze(self, pid: int, number: signal.Signals) -> None:
        """Send a signal, and wait until the child answers no more."""
        os.kill(pid, number)
        if number == signal.SIGUSR1:
            wait_for((self.folder / f"frozen-{pid}").exists)
        else:
            wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)

    def wait_until_ready(self) -> int:
        wait_for((self.folder / "port").exists)
        return self.ask()

    def end(self) -> tuple[int, str]:
        """Wait for the end, and return the exit code and the log."""
        assert self.process is not None
        _, log = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, log


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    supervised = Supervised(tmp_path)
    yield supervised
    if supervised.process is not None:
        supervised.process.kill()
        supervised.process.communicate()
    for pid in supervised.started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGUSR1])
def test_frozen_child_is_replaced(supervised: Supervised, number: signal.Signals) -> None:
    supervised.start()
    first = supervised.wait_until_ready()
    supervised.freeze(first, number)
    # The connection waits in the socket, which stays open.
    second = supervised.ask()
    assert second != first
    assert not psutil.pid_exists(first)
    os.kill(supervised.pid, signal.SIGTERM)
    assert supervised.end()[0] == 3
    assert supervised.started == [first, second]


def test_busy_clock_ends_nothing_and_a_freeze_is_still_noticed(supervised: Supervised) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    (supervised.folder / "port").write_text(str(listening.getsockname()[1]))
    options = {
        **LIMITS,
        "command": [sys.executable, "-P", str(PROGRAM), str(supervised.folder)],
        "sockets": [listening.fileno()],
    }
    with listening:
        supervised.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import sys; sys.argv = {[str(SUPERVISOR), json.dumps(options)]!r}\n{JUMPING_CLOCK}",
            ],
            pass_fds=[listening.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
    first = supervised.wait_until_ready()
    time.sleep(3 * LIMITS["freeze_seconds"])
    assert supervised.ask() == first
    supervised.freeze(first, signal.SIGSTOP)
    assert supervised.ask() != first


def test_suspended_processes_go_on(supervised: Supervised) -> None:
    supervised.start()
    first = supervised.wait_until_ready()
    for _ in range(2):
        for pid in (supervised.pid, first):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * LIMITS["freeze_seconds"])
        for pid in (supervised.pid, first):
            os.kill(pid, signal.SIGCONT)
        assert supervised.ask() == first
    time.sleep(2 * LIMITS["freeze_seconds"])
    assert supervised.ask() == first
    assert supervised.started == [first]


def test_killed_child_is_replaced(supervised: Supervised) -> None:
    supervised.start(processes=2)
    first = supervised.wait_until_ready()
    wait_for(lambda: len(supervised.started) == 2)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(supervised.started) == 3)
    assert supervised.ask() in supervised.started[1:]


def test_no_child_outlives_a_killed_supervisor(supervised: Supervised) -> None:
    supervised.start()
    first = supervised.wait_until_ready()
    os.kill(supervised.pid, signal.SIGKILL)
    supervised.end()
    wait_for(lambda: not psutil.pid_exists(first))
    with pytest.raises(ConnectionRefusedError):
        supervised.ask()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_reaches_each_child_once_and_its_exit_code_is_returned(
    supervised: Supervised, number: signal.Signals
) -> None:
    folder = supervised.folder / "counters"
    folder.mkdir()
    supervised.start(processes=2, folder=str(folder), announcement="It listens.")
    supervised.wait_until_ready()
    wait_for(lambda: len(supervised.started) == 2)
    time.sleep(0.5)
    os.kill(supervised.pid, number)
    code, log = supervised.end()
    assert (code, log) == (3, "It listens.\n")
    assert (supervised.folder / "signals").read_text().split() == [str(int(number))] * 2
    assert not folder.exists()


def test_stop_during_a_freeze_kills_the_child(supervised: Supervised) -> None:
    supervised.start(freeze_seconds=600.0)
    first = supervised.wait_until_ready()
    supervised.freeze(first, signal.SIGUSR1)
    os.kill(supervised.pid, signal.SIGTERM)
    assert supervised.end()[0] == 128 + signal.SIGKILL
    assert not psutil.pid_exists(first)


def test_failed_start_ends_the_supervisor_at_once(supervised: Supervised) -> None:
    (supervised.folder / "broken").touch()
    supervised.start(processes=3)
    # The child itself has said why.
    assert supervised.end() == (7, "")
    assert len(supervised.started) == 1


def test_restart_that_fails_is_tried_again_and_then_given_up(supervised: Supervised) -> None:
    supervised.start(logs_json=True)
    first = supervised.wait_until_ready()
    (supervised.folder / "broken").touch()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(supervised.started) == 3)
    (supervised.folder / "broken").unlink()
    second = supervised.ask()
    (supervised.folder / "broken").touch()
    os.kill(second, signal.SIGKILL)
    code, log = supervised.end()
    assert code == 7
    levels = [json.loads(line)["level"] for line in log.splitlines()]
    assert levels[-6:] == ["WARNING", *["ERROR"] * 5]
    assert supervised.started[-5:] == supervised.started[supervised.started.index(second) + 1 :]
