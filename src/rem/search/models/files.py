"""Read the files of REM's own models, and check that they are those of this release."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

TOKENIZER, WORDS, SCALES, MANIFEST = "tokenizer.json", "words.npy", "scales.npy", "manifest.json"
EMBEDDER, TAGGER, REPLACEMENT = "embedder.onnx", "tagger.onnx", "replacement.onnx"
READER, CONFIDENCE, TABLES = "reader.onnx", "confidence.json", "tables.json"
PROBE = "probe.onnx"
"""Multiplies the largest int8 numbers, to see whether this CPU sums such products without overflow."""
ASSISTANT_QUESTIONS = "assistant_questions.npy"
FOLDER = Path(__file__).parent
MODEL = "rem-embed-2"
DIMENSION = 384
MAX_TOKENS = 256


def read_file(name: str, folder: Path = FOLDER) -> bytes:
    """Return the content of a file. Raise `EmbeddingMisconfiguredError` if it is not the one of the manifest."""
    path = folder / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _damaged_error(path, f"cannot be read ({error.strerror})") from error
    try:
        known = read_manifest(folder)["files"][name]["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged_error(folder / MANIFEST, f"does not name {name}") from error
    if hashlib.sha256(content).hexdigest() != known:
        raise _damaged_error(path, "is not the file of this release")
    return content


@cache
def read_manifest(folder: Path = FOLDER) -> dict[str, Any]:
    """Return the manifest: the hash and the licence of each file, and what the models need to know."""
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return manifest


class SessionWithWords:
    """An ONNX session on a graph without word embeddings, which are looked up before each run."""

    def __init__(self, session: InferenceSession, words: WordTable) -> None:
        self._session = session
        self._words = words

    def run(self, outputs: Sequence[str], feed: Mapping[str, Any]) -> list[Any]:
        """Return the outputs for token ids and the other inputs of the graph."""
        inputs = {name: value for name, value in feed.items() if name != "input_ids"}
        result: list[Any] = self._session.run(outputs, {"words": self._words.embed(feed["input_ids"]), **inputs})
        return result


def open_graph(name: str, folder: Path = FOLDER) -> SessionWithWords:
    """Return a session on a graph. Its int8 sums are exact on every CPU."""
    session = load_session(read_file(name, folder), has_exact_sums=has_exact_int8_sums())
    return SessionWithWords(session, load_words())


@cache
def has_exact_int8_sums() -> bool:
    """Return True if this CPU sums int8 products without overflow. CPUs without VNNI clip each pair at 16 bits."""
    import numpy as np

    left = np.full((1, 64), 255, dtype=np.uint8)
    (total,) = load_session(read_file(PROBE)).run(["sum"], {"left": left})
    return bool((np.asarray(total) == 255 * 127 * 64).all())


def load_session(graph: str | bytes, *, has_exact_sums: bool = True) -> InferenceSession:
    """Load a graph, given as a path or as bytes, into ONNX Runtime with one thread for each call.

    Without `has_exact_sums`, ONNX Runtime uses slower products of int8 numbers, whose sums do not overflow.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # REM's own threads run whole batches. Splitting one batch over threads costs more in waiting than it gains.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Batches differ in shape. The arena would keep memory for each shape (measured: gigabytes), and it is not faster.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    if not has_exact_sums:
        options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base class
        raise EmbeddingUnavailableError(f"ONNX Runtime cannot load the graph of the model: {error}") from error


def load_tokenizer() -> Tokenizer:
    """Return the tokenizer, with at most 256 tokens and no padding. The file says 128, and pads."""
    from tokenizers import Tokenizer

    # The tokenizer's own threads would not be bounded, and they warn when the process forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer: Tokenizer = Tokenizer.from_buffer(read_file(TOKENIZER))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer


@cache
def load_assistant_question_weights() -> NDArray[np.float32]:
    """Return what tells by its vector whether a question asks for the words of an assistant, the constant last."""
    import io

    import numpy as np

    weights: NDArray[np.float32] = np.load(io.BytesIO(read_file(ASSISTANT_QUESTIONS))).astype(np.float32)
    return weights


class WordTable:
    """The word embeddings, which all models share: int8 numbers, and a scale for each word."""

    def __init__(self) -> None:
        import io

        import numpy as np

        self._steps: NDArray[np.int8] = np.load(io.BytesIO(read_file(WORDS)))
        self._scales: NDArray[np.float32] = np.load(io.BytesIO(read_file(SCALES)))

    def embed(self, token_ids: NDArray[Any]) -> NDArray[np.float32]:
        """Return the embedding of each token."""
        embedded: NDArray[np.float32] = self._steps[token_ids] * self._scales[token_ids][..., None]
        return embedded


@cache
def load_words() -> WordTable:
    """Return the word embeddings. All models of this process share them."""
    return WordTable()


def _damaged_error(path: Path, reason: str) -> EmbeddingMisconfiguredError:
    return EmbeddingMisconfiguredError(
        f"{path} {reason}: install REM again (`pip install --force-reinstall remstack`)."
    )
