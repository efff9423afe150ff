"""Vectors from embedding libraries that run in this process: fastembed and sentence-transformers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rem.embeddings.minilm.weights import MODEL
from rem.embeddings.thread_pool import BatchThreadPool
from rem.embeddings.validation import dimension_error
from rem.errors import EmbeddingError, EmbeddingMisconfiguredError, EmbeddingUnavailableError

if TYPE_CHECKING:
    from rem.embeddings.embedder import Vectors

DEFAULT_MODEL = MODEL
"""The same model as the local provider's, so that their vectors can be mixed."""


class Encoder(Protocol):
    """A loaded model."""

    dimension: int

    def encode(self, texts: Sequence[str]) -> Iterable[Any]:
        """One row per text."""


class LibraryProvider:
    """A library's model, loaded at its first use and run in one thread of ours."""

    def __init__(self, model: str, dimension: int, batch_size: int, load: Callable[[], Encoder]) -> None:
        self.model = model
        self.dimension = dimension
        self._batch_size = batch_size
        self._load = load
        self._workers: BatchThreadPool[range] = BatchThreadPool(1)
        self._loading = threading.Lock()
        self._encoder: Encoder | None = None

    async def vectors(self, texts: Sequence[str]) -> Vectors:
        """One row per text."""
        import numpy as np

        rows = np.empty((len(texts), self.dimension), dtype=np.float32)

        def run(numbers: range) -> None:
            rows[numbers.start : numbers.stop] = self._encode([texts[number] for number in numbers])

        every = range(len(texts))
        await self._workers.run(run, [every[at : at + self._batch_size] for at in every[:: self._batch_size]])
        return rows

    async def close(self) -> None:
        """Give back the thread and the model's memory."""
        await self._workers.close()
        self._encoder = None

    def _encode(self, texts: list[str]) -> Any:
        import numpy as np

        encoder = self._loaded()
        try:
            rows = np.asarray(list(encoder.encode(texts)), dtype=np.float32)
        except Exception as error:  # a library may raise anything
            raise EmbeddingUnavailableError(f"{self.model} failed: {error}") from error
        if rows.shape != (len(texts), self.dimension):
            raise EmbeddingUnavailableError(f"{self.model} answered with {rows.shape} numbers for {len(texts)} texts.")
        return rows

    def _loaded(self) -> Encoder:
        with self._loading:
            if self._encoder is None:
                try:
                    encoder = self._load()
                except EmbeddingError:
                    raise
                except Exception as error:  # a library may raise anything
                    raise EmbeddingUnavailableError(
                        f"{self.model} cannot be loaded: {error}. Check EMBEDDING__MODEL; without access to its hub, "
                        "set EMBEDDING__MODEL_PATH to a folder that holds the model."
                    ) from error
                if encoder.dimension != self.dimension:
                    raise dimension_error(self.model, encoder.dimension, self.dimension)
                self._encoder = encoder
            return self._encoder


class FastembedEncoder:
    """fastembed's TextEmbedding; it keeps what it downloads under REM_HOME/models."""

    def __init__(self, model: str, path: Path | None, home: Path, threads: int) -> None:
        from fastembed import TextEmbedding

        self._text_embedding = TextEmbedding(
            model,
            cache_dir=str(home / "models" / "fastembed"),
            threads=threads,
            specific_model_path=str(path) if path else None,
        )
        self.dimension = self._text_embedding.embedding_size

    def encode(self, texts: Sequence[str]) -> Iterable[Any]:
        """One row per text."""
        return self._text_embedding.embed(texts, batch_size=len(texts))


class SentenceTransformersEncoder:
    """A SentenceTransformer on the CPU."""

    def __init__(self, model: str, path: Path | None) -> None:
        from sentence_transformers import SentenceTransformer

        self._transformer = SentenceTransformer(str(path) if path else model, device="cpu")
        # Renamed in version 5.4; the old name warns since.
        named = getattr(self._transformer, "get_embedding_dimension", None)
        self.dimension = int((named or self._transformer.get_sentence_embedding_dimension)())

    def encode(self, texts: Sequence[str]) -> Iterable[Any]:
        """One unit row per text."""
        rows: Iterable[Any] = self._transformer.encode(
            list(texts), batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
        )
        return rows


def require_library(package: str, extra: str) -> None:
    """Refuse a provider whose library is not installed."""
    if find_spec(package) is None:
        raise EmbeddingMisconfiguredError(
            f"EMBEDDING__PROVIDER={extra} needs {package}, which is not installed: pip install 'remstack[{extra}]'."
        )
