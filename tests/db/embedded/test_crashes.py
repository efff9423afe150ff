"""After a crash the server starts again with all committed data."""

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
from tests.db.embedded.processes import find_postmaster, run_sql, start_as_server_user, wait_until


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def server(make_server: MakeServer, old_home: Path, messages: list[str]) -> EmbeddedServer:
    """Return a running server with a stored row."""
    server = make_server(old_home, on_progress=messages.append)
    run_sql(server.ensure_running(), "CREATE TABLE kept AS SELECT 42 AS answer")
    messages.clear()
    return server


def kill(process: psutil.Process) -> None:
    process.kill()
    process.wait()


def assert_data_is_kept(server: EmbeddedServer) -> None:
    assert run_sql(server.ensure_running(), "SELECT answer FROM kept") == "42"


def replace_pid(server: EmbeddedServer, pid: int) -> None:
    """Kill the server, and let its pid file and socket lock name another process."""
    address = server.address()
    assert address is not None
    kill(find_postmaster(server))
    for path in (server.data_dir / "postmaster.pid", address.socket.with_name(".s.PGSQL.5432.lock")):
        path.write_text(re.sub(r"\A\d+", str(pid), path.read_text()))


def test_killed_server_recovers(server: EmbeddedServer, messages: list[str]) -> None:
    kill(find_postmaster(server))
    assert server.status().running is False
    assert_data_is_kept(server)
    assert messages == ["Recovering after a crash …"]


def test_killed_server_that_is_a_zombie_is_replaced(server: EmbeddedServer) -> None:
    process = find_postmaster(server)
    parent = process.parent()
    assert parent is not None
    parent.suspend()
    try:
        wait_until(lambda: parent.status() == psutil.STATUS_STOPPED)
        time.sleep(0.2)  # that was its main thread; another one reaps
        process.kill()
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE)
        assert server.status().running is False
        assert_data_is_kept(server)
    finally:
        parent.resume()
    wait_until(lambda: not process.is_running())
    assert_data_is_kept(server)


def test_pid_of_a_zombie_does_not_block_a_start(server: EmbeddedServer) -> None:
    with start_as_server_user("exit") as zombie:
        wait_until(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_ZOMBIE)
        replace_pid(server, zombie.pid)
        assert_data_is_kept(server)


def test_pid_of_another_process_does_not_block_a_start(server: EmbeddedServer) -> None:
    with start_as_server_user("exec sleep 60") as other:
        replace_pid(server, other.pid)
        assert server.status().running is False
        assert server.stop() is False
        assert_data_is_kept(server)
        assert other.poll() is None
        other.kill()


def test_pid_of_another_server_does_not_block_a_start(
    server: EmbeddedServer, make_server: MakeServer, folder: Path
) -> None:
    other = make_server(folder / "other")
    other.ensure_running()
    pid = find_postmaster(other).pid
    replace_pid(server, pid)
    assert server.stop() is False
    assert_data_is_kept(server)
    assert find_postmaster(other).pid == pid


@pytest.mark.parametrize("text", ["", "garbage\n", "999999\n", "-5\n", "0\n"])
def test_broken_pid_file_does_not_block_a_start(server: EmbeddedServer, text: str) -> None:
    server.stop()
    (server.data_dir / "postmaster.pid").write_text(text)
    assert_data_is_kept(server)


def test_start_waits_for_orphans_that_hold_shared_memory(server: EmbeddedServer) -> None:
    process = find_postmaster(server)
    orphan = next(child for child in process.children() if "checkpointer" in " ".join(child.cmdline()))
    orphan.suspend()
    kill(process)
    timer = threading.Timer(1.5, orphan.resume)
    timer.start()
    began = time.monotonic()
    assert_data_is_kept(server)
    timer.join()
    assert time.monotonic() - began > 1.4
    assert "pre-existing shared memory block" in server.log_file.read_text()


def test_server_continues_after_its_supervisor_was_killed(server: EmbeddedServer) -> None:
    process = find_postmaster(server)
    parent = process.parent()
    assert parent is not None
    kill(parent)
    assert_data_is_kept(server)
    assert find_postmaster(server).pid == process.pid
    assert server.stop() is True
    assert_data_is_kept(server)


async def test_start_waits_for_a_server_that_is_shutting_down(server: EmbeddedServer, messages: list[str]) -> None:
    process = find_postmaster(server)
    client = await asyncpg.connect(server.ensure_running().dsn())
    process.terminate()  # a smart shutdown lets this client stay
    wait_until(lambda: "stopping" in (server.data_dir / "postmaster.pid").read_text())
    answers: list[str] = []
    waiter = threading.Thread(target=lambda: answers.append(run_sql(server.ensure_running(), "TABLE kept")))
    waiter.start()
    waiter.join(0.5)
    assert answers == []
    assert await client.fetchval("TABLE kept") == 42
    await client.close()
    waiter.join()
    assert answers == ["42"]
    assert messages == ["Starting PostgreSQL 18.6 …"]


async def test_client_cannot_delay_a_stopping_server_forever(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rem.db.embedded.probe.MAX_STOPPING_SECONDS", 0.5)
    process = find_postmaster(server)
    client = await asyncpg.connect(server.ensure_running().dsn())
    process.terminate()
    wait_until(lambda: "stopping" in (server.data_dir / "postmaster.pid").read_text())
    assert_data_is_kept(server)
    assert not process.is_running()
    client.terminate()


def test_start_waits_for_recovery_after_a_crashed_backend(server: EmbeddedServer) -> None:
    process = find_postmaster(server)
    writer = next(child for child in process.children() if "background writer" in " ".join(child.cmdline()))
    writer.kill()
    wait_until(lambda: "terminating any other active" in server.log_file.read_text())
    assert_data_is_kept(server)
    assert find_postmaster(server).pid == process.pid


def test_removed_socket_is_created_again(server: EmbeddedServer) -> None:
    address = server.ensure_running()
    address.socket.unlink()
    assert_data_is_kept(server)


def test_home_may_be_renamed_while_its_server_runs(server: EmbeddedServer, make_server: MakeServer, home: Path) -> None:
    process = find_postmaster(server)
    moved = make_server(home.rename(home.with_name("moved")))
    assert_data_is_kept(moved)
    assert not process.is_running()


def test_silent_server_is_reported(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rem.db.embedded.server.MAX_SILENT_SECONDS", 1.0)
    process = find_postmaster(server)
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Exception, match=rf"process {process.pid}\) runs, but has not answered"):
            server.ensure_running()
    finally:
        process.send_signal(signal.SIGCONT)
    assert_data_is_kept(server)
