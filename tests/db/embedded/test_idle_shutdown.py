"""An idle server stops; a used server does not."""

from __future__ import annotations

import asyncio
import time

import asyncpg
import pytest

from rem.db.embedded import EmbeddedServer
from tests.db.embedded.conftest import MakeServer
from tests.db.embedded.processes import find_postmaster, run_sql, wait_until

pytestmark = pytest.mark.usefixtures("old_home")


def is_down(server: EmbeddedServer) -> bool:
    return not server.status().running


async def test_server_stops_after_the_idle_time_but_not_while_a_client_is_connected(
    make_server: MakeServer,
) -> None:
    server = make_server(idle_timeout_seconds=1.0)
    process = postmaster_after_start(server)
    client = await asyncpg.connect(server.ensure_running().dsn())
    await asyncio.sleep(2.5)
    assert await client.fetchval("SELECT 1") == 1
    await client.close()
    wait_until(lambda: is_down(server), 10)
    assert "received smart shutdown request" in server.log_file.read_text()
    assert not (server.data_dir / "postmaster.pid").exists()
    assert postmaster_after_start(server) != process
    assert "not properly shut down" not in server.log_file.read_text()


def postmaster_after_start(server: EmbeddedServer) -> int:
    server.ensure_running()
    return find_postmaster(server).pid


def test_short_clients_between_two_checks_keep_the_server_running(make_server: MakeServer) -> None:
    server = make_server(idle_timeout_seconds=1.2)
    process = postmaster_after_start(server)
    ends = time.monotonic() + 3
    while time.monotonic() < ends:
        run_sql(server.ensure_running(), "SELECT 1")
        time.sleep(0.5)
    assert find_postmaster(server).pid == process
    wait_until(lambda: is_down(server), 10)


def test_idle_time_zero_means_never(make_server: MakeServer) -> None:
    server = make_server(idle_timeout_seconds=0)
    process = postmaster_after_start(server)
    time.sleep(1)
    assert find_postmaster(server).pid == process


def test_server_never_stops_right_after_ensure_running(make_server: MakeServer) -> None:
    server = make_server(idle_timeout_seconds=0.3)
    ends = time.monotonic() + 3
    rounds = 0
    while time.monotonic() < ends:
        server.ensure_running()
        time.sleep(0.35 + (rounds % 7) * 0.05)
        rounds += 1
    assert server.ensure_running()
    assert "not properly shut down" not in server.log_file.read_text()
