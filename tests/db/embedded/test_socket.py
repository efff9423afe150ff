"""The socket is private and reachable for every path of REM_HOME."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rem.db.embedded import EmbeddedServer
from rem.db.embedded.account import choose_server_account
from rem.db.embedded.paths import ServerPaths
from rem.errors import EmbeddedServerError
from tests.db.embedded.conftest import MakeServer
from tests.db.embedded.processes import SERVER_UID, run_sql


@pytest.fixture
def long_home(folder: Path) -> Path:
    return folder / ("long-" * 30) / ("path-" * 20)


def short_dir(home: Path) -> Path:
    """Return the socket folder that a server of this home would use."""
    path = ServerPaths(home).prepare_socket_dir(choose_server_account("nobody"))
    path.rmdir()
    return path


def test_long_home_gets_a_private_folder_among_the_temporary_files(make_server: MakeServer, long_home: Path) -> None:
    server = make_server(long_home)
    address = server.ensure_running()
    assert run_sql(address, "SELECT 1") == "1"
    assert address.socket_dir.name.startswith(f"rem-{SERVER_UID}-")
    status = address.socket_dir.lstat()
    assert (status.st_uid, status.st_mode & 0o777) == (SERVER_UID, 0o700)
    server.stop()
    assert not address.socket_dir.exists()


def test_processes_with_different_temporary_folders_share_one_server(
    make_server: MakeServer, long_home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = make_server(long_home).ensure_running()
    (folder / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    assert short_dir(long_home).parent == folder / "tmp"
    assert make_server(long_home).ensure_running() == address


@pytest.mark.parametrize("name", ["with space", "comma, and 'quotes\"", "per%cent&and=more?", "Ünïcödé"])
def test_home_with_special_characters_works(make_server: MakeServer, folder: Path, name: str) -> None:
    assert run_sql(make_server(folder / name).ensure_running(), "SELECT 1") == "1"


def test_link_instead_of_the_private_folder_is_refused(make_server: MakeServer, long_home: Path) -> None:
    squatted = short_dir(long_home)
    squatted.symlink_to("/var")
    try:
        with pytest.raises(EmbeddedServerError, match="but it is not a folder"):
            make_server(long_home).ensure_running()
        assert squatted.is_symlink()
    finally:
        squatted.unlink()


def test_private_folder_that_is_open_to_others_is_refused(make_server: MakeServer, long_home: Path) -> None:
    squatted = short_dir(long_home)
    squatted.mkdir()
    squatted.chmod(0o777)
    try:
        with pytest.raises(EmbeddedServerError, match="but it is open to others"):
            make_server(long_home).ensure_running()
    finally:
        squatted.rmdir()


def test_private_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = Path("/root") if os.geteuid() else folder
    if os.geteuid() == 0:
        os.chown(folder, 12345, 12345)
    monkeypatch.setattr(ServerPaths, "socket_dir", property(lambda self: foreign))
    with pytest.raises(EmbeddedServerError, match=r"belongs to .*, but PostgreSQL runs as"):
        ServerPaths(folder / "home").prepare_socket_dir(choose_server_account("nobody"))


def test_temporary_folder_that_is_too_long_itself_is_not_used(long_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(long_home))
    assert short_dir(long_home).parent == Path("/tmp")


def test_home_behind_a_link_has_the_same_server(make_server: MakeServer, home: Path) -> None:
    server = make_server()
    server.ensure_running()
    link = home.with_name("link")
    link.symlink_to(home)
    through = EmbeddedServer(link)
    assert through.status().pid == server.status().pid
    assert through.stop() is True
    assert server.status().running is False
