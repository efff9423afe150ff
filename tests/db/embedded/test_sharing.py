"""Any number of processes share one server, which outlives them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from rem.db.embedded import Address, EmbeddedServer
from tests.db.embedded.conftest import MakeServer
from tests.db.embedded.processes import ENSURE_RUNNING, find_postmaster, python, run_shell, run_sql


def servers_of(data_dir: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] and process.info["cmdline"][1:3] == ["-D", str(data_dir)]
    ]


def test_eight_processes_share_one_server(server: EmbeddedServer, home: Path) -> None:
    starters = [
        subprocess.Popen(python(ENSURE_RUNNING, home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    answers = [starter.communicate() for starter in starters]
    pids = {out.strip() for out, _ in answers}
    assert [error for _, error in answers if error] == []
    assert [str(pid) for pid in servers_of(server.data_dir)] == list(pids)
    assert server.log_file.read_text().count("ready to accept connections") == 1


def test_threads_of_one_process_share_one_server(server: EmbeddedServer, make_server: MakeServer) -> None:
    addresses: list[Address] = []
    threads = [threading.Thread(target=lambda: addresses.append(make_server().ensure_running())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert addresses == [server.address()] * 4
    assert len(servers_of(server.data_dir)) == 1


@pytest.mark.usefixtures("old_home")
def test_server_outlives_the_process_that_started_it(server: EmbeddedServer, home: Path) -> None:
    command = python(ENSURE_RUNNING + "import signal; signal.pause()", home)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline() or starter.stdout.readline())
        assert psutil.Process(starter.pid).children() == []
        os.killpg(starter.pid, signal.SIGKILL)
    assert find_postmaster(server).pid == pid
    assert run_sql(server.ensure_running(), "SELECT 1") == "1"
    process = psutil.Process(pid)
    assert os.getsid(pid) not in {os.getsid(0), starter.pid}
    assert process.terminal() is None


@pytest.mark.usefixtures("old_home")
def test_server_has_no_open_file_of_its_starter(server: EmbeddedServer, folder: Path) -> None:
    with (folder / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        address = server.ensure_running()
    process = find_postmaster(server)
    listing = f"lsof -p {process.pid}" if sys.platform == "darwin" else f"ls -l /proc/{process.pid}/fd"
    open_files = run_shell(address, listing)
    assert "server.log" in open_files
    assert not re.search(r"/(secret|lock)\b", open_files)


@pytest.mark.usefixtures("old_home")
def test_environment_of_the_server_has_no_secrets(server: EmbeddedServer) -> None:
    os.environ["OPENAI_API_KEY"] = "secret"
    try:
        address = server.ensure_running()
    finally:
        del os.environ["OPENAI_API_KEY"]
    process = find_postmaster(server)
    environment = run_shell(address, f"ps eww -o command= -p {process.pid}")
    assert " LC_ALL=C" in environment
    assert "OPENAI_API_KEY" not in environment


@pytest.mark.usefixtures("old_home")
def test_suspended_process_with_the_lock_blocks_nobody(server: EmbeddedServer, home: Path) -> None:
    address = server.ensure_running()
    hold = "import fcntl, signal, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX)"
    command = python(f"{hold}; print(flush=True); signal.pause()", home / "postgres/lock")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert server.ensure_running() == address
        holder.kill()
