"""Read the files of REM's own models, and check that they are those of this release."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingMisconfiguredError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

TOKENIZER, WORDS, SCALES, MANIFEST = "tokenizer.json", "words.npy", "scales.npy", "manifest.json"
EMBEDDER, TAGGER, RERANKER, REPLACEMENT = "embedder.onnx", "tagger.onnx", "reranker.onnx", "replacement.onnx"
FOLDER = Path(__file__).parent
EXACT_STEPS = 127
"""The int8 steps of the weights in the files, on each side of zero."""


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
    """Return a session on a graph. CPUs that clip int8 sums get weights with fewer steps."""
    from rem.embeddings.minilm.graph import has_exact_int8_sums, reduce_steps
    from rem.embeddings.minilm.graph_cache import CLIPPED_STEPS, load_session

    graph = read_file(name, folder)
    session = load_session(graph if has_exact_int8_sums() else reduce_steps(graph, EXACT_STEPS, CLIPPED_STEPS))
    return SessionWithWords(session, load_words())


def load_tokenizer() -> Tokenizer:
    """Return the tokenizer, with at most 256 tokens and no padding."""
    from rem.embeddings.minilm.tokenizer import make_tokenizer

    return make_tokenizer(read_file(TOKENIZER))


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
