"""Build the ONNX graph of the local model once, and cache it under REM_HOME/models."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rem.embeddings.minilm.weights import HEADS, OUTLIER_CHANNELS, SHA256, TENSORS, model_folder, read_verified
from rem.errors import EmbeddingUnavailableError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

EXACT_STEPS = 127
CLIPPED_STEPS = 63
"""For CPUs without exact sums: a pair of products must fit into 16 bits, and 2 * 255 * 63 does."""


def open_session(home: Path, weights: Path) -> InferenceSession:
    """Return an ONNX session on the cached graph, which is built if it is missing or unreadable.

    Several processes may call this at the same time.
    """
    from loguru import logger

    from rem.embeddings.minilm.graph import has_exact_int8_sums

    steps = EXACT_STEPS if has_exact_int8_sums() else CLIPPED_STEPS
    path = graph_path(home, steps)
    if path.is_file():
        try:
            return load_session(str(path))
        except EmbeddingUnavailableError as error:
            logger.warning("{} is rebuilt: {}", path, error)
    graph = _build_graph(weights, steps)
    try:
        _write_atomically(path, graph)
    except OSError as error:
        logger.warning("The graph of the local model cannot be cached, so every process builds it: {}", error)
        return load_session(graph)
    return load_session(str(path))


def graph_path(home: Path, steps: int = EXACT_STEPS) -> Path:
    """Return the path of the cached graph. It depends on the weights, the graph version and the quantization steps."""
    from rem.embeddings.minilm.graph import GRAPH_VERSION

    return model_folder(home) / f"{SHA256[TENSORS][:16]}-v{GRAPH_VERSION}-{steps}.onnx"


def _build_graph(weights: Path, steps: int) -> bytes:
    from safetensors.numpy import load

    from rem.embeddings.minilm.graph import build_encoder

    tensors = load(read_verified(weights, TENSORS))
    model = build_encoder(tensors, heads=HEADS, outliers=OUTLIER_CHANNELS, weight_steps=steps)
    content: bytes = model.SerializeToString()
    return content


def _write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all. Concurrent writers write the same content, and the last one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def load_session(graph: str | bytes) -> InferenceSession:
    """Load a graph, given as a path or as bytes, into ONNX Runtime with one thread for each call."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # REM's own threads run whole batches. Splitting one batch over threads costs more in waiting than it gains.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Batches differ in shape. The arena would keep memory for each shape (measured: gigabytes), and it is not faster.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base class
        raise EmbeddingUnavailableError(f"ONNX Runtime cannot load the graph of the model: {error}") from error
