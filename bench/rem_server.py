"""Run `rem serve` for a benchmark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx

READY_SECONDS = 180


@contextmanager
def serve_rem(home: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Start a server with its own settings, wait until it answers, and yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "REM_HOME": str(home), **settings}
    command = [str(Path(sys.executable).with_name("rem")), "serve", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(address)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(address: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{address}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("rem serve did not become ready")
