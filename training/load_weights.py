"""Read published weights from a safetensors file, or those of an int8 graph of the package."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rem.search.models.files import MAX_TOKENS, SCALES, WORDS

_PARTS = {
    "attention.output": "attention.output.dense",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
}
"""The linear layers of a graph with their published names; query, key and value are one layer of it."""
_EVEN_STEPS, _GELU_STEPS = 127, 223
"""The uint8 steps above zero of activations (training/graph.py)."""


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


def unpack_graph(graph: Path) -> dict[str, np.ndarray]:
    """Return the weights of an int8 graph under their published names, with the word embeddings of its folder."""
    import onnx
    from onnx import numpy_helper

    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(graph).graph.initializer}
    kept = ("head.bias", "pair.bias", "span.bias", "message.bias", "embeddings.token_type_embeddings.weight")
    weights = {name: found[name] for name in kept if name in found}
    weights |= {f"{name[:-8]}.weight": found[name].T for name in found if name.endswith(".columns")}
    weights |= {name: value for name, value in found.items() if "LayerNorm" in name}
    weights["embeddings.position_embeddings.weight"] = found["embeddings.positions"]
    steps, scales = (np.load(graph.parent / name) for name in (WORDS, SCALES))
    weights["embeddings.word_embeddings.weight"] = steps * scales.reshape(-1, 1).astype(np.float32)
    for name in found:
        if name.startswith("encoder.layer.") and name.endswith(".scale"):
            weights |= _unpack_layer(found, name.removesuffix(".scale"))
    return weights


def _unpack_layer(found: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Return the exact weights of one linear layer of a graph; those of the attention as three."""
    layer, part = ".".join(name.split(".")[:3]), ".".join(name.split(".")[3:])
    columns = found[f"{name}.weight"] * found[f"{name}.scale"] * (_GELU_STEPS if part == "output" else _EVEN_STEPS)
    if f"{name}.evening" in found:
        columns *= found[f"{name}.evening"][:, None]
    weight, bias = columns.T, found[f"{name}.bias"]
    if part != "attention.self":
        return {f"{layer}.{_PARTS[part]}.weight": weight, f"{layer}.{_PARTS[part]}.bias": bias}
    named: dict[str, np.ndarray] = {}
    for kind, rows, values in zip(("query", "key", "value"), np.split(weight, 3), np.split(bias, 3), strict=True):
        named |= {f"{layer}.attention.self.{kind}.weight": rows, f"{layer}.attention.self.{kind}.bias": values}
    return named
