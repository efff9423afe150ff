"""Where things are: the folders under REM_HOME and the socket."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rem.db.embedded.account import Account, give_to_account
from rem.db.embedded.diagnostics import explain_os_errors
from rem.errors import EmbeddedServerError

PORT = 5432  # only names the socket: its folder belongs to one server
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
# Drivers read these in a host name as something else.
AWKWARD = frozenset(",\"'\\@")


@dataclass(frozen=True)
class ServerPaths:
    """The files of the embedded server of one REM_HOME."""

    home: Path

    @property
    def folder(self) -> Path:
        """Everything of the server is in here."""
        return self.home / "postgres"

    @property
    def data(self) -> Path:
        """The cluster."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.folder / "server.log"

    @property
    def lock(self) -> Path:
        """Held by whoever creates, starts or stops the server."""
        return self.folder / "lock"

    @property
    def run(self) -> Path:
        """The folder of the socket, unless its path is too long for one."""
        return self.folder / "run"

    def prepare(self, account: Account) -> None:
        """Make the folders and the lock file; nothing above `home` is changed."""
        with explain_os_errors(f"keep data in {self.home}"):
            # Without capabilities (macOS) a root's home must let the lesser user pass.
            passable = account.groups is not None and sys.platform != "linux"
            self.home.mkdir(mode=0o711 if passable else 0o700, parents=True, exist_ok=True)
            _private_folder(self.folder, account)
            os.close(os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            give_to_account(self.lock, account)

    def prepare_socket_dir(self, account: Account) -> Path:
        """Make a private folder for the socket whose path is short enough, and return it."""
        if _suits_a_socket(self.run):
            with explain_os_errors(f"use {self.run}"):
                _private_folder(self.run, account)
            return self.run
        digest = hashlib.sha256(os.fsencode(os.path.realpath(self.home))).hexdigest()[:16]
        for base in (Path(tempfile.gettempdir()).absolute(), Path("/tmp")):  # noqa: S108 - a private folder in it
            short = base / f"rem-{account.uid}-{digest}"
            if _suits_a_socket(short):
                with explain_os_errors(f"use {short} for the socket of PostgreSQL"):
                    short.mkdir(mode=0o700, exist_ok=True)
                    _refuse_shared(short)
                    give_to_account(short, account)
                return short
        raise EmbeddedServerError(
            f"The path {self.home} is too long for a socket and so is that of the temporary folder. "
            "Set REM_HOME or TMPDIR to a shorter path."
        )


def _private_folder(path: Path, account: Account) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    give_to_account(path, account)


def _refuse_shared(path: Path) -> None:
    """In a public folder somebody else may have made ours first."""
    mode = path.lstat().st_mode
    if not stat.S_ISDIR(mode) or mode & 0o077:
        raise EmbeddedServerError(
            f"{path} should be a private folder for the socket of PostgreSQL, but it is "
            f"{'open to others' if stat.S_ISDIR(mode) else 'not a folder'}. "
            "Remove it, or set TMPDIR to another folder."
        )


def _suits_a_socket(folder: Path) -> bool:
    name = f"{folder}/.s.PGSQL.{PORT}"
    return len(os.fsencode(name)) <= SOCKET_PATH_BYTES and not AWKWARD.intersection(name)
