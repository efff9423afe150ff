"""Load all-MiniLM-L6-v2 from its published weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rem.embeddings.minilm.weights import MODEL, TOKENIZER, read_verified

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class MiniLM:
    """The published model. Its graph is built once, and cached under REM_HOME."""

    home: Path
    weights: Path
    name: str = MODEL

    def load_tokenizer(self) -> Tokenizer:
        """Return the tokenizer, with at most 256 tokens and no padding."""
        from rem.embeddings.minilm.tokenizer import make_tokenizer

        return make_tokenizer(read_verified(self.weights, TOKENIZER))

    def open_session(self) -> InferenceSession:
        """Return an ONNX session on the graph, which is built if it is missing."""
        from rem.embeddings.minilm.graph_cache import open_session

        return open_session(self.home, self.weights)
