"""Homes for real servers; every server that a test starts is stopped."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rem.db.embedded import EmbeddedServer

MakeServer = Callable[..., EmbeddedServer]
MakeDisk = Callable[[int], Path | None]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket, which that of `tmp_path` is not."""
    path = Path(tempfile.mkdtemp(prefix="rt", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def home(folder: Path) -> Path:
    """A home that does not exist yet."""
    return folder / "home"


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """A home with a database, made once: making one takes most of the time of a first start."""
    path = Path(tempfile.mkdtemp(prefix="rt", dir="/tmp"))
    server = EmbeddedServer(path / "home", idle_timeout_seconds=60.0)
    server.ensure_running()
    server.stop()
    server.log_file.unlink()
    yield path / "home"
    shutil.rmtree(path)


@pytest.fixture
def old_home(template: Path, home: Path) -> Path:
    """The home, with a database in it."""
    subprocess.run(["cp", "-a", str(template), str(home)], check=True)
    return home


@pytest.fixture
def make_server(home: Path) -> Iterator[MakeServer]:
    """Makes servers that are stopped at the end of the test, and by themselves if that fails."""
    made: list[EmbeddedServer] = []

    def make(at: Path = home, **options: Any) -> EmbeddedServer:
        made.append(EmbeddedServer(at, **{"idle_timeout_seconds": 60.0} | options))
        return made[-1]

    yield make
    for server in made:
        if not server.data_dir.parents[1].is_file():
            server.stop()


@pytest.fixture
def server(make_server: MakeServer) -> EmbeddedServer:
    """A server of a fresh home, not started."""
    return make_server()


@pytest.fixture
def make_disk(folder: Path) -> Iterator[MakeDisk]:
    """Mounts a file system of so many megabytes, or returns None where that is not allowed."""
    mounted: list[Path] = []

    def make(megabytes: int) -> Path | None:
        path = folder / f"disk{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            return None
        mounted.append(path)
        return path

    yield make
    for path in mounted:
        EmbeddedServer(path / "home").stop()
        subprocess.run(["umount", str(path)], check=True)
