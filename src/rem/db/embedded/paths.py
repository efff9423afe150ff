"""The files of the embedded server: its folders under REM_HOME, and its socket."""

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

PORT = 5432
"""Only part of the socket's file name: each server has its own socket folder."""
MAX_SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
FORBIDDEN_SOCKET_CHARS = frozenset(",\"'\\@")
"""Drivers give these characters a meaning in a host name."""


@dataclass(frozen=True)
class ServerPaths:
    """The files of the embedded server of one REM_HOME."""

    home: Path

    @property
    def folder(self) -> Path:
        """Return the folder of all files of the server."""
        return self.home / "postgres"

    @property
    def data_dir(self) -> Path:
        """Return the data folder (cluster)."""
        return self.folder / "data"

    @property
    def log_file(self) -> Path:
        """Return the log of the server."""
        return self.folder / "server.log"

    @property
    def lock_file(self) -> Path:
        """Return the file that a process locks while it creates, starts or stops the server."""
        return self.folder / "lock"

    @property
    def socket_dir(self) -> Path:
        """Return the folder of the socket, if its path is short enough for a socket."""
        return self.folder / "run"

    def prepare(self, account: Account) -> None:
        """Create the folders and the lock file. Nothing above `home` changes."""
        with explain_os_errors(f"keep data in {self.home}"):
            # Without capabilities (macOS), the server's user must be able to traverse the home of root.
            is_traversable = account.groups is not None and sys.platform != "linux"
            self.home.mkdir(mode=0o711 if is_traversable else 0o700, parents=True, exist_ok=True)
            _create_private_folder(self.folder, account)
            os.close(os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            give_to_account(self.lock_file, account)

    def prepare_socket_dir(self, account: Account) -> Path:
        """Create a private folder with a path short enough for a socket, and return it."""
        if _fits_a_socket(self.socket_dir):
            with explain_os_errors(f"use {self.socket_dir}"):
                _create_private_folder(self.socket_dir, account)
            return self.socket_dir
        digest = hashlib.sha256(os.fsencode(os.path.realpath(self.home))).hexdigest()[:16]
        for base in (Path(tempfile.gettempdir()).absolute(), Path("/tmp")):  # noqa: S108 - a private folder in it
            short = base / f"rem-{account.uid}-{digest}"
            if _fits_a_socket(short):
                with explain_os_errors(f"use {short} for the socket of PostgreSQL"):
                    short.mkdir(mode=0o700, exist_ok=True)
                    _check_private(short)
                    give_to_account(short, account)
                return short
        raise EmbeddedServerError(
            f"The path {self.home} is too long for a socket and so is that of the temporary folder. "
            "Set REM_HOME or TMPDIR to a shorter path."
        )


def _create_private_folder(path: Path, account: Account) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    give_to_account(path, account)


def _check_private(path: Path) -> None:
    """Raise an error if the folder is not private: in a public folder, another user may have created it."""
    mode = path.lstat().st_mode
    if not stat.S_ISDIR(mode) or mode & 0o077:
        raise EmbeddedServerError(
            f"{path} should be a private folder for the socket of PostgreSQL, but it is "
            f"{'open to others' if stat.S_ISDIR(mode) else 'not a folder'}. "
            "Remove it, or set TMPDIR to another folder."
        )


def _fits_a_socket(folder: Path) -> bool:
    name = f"{folder}/.s.PGSQL.{PORT}"
    return len(os.fsencode(name)) <= MAX_SOCKET_PATH_BYTES and not FORBIDDEN_SOCKET_CHARS.intersection(name)
