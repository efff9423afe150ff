"""The data folder: created once and whole, checked every time, never replaced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rem.db.embedded.account import describe_foreign_owner
from rem.db.embedded.diagnostics import describe_full_disk, explain_os_errors
from rem.db.embedded.paths import ServerPaths
from rem.db.embedded.programs import PostgresPrograms
from rem.errors import EmbeddedServerError

UNFINISHED = "data.new-"
# Under the locale C, lower('Ë') is unchanged and Japanese has no trigrams.
INITDB = (
    *("-U", "rem", "--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions"),
    *("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
)
KEEP = "REM never replaces it: restore it from a backup, or set REM_HOME to another folder."


def check_cluster(layout: ServerPaths, programs: PostgresPrograms) -> bool:
    """Whether there is a cluster that these programs can serve; anything else in its place is an error."""
    data = layout.data
    with explain_os_errors(f"read the data folder {data}"):
        if not os.path.lexists(data):
            return False
        if not data.is_dir():
            raise EmbeddedServerError(f"{data} should be the folder of the database, but it is none. {KEEP}")
        owner = data.stat().st_uid
        if owner != programs.account.uid:
            raise EmbeddedServerError(describe_foreign_owner(data, owner, programs.account))
        try:
            major = (data / "PG_VERSION").read_text(errors="replace").strip()
        except FileNotFoundError:
            raise EmbeddedServerError(
                f"{data} is not a PostgreSQL data folder: it has no file PG_VERSION. {KEEP}"
            ) from None
    if major != programs.major:
        raise EmbeddedServerError(
            f"{data} was made by PostgreSQL {major or '?'}, but this REM brings {programs.version}. "
            "Run `rem db dump` with the REM that made it and `rem db load` with this one, in a new REM_HOME."
        )
    return True


def create_cluster(layout: ServerPaths, programs: PostgresPrograms) -> None:
    """Create the cluster with its database aside, and put it in place in one step when it is whole."""
    new = layout.folder / f"{UNFINISHED}{os.urandom(4).hex()}"
    try:
        programs.run("initdb", "-D", str(new), *INITDB)
        single = ("--single", "-D", str(new), "-c", "log_checkpoints=off", "template1")
        programs.run("postgres", *single, script="CREATE DATABASE rem;\n")
        programs.run("initdb", "-D", str(new), "--sync-only")
        with explain_os_errors(f"put {layout.data} in place"):
            new.rename(layout.data)
            _sync(layout.folder)
    except EmbeddedServerError as error:
        advice = describe_full_disk(layout.folder) or " Nothing was kept: solve that, then try again."
        remove_unfinished(layout.folder)
        raise EmbeddedServerError(f"Cannot create a database in {layout.data}: {error}{advice}") from error


def remove_unfinished(folder: Path) -> None:
    """Remove what interrupted first starts left behind."""
    for leftover in folder.glob(f"{UNFINISHED}*"):
        # An initdb whose starter was killed may still write into it: the next start removes the rest.
        shutil.rmtree(leftover, ignore_errors=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
