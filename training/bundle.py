"""Write the files of REM's own models with their hashes into the package."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rem.search.models.files import PROBE

BASE_LICENCE = "Apache-2.0 (all-MiniLM-L6-v2)"


def write_files(folder: Path, contents: Mapping[str, bytes], **about: str) -> None:
    """Write files, and their hash, size and licence into the manifest. `about` is added to the manifest as it is."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"files": {}}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        licence = BASE_LICENCE
        if name == PROBE:
            licence = "MIT"
        elif name.endswith((".onnx", "questions.npy")):
            licence += ", trained on the data of its model card"
        entry = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content), "licence": licence}
        manifest["files"][name] = entry
    ordered = about | {key: value for key, value in manifest.items() if key not in ("files", *about)}
    ordered["files"] = dict(sorted(manifest["files"].items()))
    path.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")


def array_file(array: np.ndarray) -> bytes:
    """Return an array in the format of numpy."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()
