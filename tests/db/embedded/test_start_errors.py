"""A failing start raises a clear error and never replaces the database."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rem.db.embedded import EmbeddedServer
from rem.errors import EmbeddedServerError
from tests.db.embedded.conftest import MakeDisk, MakeServer
from tests.db.embedded.processes import (
    DROP_CAPABILITIES,
    ENSURE_RUNNING,
    ENSURE_RUNNING_WITH_FILE_LIMIT,
    python,
    run_as_ordinary_user,
    run_failing,
    run_sql,
)


def contents(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("files", [[], ["a-photo.jpg"]])
def test_data_folder_that_is_not_a_cluster_is_never_changed(server: EmbeddedServer, files: list[str]) -> None:
    server.data_dir.mkdir(parents=True)
    for name in files:
        (server.data_dir / name).touch()
    for path in (server.data_dir.parent, server.data_dir):
        shutil.chown(path, "nobody" if os.geteuid() == 0 else os.geteuid())
    with pytest.raises(EmbeddedServerError, match=r"is not a PostgreSQL data folder: .*backup"):
        server.ensure_running()
    assert contents(server.data_dir) == files


def test_file_or_dangling_link_instead_of_the_data_folder_is_never_changed(server: EmbeddedServer) -> None:
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
    run_sql(server.ensure_running(), "CREATE TABLE kept ()")
    server.stop()
    (server.data_dir / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedServerError, match=r"created by PostgreSQL 17, but this REM has 18\.6.*rem db dump"):
        server.ensure_running()
    (server.data_dir / "PG_VERSION").write_text("18\n")
    run_sql(server.ensure_running(), "TABLE kept")


def test_data_folder_of_another_user_is_refused(server: EmbeddedServer) -> None:
    server.data_dir.parent.mkdir(parents=True)
    server.data_dir.symlink_to("/usr")  # which is root's, who cannot run PostgreSQL
    with pytest.raises(EmbeddedServerError, match=r"belongs to root, but PostgreSQL runs as \w+.*chown"):
        server.ensure_running()


@pytest.mark.usefixtures("old_home")
def test_missing_database_is_not_replaced(server: EmbeddedServer) -> None:
    address = server.ensure_running()
    dropped = type(address)(address.socket_dir, address.port, database="postgres")
    run_sql(dropped, "DROP DATABASE rem WITH (FORCE)")
    with pytest.raises(EmbeddedServerError, match=r'database "rem" does not exist.*backup'):
        server.ensure_running()


def test_home_that_is_a_file_is_refused(home: Path, server: EmbeddedServer) -> None:
    home.write_text("mine")
    with pytest.raises(EmbeddedServerError, match=r"Cannot keep data in .*File exists.*move it"):
        server.ensure_running()
    assert home.read_text() == "mine"
    assert server.stop() is False


def test_home_below_a_file_is_refused(home: Path, make_server: MakeServer) -> None:
    home.write_text("mine")
    server = EmbeddedServer(home / "below")
    with pytest.raises(EmbeddedServerError, match=r"Cannot keep data in .*Not a directory.*move it"):
        server.ensure_running()


def test_home_with_a_line_break_is_refused(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="line break"):
        EmbeddedServer(home / "a\nb").ensure_running()


def test_read_only_home_is_refused(make_disk: MakeDisk) -> None:
    disk = make_disk(1)
    if disk is not None:
        assert os.system(f"mount -o remount,ro {disk}") == 0
    # Where nothing can be mounted: no user, not even root, makes folders in /sys.
    home = (disk or Path("/sys")) / "home"
    with pytest.raises(EmbeddedServerError, match=r"Cannot keep data in .*REM_HOME"):
        EmbeddedServer(home).ensure_running()
    assert not home.exists()


def test_folder_without_permission_is_refused(folder: Path) -> None:
    folder.chmod(0o755 if os.geteuid() == 0 else 0o555)
    done = run_as_ordinary_user(DROP_CAPABILITIES + ENSURE_RUNNING, folder / "home")
    assert "Cannot keep data in" in done.stderr
    assert "Permission denied" in done.stderr
    assert "Give this user the right to it" in done.stderr
    folder.chmod(0o755)


def test_first_start_on_a_full_disk_is_explained(make_disk: MakeDisk, home: Path) -> None:
    disk = make_disk(16)
    home = disk / "home" if disk else home
    message = run_failing(python(ENSURE_RUNNING if disk else ENSURE_RUNNING_WITH_FILE_LIMIT, home))
    assert f"Cannot create a database in {home}/postgres/data" in message
    assert disk is None or "No space left on device" in message
    assert "data" not in {path.name[:4] for path in (home / "postgres").iterdir()}


def test_later_start_on_a_full_disk_is_explained(make_disk: MakeDisk, home: Path) -> None:
    disk = make_disk(90)
    home = disk / "home" if disk else home
    server = EmbeddedServer(home, idle_timeout_seconds=60)
    run_sql(server.ensure_running(), "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    filler = home / "filler"
    if disk:
        fill(filler)
    message = run_failing(python(ENSURE_RUNNING if disk else ENSURE_RUNNING_WITH_FILE_LIMIT, home))
    assert "PostgreSQL could not be started" in message
    assert disk is None or "is full" in message
    filler.unlink(missing_ok=True)
    assert run_sql(server.ensure_running(), "SELECT answer FROM kept") == "42"
    server.stop()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            return


def test_file_size_limit_is_explained(home: Path) -> None:
    message = run_failing(python(ENSURE_RUNNING_WITH_FILE_LIMIT, home))
    assert f"Cannot create a database in {home}/postgres/data" in message
    assert "data" not in {path.name[:4] for path in (home / "postgres").iterdir()}
