"""The commands and examples in docs/ingestion.md work as described."""

from __future__ import annotations

import asyncio
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
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files that the commands of the page name."""
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


def run_block(name: str, settings: dict[str, str], folder: Path, code: int = 0) -> list[str]:
    """Run the commands of a block, and return what each prints."""
    outputs = []
    for line in _BLOCKS[name].splitlines():
        done = run_rem(*shlex.split(line)[1:], settings=settings, cwd=folder)
        assert done.returncode == code, done.stderr
        outputs.append(done.stdout + done.stderr)
    return outputs


def expected_output(name: str) -> list[str]:
    """Return the comments behind the `print` calls of an example."""
    return [line.split("# ", 1)[1] for line in _BLOCKS[name].splitlines() if "print(" in line]


def run_python(code: str, settings: dict[str, str], folder: Path) -> list[str]:
    """Run an example in a folder, and return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(settings),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_commands_work_as_described(dsn: str, folder: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    ingested, hits, looked_up = run_block("first", settings, folder)
    assert ingested.startswith("2 files: 2 added; 3 chunks stored.")
    assert "notes/deploy.md#2" in hits
    assert "Roll back" in looked_up
    (failed,) = run_block("bad", settings, folder, code=1)
    assert "2 unchanged, 1 failed" in failed
    assert "Failed: broken.pdf: " in failed
    loaded, traversed, operation = run_block("ontology", settings, folder)
    assert loaded.startswith("4 files: 4 added; 7 chunks stored.")
    assert "setup" in traversed
    assert "usage" in traversed
    assert "One pet" in operation
    # Without --as a known file keeps its form.
    again = run_rem("ingest", "wiki", settings=settings, cwd=folder)
    assert again.stdout.startswith("3 files: 3 unchanged;")
    for action in re.findall(r"`rem ((?:delete|restore) [^`]*\bKEY\b[^`]*)`", _DOCS):
        done = run_rem(*shlex.split(action.replace("KEY", "wiki/use.md")), settings=settings, cwd=folder)
        # The page names `restore` before `delete`, so there is nothing to restore yet.
        expected = "Deleted files/" if action.startswith("delete") else "files has no deleted"
        assert expected in done.stdout + done.stderr


def test_python_example_prints_its_comments(dsn: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    assert run_python(_BLOCKS["python"], settings, tmp_path) == expected_output("python")


async def test_http_example_prints_its_comments(settings: Settings, tmp_path: Path) -> None:
    async with served(create_app(settings)) as address:
        code = _BLOCKS["http"].replace("http://127.0.0.1:8000", address)
        assert await asyncio.to_thread(run_python, code, {}, tmp_path) == expected_output("http")


def test_all_routes_are_listed() -> None:
    listed = set(re.findall(r"^\| `([A-Z]+) (/api/v1/files\S*?)(?:\{.*)?` \|", _DOCS, re.MULTILINE))
    paths = create_app(Settings()).openapi()["paths"]
    served_routes = {
        (method.upper(), path.partition("{")[0])
        for path, methods in paths.items()
        if path.startswith("/api/v1/files")
        for method in methods
    }
    assert listed == served_routes
