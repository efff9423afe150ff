"""The embedder of the package, `rem-embed-1`, which needs no download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rem.embeddings.bundled.files import EMBEDDER, WordTable, load_tokenizer, open_graph

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

MODEL = "rem-embed-1"


class SessionWithWords:
    """An ONNX session on a graph without word embeddings, which are looked up before each run."""

    def __init__(self, session: InferenceSession, words: WordTable) -> None:
        self._session = session
        self._words = words

    def run(self, outputs: Sequence[str], feed: Mapping[str, Any]) -> list[Any]:
        """Return the outputs for token ids and their mask."""
        words = self._words.embed(feed["input_ids"])
        result: list[Any] = self._session.run(outputs, {"words": words, "attention_mask": feed["attention_mask"]})
        return result


@dataclass(frozen=True, slots=True)
class BundledModel:
    """The model in the package. All instances are equal."""

    name: str = MODEL

    def load_tokenizer(self) -> Tokenizer:
        """Return the tokenizer, with at most 256 tokens and no padding."""
        return load_tokenizer()

    def open_session(self) -> SessionWithWords:
        """Return a session on the graph."""
        return SessionWithWords(open_graph(EMBEDDER), WordTable())
