"""Fixtures with real embedded servers. Every server that a test starts is stopped at its end."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rem.db.embedded import EmbeddedServer
from tests.conftest import find_memory_folder

MakeServer = Callable[..., EmbeddedServer]
MakeDisk = Callable[[int], Path | None]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Create a folder with a path short enough for a socket; that of `tmp_path` is too long."""
    path = Path(tempfile.mkdtemp(prefix="rt", dir=find_memory_folder() or "/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def home(folder: Path) -> Path:
    """Return a home that does not exist yet."""
    return folder / "home"


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """Create a home with a database once, because this takes most of the time of a first start."""
    path = Path(tempfile.mkdtemp(prefix="rt", dir=find_memory_folder() or "/tmp"))
    server = EmbeddedServer(path / "home", idle_timeout_seconds=60.0)
    server.ensure_running()
    server.stop()
    server.log_file.unlink()
    yield path / "home"
    shutil.rmtree(path)


@pytest.fixture
def old_home(template: Path, home: Path) -> Path:
    """Return a home with a database."""
    subprocess.run(["cp", "-a", str(template), str(home)], check=True)
    return home


@pytest.fixture
def make_server(home: Path) -> Iterator[MakeServer]:
    """Return a factory of servers. They stop at the end of the test, or after their idle time."""
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
    """Return a server of a new home, not started."""
    return make_server()


@pytest.fixture
def make_disk(folder: Path) -> Iterator[MakeDisk]:
    """Return a function that mounts a file system of some megabytes. It returns None if that is not allowed."""
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
