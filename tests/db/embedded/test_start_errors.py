"""What cannot work is said clearly, and no other or empty database takes its place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rem.db.embedded import EmbeddedServer
from rem.errors import EmbeddedServerError
from tests.db.embedded.conftest import MakeDisk, MakeServer
from tests.db.embedded.processes import ENSURE, LIMITED, POWERLESS, as_ordinary_user, fail, python, query


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("files", [[], ["a-photo.jpg"]])
def test_a_data_folder_that_is_no_cluster_is_left_alone(server: EmbeddedServer, files: list[str]) -> None:
    server.data_dir.mkdir(parents=True)
    for name in files:
        (server.data_dir / name).touch()
    for path in (server.data_dir.parent, server.data_dir):
        shutil.chown(path, "nobody" if os.geteuid() == 0 else os.geteuid())
    with pytest.raises(EmbeddedServerError, match=r"is not a PostgreSQL data folder: .*backup"):
        server.ensure_running()
    assert contents(server.data_dir) == files


def test_a_data_folder_that_is_a_file_or_a_dangling_link_is_left_alone(server: EmbeddedServer) -> None:
    server.data_dir.parent.mkdir(parents=True)
    server.data_dir.symlink_to("/nowhere/at/all")
    with pytest.raises(EmbeddedServerError, match="should be the folder of the database, but is not a folder"):
        server.ensure_running()
    assert server.data_dir.is_symlink()
    server.data_dir.unlink()
    server.data_dir.write_text("mine")
    with pytest.raises(EmbeddedServerError, match="should be the folder of the database, but is not a folder"):
        server.ensure_running()
    assert server.data_dir.read_text() == "mine"


@pytest.mark.usefixtures("old_home")
def test_another_major_version_is_refused(server: EmbeddedServer) -> None:
    query(server.ensure_running(), "CREATE TABLE kept ()")
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedServerError, match=r"created by PostgreSQL 17, but this REM has 18\.6.*rem db dump"):
        server.ensure_running()
    (server.data_dir / "PG_VERSION").write_text("18\n")
    query(server.ensure_running(), "TABLE kept")


def test_a_data_folder_of_another_user_is_refused(server: EmbeddedServer) -> None:
    server.data_dir.parent.mkdir(parents=True)
    server.data_dir.symlink_to("/usr")  # which is root's, who cannot run PostgreSQL
    with pytest.raises(EmbeddedServerError, match=r"belongs to root, but PostgreSQL runs as \w+.*chown"):
        server.ensure_running()


@pytest.mark.usefixtures("old_home")
def test_a_missing_database_is_not_replaced(server: EmbeddedServer) -> None:
    address = server.ensure_running()
    dropped = type(address)(address.socket_dir, address.port, database="postgres")
    query(dropped, "DROP DATABASE rem WITH (FORCE)")
    with pytest.raises(EmbeddedServerError, match=r'database "rem" does not exist.*backup'):
        server.ensure_running()


def test_a_home_that_is_a_file(home: Path, server: EmbeddedServer) -> None:
    home.write_text("mine")
    with pytest.raises(EmbeddedServerError, match=r"Cannot keep data in .*File exists.*move it"):
        server.ensure_running()
    assert home.read_text() == "mine"
    assert server.stop() is False


def test_a_home_below_a_file(home: Path, make_server: MakeServer) -> None:
    home.write_text("mine")
    server = EmbeddedServer(home / "below")
    with pytest.raises(EmbeddedServerError, match=r"Cannot keep data in .*Not a directory.*move it"):
        server.ensure_running()


def test_a_home_with_a_line_break(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="line break"):
        EmbeddedServer(home / "a\nb").ensure_running()


def test_a_read_only_home(make_disk: MakeDisk) -> None:
    disk = make_disk(1)
    if disk is not None:
        assert os.system(f"mount -o remount,ro {disk}") == 0
    # Where nothing can be mounted: no user, not even root, makes folders in /sys.
    home = (disk or Path("/sys")) / "home"
    with pytest.raises(EmbeddedServerError, match=r"Cannot keep data in .*REM_HOME"):
        EmbeddedServer(home).ensure_running()
    assert not home.exists()


def test_a_folder_without_permission(folder: Path) -> None:
    folder.chmod(0o755 if os.geteuid() == 0 else 0o555)
    done = as_ordinary_user(POWERLESS + ENSURE, folder / "home")
    assert "Cannot keep data in" in done.stderr
    assert "Permission denied" in done.stderr
    assert "Give this user the right to it" in done.stderr
    folder.chmod(0o755)


def test_a_first_start_on_a_full_disk(make_disk: MakeDisk, home: Path) -> None:
    disk = make_disk(16)
    home = disk / "home" if disk else home
    message = fail(python(ENSURE if disk else LIMITED, home))
    assert f"Cannot create a database in {home}/postgres/data" in message
    assert disk is None or "No space left on device" in message
    assert "data" not in {path.name[:4] for path in (home / "postgres").iterdir()}


def test_a_later_start_on_a_full_disk(make_disk: MakeDisk, home: Path) -> None:
    disk = make_disk(90)
    home = disk / "home" if disk else home
    server = EmbeddedServer(home, idle_timeout_seconds=60)
    query(server.ensure_running(), "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    filler = home / "filler"
    if disk:
        fill(filler)
    message = fail(python(ENSURE if disk else LIMITED, home))
    assert "PostgreSQL could not be started" in message
    assert disk is None or "is full" in message
    filler.unlink(missing_ok=True)
    assert query(server.ensure_running(), "SELECT answer FROM kept") == "42"
    server.stop()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            return


def test_files_may_not_grow(home: Path) -> None:
    message = fail(python(LIMITED, home))
    assert f"Cannot create a database in {home}/postgres/data" in message
    assert "data" not in {path.name[:4] for path in (home / "postgres").iterdir()}
