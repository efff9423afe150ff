"""The embedder of the package, `rem-embed-2`, which needs no download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.embeddings.bundled.files import EMBEDDER, SessionWithWords, load_tokenizer, open_graph

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODEL = "rem-embed-2"


@dataclass(frozen=True, slots=True)
class BundledModel:
    """The model in the package. All instances are equal."""

    name: str = MODEL

    def load_tokenizer(self) -> Tokenizer:
        """Return the tokenizer, with at most 256 tokens and no padding."""
        return load_tokenizer()

    def open_session(self) -> SessionWithWords:
        """Return a session on the graph."""
        return open_graph(EMBEDDER)
