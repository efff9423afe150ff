"""`rem serve`: a real server process and a real client."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

import httpx2 as httpx
import psutil
import pytest

from rem.db.embedded.server import EmbeddedServer
from tests.forked_process import ForkedProcess, Stream
from tests.rem_command import REM, environment, output, rem, start_rem
from tests.scripted_model import Pause, scripted_model


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(
    *arguments: str, settings: Mapping[str, str], stderr: Stream = subprocess.DEVNULL
) -> Iterator[tuple[str, ForkedProcess]]:
    """Run `rem serve` and yield its address and process. Stop it with Ctrl-C."""
    port = free_port()
    process = start_rem("serve", "--port", str(port), *arguments, settings=settings, stderr=stderr)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(address, process)
        yield address, process
    finally:
        process.send_signal(signal.SIGINT)
        # A test may have killed it.
        assert process.wait(timeout=30) in (0, 130, -signal.SIGKILL)


def _wait_until_ready(address: str, process: ForkedProcess) -> None:
    deadline = time.monotonic() + 180
    with httpx.Client(base_url=address, timeout=5) as client:
        while time.monotonic() < deadline:
            assert process.poll() is None, "rem serve ended"
            with suppress(httpx.TransportError):
                if client.get("/health/ready").status_code == 200:
                    return
            time.sleep(0.05)
    pytest.fail("rem serve did not become ready")


def test_workers_and_a_command_share_one_embedded_server(home: Path) -> None:
    with serving("--workers", "2", settings={"REM_HOME": str(home)}) as (address, process):
        assert httpx.get(f"{address}/health/live").json() == {"status": "ok", "detail": None}
        assert "users" in output("demo", settings={"REM_HOME": str(home)})
        found = output("lookup", "sarah-chen", "--tenant", "demo", settings={"REM_HOME": str(home)})
        assert found.startswith("users/sarah-chen")
        children = psutil.Process(process.pid).children()
        assert len([child for child in children if "serve" in child.cmdline()]) == 2
        assert EmbeddedServer(home).status().running


def test_readiness_needs_the_database_and_liveness_does_not(home: Path) -> None:
    with serving(settings={"REM_HOME": str(home)}) as (address, _process):
        postmaster = EmbeddedServer(home).status().pid
        assert postmaster is not None
        psutil.Process(postmaster).kill()
        assert httpx.get(f"{address}/health/live").status_code == 200
        # The next request starts the embedded server again.
        deadline = time.monotonic() + 60
        while httpx.get(f"{address}/health", timeout=60).status_code != 200:
            assert time.monotonic() < deadline
        assert EmbeddedServer(home).status().pid != postmaster


def test_server_with_a_database_is_ready(dsn: str, sql: object) -> None:
    with serving(settings={"POSTGRES__CONNECTION_STRING": dsn}) as (address, _process):
        assert httpx.get(f"{address}/health/ready").json()["status"] == "ok"


def test_server_is_not_ready_on_an_older_schema(dsn: str, sql: object) -> None:
    assert sql is not None
    with serving(settings={"POSTGRES__CONNECTION_STRING": dsn}) as (address, _process):
        output("db", "rollback", "--yes", settings={"POSTGRES__CONNECTION_STRING": dsn})
        answer = httpx.get(f"{address}/health/ready")
        assert (answer.status_code, "rem db migrate" in answer.json()["detail"]) == (503, True)
        output("db", "migrate", settings={"POSTGRES__CONNECTION_STRING": dsn})
        assert httpx.get(f"{address}/health/ready").status_code == 200


@pytest.mark.parametrize("in_process", ["true", "false"])
def test_server_indexes_only_if_it_processes_jobs(dsn: str, sql: object, in_process: str) -> None:
    assert sql is not None
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none", "WORKER__IN_PROCESS": in_process}
    output("remember", "The boat is in Kiel.", "--user", "alice@example.com", settings=settings)
    with serving(settings=settings):
        # The background indexer starts at once, and looks every second.
        deadline = time.monotonic() + (30 if in_process == "true" else 3)
        while (waiting := "1 row waiting" in output("doctor", settings=settings)) and time.monotonic() < deadline:
            time.sleep(0.2)
    assert waiting is (in_process == "false")


def test_port_in_use_fails_before_starting_a_server(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = rem("serve", "--port", str(port), settings={"REM_HOME": str(home)})
    assert refused.returncode == 2
    assert refused.stderr == (
        f"Error: REM cannot listen on port {port} of 127.0.0.1 (Address already in use): choose another with --port.\n"
    )
    assert not home.exists()


def test_address_of_another_machine_is_refused(home: Path) -> None:
    for host in ("no.such.host.invalid", "192.0.2.1", "."):
        refused = rem("serve", "--host", host, "--allow-unauthenticated", settings={"REM_HOME": str(home)})
        assert refused.returncode == 2
        assert "choose another with --host" in refused.stderr
    assert not home.exists()


def test_port_zero_picks_a_free_port_and_prints_it(dsn: str) -> None:
    process = subprocess.Popen(
        [str(REM), "serve", "--port", "0"],
        env=environment({"POSTGRES__CONNECTION_STRING": dsn}),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if line.startswith("REM listens on "))
        # It says so only when it does.
        assert httpx.get(f"{line.split()[3]}/health/live").status_code == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.stderr.close()
        process.wait(timeout=30)


def test_public_address_needs_authentication_or_a_setting(home: Path) -> None:
    for settings, reason in (
        ({}, "it has no authentication"),
        ({"AUTH__ENABLED": "true"}, "everyone gets an administrator's token"),
    ):
        refused = rem("serve", "--host", "0.0.0.0", settings={"REM_HOME": str(home), **settings})
        assert refused.returncode == 2
        assert reason in refused.stderr
        assert "API__ALLOW_UNAUTHENTICATED=true (--allow-unauthenticated)" in refused.stderr
    assert not home.exists()


def test_setting_allows_a_public_address(dsn: str) -> None:
    settings = {"API__HOST": "0.0.0.0", "API__ALLOW_UNAUTHENTICATED": "true", "POSTGRES__CONNECTION_STRING": dsn}
    with serving(settings=settings) as (address, _process):
        assert httpx.get(f"{address}/health/live").status_code == 200


def test_production_without_secrets_does_not_start(home: Path) -> None:
    refused = rem("serve", settings={"REM_HOME": str(home), "ENVIRONMENT": "production"})
    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: REM does not start in production:\n- AUTH__SESSION_SECRET is missing")
    assert "\n- AUTH__ENABLED is missing" in refused.stderr
    settings = {"REM_HOME": str(home), "ENVIRONMENT": "production", "AUTH__ENABLED": "true"}
    refused = rem("serve", settings={**settings, "AUTH__OIDC__CLIENT_ID": "x"})
    for name in ("SESSION_SECRET", "OIDC__CLIENT_SECRET", "OIDC__ISSUER", "PUBLIC_URL"):
        assert f"AUTH__{name} is missing" in refused.stderr
    assert not home.exists()


def test_reload_with_several_workers_is_refused(home: Path) -> None:
    refused = rem("serve", "--reload", "--workers", "2", settings={"REM_HOME": str(home)})
    assert refused.returncode == 2
    assert "--reload is for one process" in refused.stderr
    assert not home.exists()


def test_reload_runs_the_server_in_a_child_process(dsn: str) -> None:
    with serving("--reload", settings={"POSTGRES__CONNECTION_STRING": dsn}) as (address, process):
        assert httpx.get(f"{address}/health/live").status_code == 200
        assert psutil.Process(process.pid).children()


FREEZE_ON_SIGUSR1 = """
import os, pathlib, re, signal

