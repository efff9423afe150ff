"""Start a Phoenix server on a free port, and run the tests of REM's Phoenix client against it.

`python -m tooling.phoenix_tests PATH` takes the `phoenix` command; `make test-phoenix` installs it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

START_SECONDS = 180


def main() -> int:
    """Run the tests, and return their exit code."""
    port, grpc_port = find_free_port(), find_free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="rem-phoenix-") as folder:
        settings = {
            "PHOENIX_WORKING_DIR": folder,
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(grpc_port),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        server = subprocess.Popen([sys.argv[1], "serve"], env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
        try:
            wait_until_ready(server, url)
            tests = [sys.executable, "-m", "pytest", "-q", "-n", "1", "tests/evals/test_phoenix.py"]
            return subprocess.run(tests, env={**os.environ, "PHOENIX_TEST_URL": url}, check=False).returncode
        finally:
            server.terminate()
            server.wait(timeout=30)


def find_free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(server: subprocess.Popen[bytes], url: str) -> None:
    """Wait until the server answers. Exit with an error if it ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=5):  # noqa: S310  # our own address
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    sys.exit("Phoenix did not start.")


if __name__ == "__main__":
    sys.exit(main())
