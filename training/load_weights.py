"""Read published weights from a safetensors file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rem.embeddings.minilm.weights import MAX_TOKENS


def load_weights(path: Path) -> dict[str, np.ndarray]:
    """Return the weights of an encoder, without the pooler, which REM does not use."""
    from safetensors.numpy import load_file

    weights = {name.removeprefix("bert."): value for name, value in load_file(path).items()}
    return {name: value for name, value in weights.items() if not name.startswith("pooler")}


def load_trained_weights(base: Path, layers: Iterable[Path]) -> dict[str, np.ndarray]:
    """Return the embeddings of a base model, for MAX_TOKENS positions, and trained layers in place of its own."""
    weights = {name: value for name, value in load_weights(base).items() if name.startswith("embeddings.")}
    for path in layers:
        weights |= {name: value.astype(np.float32) for name, value in np.load(path).items()}
    positions = "embeddings.position_embeddings.weight"
    weights[positions] = weights[positions][:MAX_TOKENS]
    return weights
