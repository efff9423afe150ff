"""After any crash the server is found, or started, with everything that was committed."""

from __future__ import annotations

import re
import signal
import threading
import time
from pathlib import Path

import asyncpg
import psutil
import pytest

from rem.db.embedded import EmbeddedServer
from tests.db.embedded.conftest import MakeServer
from tests.db.embedded.processes import eventually, postmaster, query, start_as_server_user


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def server(make_server: MakeServer, old_home: Path, told: list[str]) -> EmbeddedServer:
    """A running server with something in it."""
    server = make_server(old_home, on_progress=told.append)
    query(server.ensure_running(), "CREATE TABLE kept AS SELECT 42 AS answer")
    told.clear()
    return server


def kill(process: psutil.Process) -> None:
    process.kill()
    process.wait()


def assert_kept(server: EmbeddedServer) -> None:
    assert query(server.ensure_running(), "SELECT answer FROM kept") == "42"


def claim(server: EmbeddedServer, pid: int) -> None:
    """Kill the server, and let its pid file and socket lock name another process."""
    address = server.address()
    assert address is not None
    kill(postmaster(server))
    for path in (server.data_dir / "postmaster.pid", address.socket.with_name(".s.PGSQL.5432.lock")):
        path.write_text(re.sub(r"\A\d+", str(pid), path.read_text()))


def test_a_killed_server_recovers(server: EmbeddedServer, told: list[str]) -> None:
    kill(postmaster(server))
    assert server.status().running is False
    assert_kept(server)
    assert told == ["Recovering after a crash …"]


def test_a_killed_server_that_stays_a_zombie(server: EmbeddedServer) -> None:
    process = postmaster(server)
    parent = process.parent()
    assert parent is not None
    parent.suspend()
    try:
        eventually(lambda: parent.status() == psutil.STATUS_STOPPED)
        time.sleep(0.2)  # that was its main thread; another one reaps
        process.kill()
        eventually(lambda: process.status() == psutil.STATUS_ZOMBIE)
        assert server.status().running is False
        assert_kept(server)
    finally:
        parent.resume()
    eventually(lambda: not process.is_running())
    assert_kept(server)


def test_a_pid_that_is_now_a_zombie(server: EmbeddedServer) -> None:
    with start_as_server_user("exit") as zombie:
        eventually(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_ZOMBIE)
        claim(server, zombie.pid)
        assert_kept(server)


def test_a_pid_that_is_now_another_process(server: EmbeddedServer) -> None:
    with start_as_server_user("exec sleep 60") as other:
        claim(server, other.pid)
        assert server.status().running is False
        assert server.stop() is False
        assert_kept(server)
        assert other.poll() is None
        other.kill()


def test_a_pid_that_is_now_another_server(server: EmbeddedServer, make_server: MakeServer, folder: Path) -> None:
    other = make_server(folder / "other")
    other.ensure_running()
    pid = postmaster(other).pid
    claim(server, pid)
    assert server.stop() is False
    assert_kept(server)
    assert postmaster(other).pid == pid


@pytest.mark.parametrize("text", ["", "garbage\n", "999999\n", "-5\n", "0\n"])
def test_a_broken_pid_file(server: EmbeddedServer, text: str) -> None:
    server.stop()
    (server.data_dir / "postmaster.pid").write_text(text)
    assert_kept(server)


def test_orphans_that_hold_the_shared_memory_are_waited_for(server: EmbeddedServer) -> None:
    process = postmaster(server)
    orphan = next(child for child in process.children() if "checkpointer" in " ".join(child.cmdline()))
    orphan.suspend()
    kill(process)
    timer = threading.Timer(1.5, orphan.resume)
    timer.start()
    began = time.monotonic()
    assert_kept(server)
    timer.join()
    assert time.monotonic() - began > 1.4
    assert "pre-existing shared memory block" in server.log_file.read_text()


def test_a_server_whose_supervisor_was_killed_goes_on(server: EmbeddedServer) -> None:
    process = postmaster(server)
    parent = process.parent()
    assert parent is not None
    kill(parent)
    assert_kept(server)
    assert postmaster(server).pid == process.pid
    assert server.stop() is True
    assert_kept(server)


async def test_a_server_that_is_shutting_down_is_waited_for(server: EmbeddedServer, told: list[str]) -> None:
    process = postmaster(server)
    client = await asyncpg.connect(server.ensure_running().dsn())
    process.terminate()  # a smart shutdown lets this client stay
    eventually(lambda: "stopping" in (server.data_dir / "postmaster.pid").read_text())
    answers: list[str] = []
    waiter = threading.Thread(target=lambda: answers.append(query(server.ensure_running(), "TABLE kept")))
    waiter.start()
    waiter.join(0.5)
    assert answers == []
    assert await client.fetchval("TABLE kept") == 42
    await client.close()
    waiter.join()
    assert answers == ["42"]
    assert told == ["Starting PostgreSQL 18.6 …"]


async def test_a_client_cannot_keep_a_stopping_server_for_ever(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rem.db.embedded.probe.MAX_STOPPING_SECONDS", 0.5)
    process = postmaster(server)
    client = await asyncpg.connect(server.ensure_running().dsn())
    process.terminate()
    eventually(lambda: "stopping" in (server.data_dir / "postmaster.pid").read_text())
    assert_kept(server)
    assert not process.is_running()
    client.terminate()


def test_a_crashed_backend_is_waited_for(server: EmbeddedServer) -> None:
    process = postmaster(server)
    writer = next(child for child in process.children() if "background writer" in " ".join(child.cmdline()))
    writer.kill()
    eventually(lambda: "terminating any other active" in server.log_file.read_text())
    assert_kept(server)
    assert postmaster(server).pid == process.pid


def test_a_socket_that_was_removed(server: EmbeddedServer) -> None:
    address = server.ensure_running()
    address.socket.unlink()
    assert_kept(server)


def test_a_home_that_was_renamed_under_its_server(server: EmbeddedServer, make_server: MakeServer, home: Path) -> None:
    process = postmaster(server)
    moved = make_server(home.rename(home.with_name("moved")))
    assert_kept(moved)
    assert not process.is_running()


def test_a_silent_server_is_reported(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rem.db.embedded.server.MAX_SILENT_SECONDS", 1.0)
    process = postmaster(server)
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Exception, match=rf"process {process.pid}\) runs, but has not answered"):
            server.ensure_running()
    finally:
        process.send_signal(signal.SIGCONT)
    assert_kept(server)
