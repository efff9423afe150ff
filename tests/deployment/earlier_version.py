"""Run an earlier version of REM, taken from the history of git, with the Python and the packages of the tests."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.db.embedded.processes import wait_until
from tests.deployment.servers import find_free_port
from tests.rem_command import REPOSITORY, environment

MAX_START_SECONDS = 180


@dataclass(frozen=True, slots=True)
class EarlierVersion:
    """The source of an earlier version. Its commands run as processes of their own."""

    commit: str
    folder: Path

    def run(self, *arguments: str, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. The caller checks the exit code."""
        command = [sys.executable, "-m", "rem", *arguments]
        return subprocess.run(
            command,
            env=self._environment(settings),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=MAX_START_SECONDS,
        )

    @contextmanager
    def running(self, *arguments: str, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command, such as `worker`, while the block runs. What it logs is in the file `log`."""
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "rem", *arguments],
                env=self._environment(settings),
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
            self.check_alive(process)
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def serving(self, settings: Mapping[str, str]) -> Iterator[str]:
        """Run `rem serve`, and yield its address."""
        address = f"http://127.0.0.1:{find_free_port()}"
        with self.running("serve", "--port", address.rpartition(":")[2], settings=settings) as process:
            wait_until(lambda: self.check_alive(process) and _is_ready(address), MAX_START_SECONDS)
            yield address

    def check_alive(self, process: subprocess.Popen[bytes]) -> bool:
        """Return True. Fail with the end of the log if a process has ended."""
        if process.poll() is not None:
            log = (self.folder / "log").read_text(errors="replace")
            pytest.fail(f"A process of {self.commit} ended: {log[-4000:]}")
        return True

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        # Warnings of the packages are errors in tests, but this code is not ours to change any more.
        return {**environment(settings), "PYTHONPATH": str(self.folder / "src"), "PYTHONWARNINGS": "ignore"}


def extract_version(commit: str, folder: Path) -> EarlierVersion:
    """Write the source of a commit into a folder. Fail the test if the history is not there."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=REPOSITORY, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.fail(
            f"This test runs the code of the commit {commit}, which `git archive` does not find: it needs a clone with "
            f"the whole history (git fetch --unshallow). {archive.stderr.decode(errors='replace').strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    version = EarlierVersion(commit, folder)
    code = "import rem; print(rem.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", code], env=version._environment({}), capture_output=True, text=True, check=True
    ).stdout
    assert where.startswith(str(folder)), f"Python imports {where}, not the earlier version"
    return version


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
