"""The data folder (cluster) of the embedded server: create it once, check it on every start, never replace it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rem.db.embedded.account import describe_foreign_owner
from rem.db.embedded.diagnostics import describe_full_disk, explain_os_errors
from rem.db.embedded.paths import ServerPaths
from rem.db.embedded.programs import PostgresPrograms
from rem.errors import EmbeddedServerError

UNFINISHED_PREFIX = "data.new-"
INITDB_OPTIONS = (
    *("-U", "rem", "--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions"),
    *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
)
"""With a plain C locale, lower('Ë') does nothing and Japanese has no trigrams."""
NEVER_REPLACED = "REM never replaces it: restore it from a backup, or set REM_HOME to another folder."


def check_cluster(paths: ServerPaths, programs: PostgresPrograms) -> bool:
    """Return True if the data folder exists and fits these programs, and False if there is none yet.

    Raise EmbeddedServerError if it is something else, of another user, or of another version.
    """
    data_dir = paths.data_dir
    with explain_os_errors(f"read the data folder {data_dir}"):
        if not os.path.lexists(data_dir):
            return False
        if not data_dir.is_dir():
            raise EmbeddedServerError(
                f"{data_dir} should be the folder of the database, but is not a folder. {NEVER_REPLACED}"
            )
        owner = data_dir.stat().st_uid
        if owner != programs.account.uid:
            raise EmbeddedServerError(describe_foreign_owner(data_dir, owner, programs.account))
        try:
            major = (data_dir / "PG_VERSION").read_text(errors="replace").strip()
        except FileNotFoundError:
            raise EmbeddedServerError(
                f"{data_dir} is not a PostgreSQL data folder: it has no file PG_VERSION. {NEVER_REPLACED}"
            ) from None
    if major != programs.major:
        raise EmbeddedServerError(
            f"{data_dir} was created by PostgreSQL {major or '?'}, but this REM has {programs.version}. "
            "Run `rem db dump` with the old version of REM, and `rem db load` with this one in a new REM_HOME."
        )
    return True


def create_cluster(paths: ServerPaths, programs: PostgresPrograms) -> None:
    """Create the cluster and its database in a temporary folder, then rename it to the data folder."""
    temporary = paths.folder / f"{UNFINISHED_PREFIX}{os.urandom(4).hex()}"
    try:
        programs.run("initdb", "-D", str(temporary), *INITDB_OPTIONS)
        single = ("--single", "-D", str(temporary), "-c", "log_checkpoints=off", "template1")
        programs.run("postgres", *single, script="CREATE DATABASE rem;\n")
        programs.run("initdb", "-D", str(temporary), "--sync-only")
        with explain_os_errors(f"rename {temporary} to {paths.data_dir}"):
            temporary.rename(paths.data_dir)
            _sync(paths.folder)
    except EmbeddedServerError as error:
        advice = describe_full_disk(paths.folder) or " No file was kept: fix the error, then try again."
        remove_unfinished(paths.folder)
        raise EmbeddedServerError(f"Cannot create a database in {paths.data_dir}: {error}{advice}") from error


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary folders of interrupted first starts."""
    for leftover in folder.glob(f"{UNFINISHED_PREFIX}*"):
        # An initdb whose parent was killed may still write into it; the next start removes the rest.
        shutil.rmtree(leftover, ignore_errors=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
