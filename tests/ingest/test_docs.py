"""The commands and examples in docs/ingestion.md work as described."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from pathlib import Path

from rem.api.main import create_app
from rem.settings import Settings
from tests.api.live_server import served
from tests.rem_command import REM, REPOSITORY, environment, run_python
from tests.rem_command import rem as run_rem

_DOCS = (REPOSITORY / "docs" / "ingestion.md").read_text(encoding="utf-8")
_BLOCKS = dict(re.findall(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", _DOCS, re.DOTALL))


def run_block(name: str, settings: dict[str, str], folder: Path, code: int = 0) -> str:
    """Run a block as a shell script in a folder, and return what it prints."""
    variables = environment(settings)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", _BLOCKS[name]],
        env={**variables, "PATH": f"{REM.parent}:{variables['PATH']}"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def expected_output(name: str) -> list[str]:
    """Return the comments behind the `print` calls of an example."""
    return [line.split("# ", 1)[1] for line in _BLOCKS[name].splitlines() if "print(" in line]


def run_code(code: str, settings: dict[str, str], folder: Path) -> list[str]:
    """Run an example in a folder, and return the lines that it prints."""
    done = run_python(code, settings=settings, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_commands_work_as_described_from_top_to_bottom(dsn: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    printed = run_block("first", settings, tmp_path)
    assert "2 files: 2 added; 3 chunks stored." in printed
    assert "notes/deploy.md#2" in printed
    assert "She wrote [the guide](deploy.md)." in printed
    printed = run_block("notes", settings, tmp_path)
    assert printed.count("files/notes/") == 2
    assert "resources/notes/deploy.md#2" in printed
    outward, inward = run_block("links", settings, tmp_path).split("depth")[1:]
    assert " out " in outward
    assert " in " in inward
    printed = run_block("choose", settings, tmp_path)
    assert "Nothing was stored" in printed
    assert "1 by .gitignore" in printed
    assert "1 by --exclude" in printed
    printed = run_block("undo", settings, tmp_path)
    assert "3 files: 1 added, 2 unchanged" in printed
    assert "erased 1 file with all chunks" in printed
    printed = run_block("bad", settings, tmp_path, code=1)
    assert "Failed: broken.pdf" in printed
    assert printed.count("broken.pdf") == 1
    printed = run_block("ontology", settings, tmp_path)
    assert "4 files: 4 added; 5 chunks stored." in printed
    assert "setup" in printed
    assert "usage" in printed
    assert "List all pets" in printed
    # Without --as a known file keeps its form.
    again = run_rem("ingest", "wiki", settings=settings, cwd=tmp_path)
    assert again.stdout.startswith("3 files: 3 unchanged;")
    for action in re.findall(r"`rem ((?:delete|restore) [^`]*\bKEY\b[^`]*)`", _DOCS):
        done = run_rem(*shlex.split(action.replace("KEY", "wiki/use.md")), settings=settings, cwd=tmp_path)
        # The page names `restore` before `delete`, so there is nothing to restore yet.
        expected = "Deleted files/" if action.startswith("delete") else "files has no deleted"
        assert expected in done.stdout + done.stderr


def test_python_example_prints_its_comments(dsn: str, tmp_path: Path) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    assert run_code(_BLOCKS["python"], settings, tmp_path) == expected_output("python")


async def test_http_example_prints_its_comments(settings: Settings, tmp_path: Path) -> None:
    async with served(create_app(settings)) as address:
        code = _BLOCKS["http"].replace("http://127.0.0.1:8000", address)
        assert await asyncio.to_thread(run_code, code, {}, tmp_path) == expected_output("http")


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
