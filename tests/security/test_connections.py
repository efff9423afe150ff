"""Attacks below HTTP, on `rem serve` with two processes: held connections, WebSockets, decisions at once."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import httpx2 as httpx
import psutil
import pytest
from bench.attack_list import bystander, prepare_bystander

from rem.db.embedded.server import EmbeddedServer
from tests.cli.test_serve import serving
from tests.forked_process import ForkedProcess
from tests.security.test_denial_of_service import MAX_LIVE_SECONDS, MAX_LOOKUP_SECONDS, measure_load

SETTINGS = {
    "API__HEADER_SECONDS": "3",
    "API__MAX_CONNECTIONS_PER_ADDRESS": "100",
    # Twenty decisions at once are refused because one of them counts, and not because they are many.
    "API__MAX_CHATS_PER_CALLER": "20",
}
ATTACKER = ("127.0.0.2", 0)
"""Another address of this machine than the one that the bystander has."""
OWNER = {"X-User-Id": "owner@example.com"}
MAX_GROWTH_BYTES = 200_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ForkedProcess]]:
    home = tmp_path_factory.mktemp("home")
    with serving("--workers", "2", settings={"REM_HOME": str(home), **SETTINGS}) as (address, process):
        prepare_bystander(address)
        yield address, process
    EmbeddedServer(home).stop()


def connect(address: str) -> socket.socket:
    """Connect as the attacker."""
    url = urlsplit(address)
    return socket.create_connection((str(url.hostname), url.port or 0), timeout=30, source_address=ATTACKER)


@contextmanager
def held(address: str, start: bytes, number: int) -> Iterator[list[socket.socket]]:
    """Open connections, send the same beginning on each, and hold them."""
    connections = []
    try:
        for _ in range(number):
            connection = connect(address)
            connections.append(connection)
            connection.sendall(start)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def read_all(connection: socket.socket) -> bytes:
    """Return what arrives until the server closes the connection."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received


@pytest.mark.parametrize(
    "start",
    [b"", b"GET / HTTP/1.1\r\nHost: rem\r\nX", b"GET /health/live HTTP/1.1\r\nHost: rem\r\n\r\n"],
    ids=["idle", "slow headers", "kept alive"],
)
def test_others_are_served_while_connections_are_held(server: tuple[str, ForkedProcess], start: bytes) -> None:
    address, _ = server
    load = measure_load()
    with bystander(address) as latencies, held(address, start, 400) as connections:
        answers = [read_all(connection) for connection in connections]
    # Two processes with at most 100 each: the other ones were refused at once.
    assert sum(answer.startswith(b"HTTP/1.1 503") for answer in answers) >= 100
    assert latencies.live < MAX_LIVE_SECONDS * load
    assert latencies.lookup < MAX_LOOKUP_SECONDS * load


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nHost: rem\r\n"], ids=["first line", "headers"])
def test_headers_without_end_take_no_memory(server: tuple[str, ForkedProcess], start: bytes) -> None:
    address, process = server
    before = measure_memory(process)
    part = (b"a" if start == b"GET /" else b"a:\r\n") * 10_000
    with held(address, start, 10) as connections:
        for connection in connections:
            try:
                for _ in range(1000):
                    connection.sendall(part)
            except OSError:
                continue
            pytest.fail("the server read all of it")
        assert measure_memory(process) - before < MAX_GROWTH_BYTES


def test_websocket_is_answered_like_any_request(
    server: tuple[str, ForkedProcess], capfd: pytest.CaptureFixture[str]
) -> None:
    address, _ = server
    url = urlsplit(address)
    offer = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    for path in ("/api/v1/mcp", "/api/v1/sessions/secret-name?token=secret", "/nothing"):
        with closing(http.client.HTTPConnection(str(url.hostname), url.port, timeout=30)) as connection:
            connection.request("GET", path, headers=offer)
            answer = connection.getresponse()
            assert answer.status in (400, 404, 405, 406)
            assert answer.headers["X-Request-Id"]
    assert "secret" not in capfd.readouterr().err


def test_approval_that_two_processes_decide_at_once_is_decided_once(server: tuple[str, ForkedProcess]) -> None:
    address, _ = server
    with httpx.Client(base_url=address, headers=OWNER, timeout=60) as owner:
        row = {"name": "Secret plan", "content": "The secret plan is blue."}
        assert owner.post("/api/v1/entities/resources", json=row).status_code == 201
        question = {"model": "rem:local", "messages": [{"role": "user", "content": "Forget the secret plan"}]}
        assert "Answer `yes`" in owner.post("/api/v1/chat/completions", json=question).text
        (request,) = owner.get("/api/v1/approvals", params={"status": "pending"}).json()["data"]

        def decide(number: int) -> int:
            decision = {"decision": "approve" if number % 2 else "reject"}
            # Each on a connection of its own, so that both processes take some.
            path = f"{address}/api/v1/approvals/{request['id']}/decision"
            return httpx.post(path, json=decision, headers=OWNER, timeout=60).status_code

        with ThreadPoolExecutor(20) as pool:
            assert sorted(pool.map(decide, range(20))) == [200] + [409] * 19
        decided = owner.get(f"/api/v1/approvals/{request['id']}").json()
        found = owner.post("/api/v1/query", json={"query": "LOOKUP secret-plan"}).json()["count"]
    assert (decided["status"], found) in (("approved", 0), ("rejected", 1))


def measure_memory(process: ForkedProcess) -> int:
    """Return the memory of all processes of a server."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    return sum(member.memory_info().rss for member in family if "postgres" not in member.name())
