"""`make install` fits the environment to the Python that is asked for; uv is a stand-in that tells how it is called."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rem_command import REPOSITORY


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What `make install` needs of a clone."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".tools" / "bin").mkdir(parents=True)
    _script(tmp_path / ".tools" / "bin" / "uv", 'echo uv "$@"')
    return tmp_path


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def install(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "install", *arguments], cwd=clone, capture_output=True, text=True, check=False)


def test_an_environment_is_made_once_and_kept(clone: Path) -> None:
    (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
    assert "uv venv --quiet --allow-existing" in install(clone, f"PYTHON={sys.executable}").stdout
    assert "uv" not in install(clone, f"PYTHON={sys.executable}").stdout
    assert "uv" not in install(clone).stdout


def test_an_environment_of_another_python_is_made_anew(clone: Path) -> None:
    _script(clone / ".venv" / "bin" / "python", "echo '(3, 10)'")
    (clone / ".venv" / ".installed").touch()
    assert "uv" not in install(clone).stdout
    made = install(clone, f"PYTHON={sys.executable}").stdout
    assert f"uv venv --quiet --clear --python {sys.executable} .venv" in made


def test_a_python_that_is_too_old_is_refused_before_the_environment_is_touched(clone: Path) -> None:
    old = clone / "old-python"
    _script(old, "echo too old >&2; exit 1")
    refused = install(clone, f"PYTHON={old}")
    assert refused.returncode != 0
    assert "uv venv" not in refused.stdout


def test_another_python_gets_an_environment_of_its_own(clone: Path) -> None:
    _script(clone / ".tools" / "bin" / "uv", f'if [ "$1" = python ]; then echo {sys.executable}; else echo uv "$@"; fi')
    (clone / ".venv-3.13").mkdir()
    command = ["make", "test-python", "VERSION=3.13"]
    tested = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert f"uv venv --quiet --clear --python {sys.executable} .venv-3.13" in tested.stdout
    assert ".venv-3.13/bin/python -m pytest" in tested.stdout
    assert not (clone / ".venv" / ".installed").exists()


@pytest.mark.parametrize("arguments", [(), ("VERSION=3.99",)])
def test_a_missing_python_is_named(clone: Path, arguments: tuple[str, ...]) -> None:
    _script(clone / ".tools" / "bin" / "uv", "exit 2")
    command = ["make", "test-python", *arguments]
    refused = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert ("3.99" if arguments else "Name a version") in refused.stdout
