"""The local model's graph, built once and kept under REM_HOME/models."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rem.embeddings.minilm.weights import HEADS, OUTLIER_CHANNELS, SHA256, TENSORS, model_folder, read_verified
from rem.errors import EmbeddingUnavailableError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# Without exact sums a pair of products must fit into 16 bits: 2 * 255 * 63 does.
_EXACT_STEPS, _CLIPPED_STEPS = 127, 63


def open_session(home: Path, weights: Path) -> InferenceSession:
    """A session on the kept graph; it is built if it is missing or cannot be read. Any number of processes may call."""
    from loguru import logger

    from rem.embeddings.minilm.graph import has_exact_int8_sums

    steps = _EXACT_STEPS if has_exact_int8_sums() else _CLIPPED_STEPS
    path = graph_path(home, steps)
    if path.is_file():
        try:
            return load_session(str(path))
        except EmbeddingUnavailableError as error:
            logger.warning("{} is built again: {}", path, error)
    graph = _build(weights, steps)
    try:
        _write(path, graph)
    except OSError as error:
        logger.warning("The model's graph cannot be kept, so every process builds it: {}", error)
        return load_session(graph)
    return load_session(str(path))


def graph_path(home: Path, steps: int = _EXACT_STEPS) -> Path:
    """Where the graph is kept: other weights or another way to build it are another file."""
    from rem.embeddings.minilm.graph import GRAPH_VERSION

    return model_folder(home) / f"{SHA256[TENSORS][:16]}-v{GRAPH_VERSION}-{steps}.onnx"


def _build(weights: Path, steps: int) -> bytes:
    from safetensors.numpy import load

    from rem.embeddings.minilm.graph import build_encoder

    model = build_encoder(load(read_verified(weights, TENSORS)), heads=HEADS, loud=OUTLIER_CHANNELS, weight_steps=steps)
    content: bytes = model.SerializeToString()
    return content


def _write(path: Path, content: bytes) -> None:
    """Appear complete or not at all; the last of several writers wins, and all of them write the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(part).replace(path)
    finally:
        Path(part).unlink(missing_ok=True)


def load_session(graph: str | bytes) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Threads work on batches of their own: one large batch on several threads waits more than it works.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Batches differ in shape; the arena would keep the memory of each shape (measured: gigabytes) and is no faster.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common root but Exception
        raise EmbeddingUnavailableError(f"ONNX Runtime cannot load the model's graph: {error}") from error
