"""Providers for embedding libraries that run in this process: fastembed and sentence-transformers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rem.errors import EmbeddingError, EmbeddingMisconfiguredError, EmbeddingUnavailableError
from rem.search.embedding_validation import dimension_error
from rem.search.thread_pool import BatchThreadPool

if TYPE_CHECKING:
    from rem.search.embedder import Vectors

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


class Encoder(Protocol):
    """A model that a library has loaded."""

    dimension: int

    def encode(self, texts: Sequence[str]) -> Iterable[Any]:
        """Return one row for each text, in the same order."""


class LibraryProvider:
    """A model of a library. It is loaded at its first use and runs in one thread."""

    def __init__(self, model: str, dimension: int, batch_size: int, load: Callable[[], Encoder]) -> None:
        self.model = model
        self.dimension = dimension
        self._batch_size = batch_size
        self._load = load
        self._pool: BatchThreadPool[range] = BatchThreadPool(1)
        self._loading = threading.Lock()
        self._encoder: Encoder | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in the same order."""
        import numpy as np

        rows = np.empty((len(texts), self.dimension), dtype=np.float32)

        def embed_batch(batch: range) -> None:
            rows[batch.start : batch.stop] = self._encode([texts[position] for position in batch])

        positions = range(len(texts))
        batches = [positions[start : start + self._batch_size] for start in positions[:: self._batch_size]]
        await self._pool.run(embed_batch, batches)
        return rows

    async def close(self) -> None:
        """Release the thread and the model."""
        await self._pool.close()
        self._encoder = None

    def _encode(self, texts: list[str]) -> Any:
        import numpy as np

        encoder = self._load_once()
        try:
            rows = np.asarray(list(encoder.encode(texts)), dtype=np.float32)
        except Exception as error:  # libraries raise anything
            raise EmbeddingUnavailableError(f"{self.model} failed: {error}") from error
        if rows.shape != (len(texts), self.dimension):
            raise EmbeddingUnavailableError(f"{self.model} answered with {rows.shape} numbers for {len(texts)} texts.")
        return rows

    def _load_once(self) -> Encoder:
        with self._loading:
            if self._encoder is None:
                try:
                    encoder = self._load()
                except EmbeddingError:
                    raise
                except Exception as error:  # libraries raise anything
                    raise EmbeddingUnavailableError(
                        f"{self.model} cannot be loaded: {error}. Check EMBEDDING__MODEL; without access to its hub, "
                        "set EMBEDDING__MODEL_PATH to a folder that holds the model."
                    ) from error
                if encoder.dimension != self.dimension:
                    raise dimension_error(self.model, encoder.dimension, self.dimension)
                self._encoder = encoder
            return self._encoder


class FastembedEncoder:
    """fastembed's TextEmbedding. It stores downloads under REM_HOME/models."""

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
        """Return one row for each text, in the same order."""
        return self._text_embedding.embed(texts, batch_size=len(texts))


class SentenceTransformersEncoder:
    """A SentenceTransformer on the CPU."""

    def __init__(self, model: str, path: Path | None) -> None:
        from sentence_transformers import SentenceTransformer

        self._transformer = SentenceTransformer(str(path) if path else model, device="cpu")
        # The method was renamed in version 5.4, and the old name warns since then.
        get_dimension = getattr(self._transformer, "get_embedding_dimension", None)
        self.dimension = int((get_dimension or self._transformer.get_sentence_embedding_dimension)())

    def encode(self, texts: Sequence[str]) -> Iterable[Any]:
        """Return one unit vector for each text, in the same order."""
        rows: Iterable[Any] = self._transformer.encode(
            list(texts), batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
        )
        return rows


def require_library(package: str, extra: str) -> None:
    """Raise `EmbeddingMisconfiguredError` if a library is not installed."""
    if find_spec(package) is None:
        raise EmbeddingMisconfiguredError(
            f"EMBEDDING__PROVIDER={extra} needs {package}, which is not installed: pip install 'remstack[{extra}]', "
            "or choose another provider (`local` needs no package)."
        )
