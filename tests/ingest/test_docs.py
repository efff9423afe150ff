"""What docs/ingestion.md says is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rem.api.main import create_app
from rem.settings import Settings
from tests.api.live_server import served
from tests.ingest.test_ingester import API
from tests.rem_command import REPOSITORY, environment
from tests.rem_command import rem as run_rem

_DOCS = (REPOSITORY / "docs" / "ingestion.md").read_text(encoding="utf-8")
_BLOCKS = dict(re.findall(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", _DOCS, re.DOTALL))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the commands are called: with the files that they name."""
    for name, text in {
        "notes/deploy.md": "# Deploy\n\nPush it.\n\n## Roll back\n\nGo back to the old release.",
        "notes/tea.md": "# Tea\n\nTwo boxes of Darjeeling.\n",
        "wiki/home.md": "# Home\n\nSee [[Setup]] and [usage](use.md).\n",
        "wiki/setup.md": "# Setup\n\nRun make.\n",
        "wiki/use.md": "# Usage\n\nType rem.\n",
        "petstore.yaml": API.replace("/pets/{id}", "/pets"),
        "broken.pdf": "%PDF-1.7 and nothing else",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def said_by(name: str, settings: dict[str, str], place: Path, code: int = 0) -> list[str]:
    answers = []
    for line in _BLOCKS[name].splitlines():
        done = run_rem(*shlex.split(line)[1:], settings=settings, cwd=place)
        assert done.returncode == code, done.stderr
        answers.append(done.stdout + done.stderr)
    return answers


def test_the_commands_do_what_is_said(dsn: str, place: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    first, found, looked_up = said_by("first", settings, place)
    assert first.startswith("2 files: 2 added; 3 chunks stored.")
    assert "notes/deploy.md#2" in found
    assert "Roll back" in looked_up
    (bad,) = said_by("bad", settings, place, code=1)
    assert "2 unchanged, 1 failed" in bad
    assert "Failed: broken.pdf: " in bad
    loaded, walked, operation = said_by("ontology", settings, place)
    assert loaded.startswith("4 files: 4 added; 7 chunks stored.")
    assert "setup" in walked
    assert "usage" in walked
    assert "One pet" in operation
    # Without --as it stays an entry.
    again = run_rem("ingest", "wiki", settings=settings, cwd=place)
    assert again.stdout.startswith("3 files: 3 unchanged;")
    for action in re.findall(r"`rem ((?:delete|restore) [^`]*\bKEY\b[^`]*)`", _DOCS):
        gone_or_back = run_rem(*shlex.split(action.replace("KEY", "wiki/use.md")), settings=settings, cwd=place)
        # What is restored must have been deleted before, which is said further down.
        wanted = "Deleted files/" if action.startswith("delete") else "files has no deleted"
        assert wanted in gone_or_back.stdout + gone_or_back.stderr


def promised(name: str) -> list[str]:
    return [line.split("# ", 1)[1] for line in _BLOCKS[name].splitlines() if "print(" in line]


def printed(code: str, settings: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(settings), capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_library_does_what_is_said(dsn: str) -> None:
    assert printed(_BLOCKS["python"], {"POSTGRES__CONNECTION_STRING": dsn}) == promised("python")


async def test_the_api_does_what_is_said(settings: Settings) -> None:
    import asyncio

    async with served(create_app(settings)) as address:
        code = _BLOCKS["http"].replace("http://127.0.0.1:8000", address)
        assert await asyncio.to_thread(printed, code, {}) == promised("http")


def test_the_routes_of_the_docs_are_those_of_the_api() -> None:
    listed = {
        tuple(found) for found in re.findall(r"^\| `([A-Z]+) (/api/v1/files\S*?)(?:\{.*)?` \|", _DOCS, re.MULTILINE)
    }
    paths = create_app(Settings()).openapi()["paths"]
    served_here = {
        (method.upper(), path.partition("{")[0])
        for path, methods in paths.items()
        if path.startswith("/api/v1/files")
        for method in methods
    }
    assert listed == served_here