def freeze(*_):
    pathlib.Path(__file__).with_name(f"frozen-{os.getpid()}").touch()
    re.fullmatch(r"(a|a)*b", "a" * 60)

signal.signal(signal.SIGUSR1, freeze)
"""
"""A module that Python imports when it starts: the signal makes the process search without an end."""


def freeze(process: psutil.Process, folder: Path) -> None:
    process.send_signal(signal.SIGUSR1)
    while not (folder / f"frozen-{process.pid}").exists():
        time.sleep(0.02)


def find_server_process(process: ForkedProcess) -> psutil.Process:
    (child,) = psutil.Process(process.pid).children()
    return child


def test_frozen_server_is_replaced_and_a_frozen_one_is_stopped(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FREEZE_ON_SIGUSR1)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "PYTHONPATH": str(tmp_path), "API__FREEZE_SECONDS": "3"}
    process = start_rem("serve", "--port", str(port), settings=settings, stderr=subprocess.PIPE)
    try:
        _wait_until_ready(address, process)
        first = find_server_process(process)
        freeze(first, tmp_path)
        # The connection waits in the socket, which stays open, until the next process accepts it.
        assert httpx.get(f"{address}/health/ready", timeout=180).status_code == 200
        second = find_server_process(process)
        assert second.pid != first.pid
        freeze(second, tmp_path)
        process.terminate()
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGKILL
    assert not second.is_running()
    assert f"Process {first.pid} has not answered for 3 s" in log
    assert log.count("REM listens on ") == 1


def test_killed_server_process_is_replaced(dsn: str) -> None:
    with serving(settings={"POSTGRES__CONNECTION_STRING": dsn}) as (address, process):
        first = find_server_process(process)
        first.kill()
        assert httpx.get(f"{address}/health/ready", timeout=180).status_code == 200
        assert find_server_process(process).pid != first.pid


def test_killed_supervisor_leaves_nothing_on_the_port(dsn: str) -> None:
    with serving(settings={"POSTGRES__CONNECTION_STRING": dsn}) as (address, process):
        child = find_server_process(process)
        process.kill()
        child.wait(timeout=60)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health/live")


def test_log_has_the_path_template_and_no_content(dsn: str) -> None:
    port = free_port()
    command = ("serve", "--port", str(port), "--log-level", "info")
    process = start_rem(*command, settings={"POSTGRES__CONNECTION_STRING": dsn}, stderr=subprocess.PIPE)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}", process)
        headers = {"X-Request-Id": "request-7", "X-User-Id": "hunter2"}
        httpx.get(f"http://127.0.0.1:{port}/api/v1/entities/users/hunter2?where=hunter2", headers=headers)
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    (line,) = [line for line in log.splitlines() if "request-7" in line]
    assert "INFO GET /api/v1/entities/{table}/{key} 404" in line
    assert "Started server process" in log
    assert "hunter2" not in log
    assert process.returncode == 0


@contextmanager
def slow_model(seconds: float) -> Iterator[tuple[str, Event]]:
    """Run a language model that needs a long time, and yield its address and an event: it was asked."""
    asked = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.set()
            time.sleep(seconds)
            self.send_response(500)
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, ThreadPoolExecutor() as pool:
        server.daemon_threads = True
        pool.submit(server.serve_forever)
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def _terminate_during_answer(dsn: str, think_seconds: float, shutdown_seconds: float) -> tuple[int | None, int, float]:
    """Terminate a server while an agent answers. Return the status of the answer, the exit code and the seconds."""
    with slow_model(think_seconds) as (model, was_asked), ThreadPoolExecutor() as pool:
        settings = {
            "POSTGRES__CONNECTION_STRING": dsn,
            "API__SHUTDOWN_SECONDS": str(shutdown_seconds),
            "LLM__BASE_URL": model,
            "LLM__DEFAULT_MODEL": "openai:slow",
            "LLM__OPENAI_API_KEY": "none",
            "LLM__MAX_RETRIES": "0",
        }
        with serving(settings=settings) as (address, process):
            asked = pool.submit(_ask, address)
            assert was_asked.wait(30)
            start = time.monotonic()
            process.send_signal(signal.SIGTERM)
            code = process.wait(timeout=30)
            return asked.result(), code, time.monotonic() - start


def _ask(address: str) -> int | None:
    try:
        asked = {"input": "Hello"}
        return httpx.post(f"{address}/api/v1/agents/rem/run", json=asked, timeout=30).status_code
    except httpx.TransportError:
        return None


def test_shutdown_waits_for_a_running_answer(dsn: str) -> None:
    status, code, _seconds = _terminate_during_answer(dsn, think_seconds=2, shutdown_seconds=20)
    # The model fails at the end; its error is the answer.
    assert (status, code) == (502, 0)


def test_shutdown_does_not_wait_longer_than_the_limit(dsn: str) -> None:
    _status, code, seconds = _terminate_during_answer(dsn, think_seconds=15, shutdown_seconds=1)
    assert code == 0
    assert seconds < 12


def test_shutdown_ends_a_stream_with_an_error_event(dsn: str) -> None:
    with scripted_model() as model:
        model.script = lambda _body: ["Well", Pause(30), "."]
        settings = {
            "POSTGRES__CONNECTION_STRING": dsn,
            "API__SHUTDOWN_SECONDS": "1",
            "LLM__BASE_URL": model.url,
            "LLM__DEFAULT_MODEL": "openai:scripted",
        }
        with serving(settings=settings) as (address, process):
            body = {"messages": [{"role": "user", "content": "Think about it"}], "stream": True}
            with httpx.stream("POST", f"{address}/api/v1/chat/completions", json=body, timeout=30) as response:
                lines = response.iter_lines()
                while "Well" not in next(lines):
                    pass
                process.send_signal(signal.SIGTERM)
                rest = list(lines)
            assert process.wait(timeout=30) == 0
    assert "event: error" in rest
    error = json.loads(rest[rest.index("event: error") + 1].removeprefix("data: "))
    assert error["error"]["code"] == "server_stopping"
    assert "event: done" in rest
    assert [line for line in rest if line][-1] == "data: [DONE]"
