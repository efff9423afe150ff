"""`rem serve`: a real server process, asked by a real client."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import psutil
import pytest

from rem.db.embedded.server import EmbeddedServer
from tests.commands import REM, environment, output, rem


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(*arguments: str, settings: Mapping[str, str]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A running `rem serve` and its address; it is stopped as a user would, with Ctrl-C."""
    port = free_port()
    process = subprocess.Popen(
        [str(REM), "serve", "--port", str(port), *arguments],
        env=environment(settings),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(address, process)
        yield address, process
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) in (0, 130)


def _wait_until_ready(address: str, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "rem serve ended"
        try:
            if httpx.get(f"{address}/health/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    pytest.fail("rem serve did not become ready")


def test_four_workers_and_a_command_share_one_embedded_server(home: Path) -> None:
    with serving("--workers", "4", settings={"REM_HOME": str(home)}) as (address, process):
        assert httpx.get(f"{address}/health/live").json() == {"status": "ok", "detail": None}
        assert "users" in output("demo", settings={"REM_HOME": str(home)})
        assert output("lookup", "sarah-chen", settings={"REM_HOME": str(home)}).startswith("users/sarah-chen")
        workers = [child for child in psutil.Process(process.pid).children() if child.is_running()]
        assert len(workers) >= 4
        assert EmbeddedServer(home).status().running


def test_readiness_follows_the_database_and_liveness_does_not(home: Path) -> None:
    with serving(settings={"REM_HOME": str(home)}) as (address, _process):
        postmaster = EmbeddedServer(home).status().pid
        assert postmaster is not None
        psutil.Process(postmaster).kill()
        assert httpx.get(f"{address}/health/live").status_code == 200
        # The embedded server is started again by whoever needs it next.
        deadline = time.monotonic() + 60
        while httpx.get(f"{address}/health", timeout=60).status_code != 200:
            assert time.monotonic() < deadline
        assert EmbeddedServer(home).status().pid != postmaster


def test_an_unreachable_database_is_reported_as_not_ready(dsn: str, sql: object) -> None:
    with serving(settings={"POSTGRES__CONNECTION_STRING": dsn}) as (address, _process):
        assert httpx.get(f"{address}/health/ready").json()["status"] == "ok"
        documents = httpx.get(f"{address}/openapi.json").json()
        assert set(documents["paths"]) == {"/health", "/health/live", "/health/ready"}


def test_a_port_in_use_is_told_before_anything_is_started(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = rem("serve", "--port", str(port), settings={"REM_HOME": str(home)})
    assert refused.returncode == 2
    assert refused.stderr == (
        f"Error: REM cannot listen on port {port} of 127.0.0.1 (Address already in use): choose another with --port.\n"
    )
    assert not home.exists()


def test_an_address_of_another_machine_is_refused(home: Path) -> None:
    for host in ("no.such.host.invalid", "192.0.2.1", "."):
        refused = rem("serve", "--host", host, "--allow-unauthenticated", settings={"REM_HOME": str(home)})
        assert refused.returncode == 2
        assert "choose another with --host" in refused.stderr
    assert not home.exists()


def test_port_zero_is_any_port_and_the_address_says_which(dsn: str) -> None:
    process = subprocess.Popen(
        [str(REM), "serve", "--port", "0"],
        env=environment({"POSTGRES__CONNECTION_STRING": dsn}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        address = process.stderr.readline().split()[3]
        _wait_until_ready(address, process)
    finally:
        process.send_signal(signal.SIGINT)
        process.stderr.close()
        process.wait(timeout=30)


def test_serving_beyond_this_machine_needs_a_word(home: Path) -> None:
    refused = rem("serve", "--host", "0.0.0.0", settings={"REM_HOME": str(home)})
    assert refused.returncode == 2
    assert "--allow-unauthenticated" in refused.stderr
    assert not home.exists()
