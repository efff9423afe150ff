"""Read published weights from a safetensors file."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def load_weights(path: Path) -> dict[str, np.ndarray]:
    """Return the weights of an encoder, without the pooler, which REM does not use."""
    from safetensors.numpy import load_file

    weights = {name.removeprefix("bert."): value for name, value in load_file(path).items()}
    return {name: value for name, value in weights.items() if not name.startswith("pooler")}
