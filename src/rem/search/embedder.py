"""The protocols of embedders and providers, and the embedder that works with every provider."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rem.search.embedding_validation import check_vectors, reject_blank_texts
from rem.text import clean_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vector: TypeAlias = "NDArray[np.float32]"
"""One row of `dimension` numbers."""
Vectors: TypeAlias = "NDArray[np.float32]"
"""One row for each text."""

MAX_CACHED_TEXT_CHARS = 2_000
"""Queries are shorter. Longer texts are documents, which are embedded once."""


class EmbeddingProvider(Protocol):
    """A source of vectors. It is called with at least one text, without blank texts and without repetitions."""

    @property
    def model(self) -> str:
        """The name that is stored with the data. Vectors of the same model can be compared."""

    @property
    def dimension(self) -> int:
        """The length of a vector."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in the same order."""

    async def close(self) -> None:
        """Release connections and threads."""


class Embedder(Protocol):
    """Turns texts into vectors. A failure raises an `EmbeddingError`; it never gives a zero or invented vector."""

    @property
    def model(self) -> str:
        """The name that is stored with the data. Vectors of the same model can be compared."""

    @property
    def dimension(self) -> int:
        """The length of a vector."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one float32 row for each text, in the same order. Raise `InvalidInputError` for a blank text."""

    async def embed_one(self, text: str) -> Vector:
        """Return the read-only vector of one text. The vectors of recent short texts are cached, for queries."""

    async def close(self) -> None:
        """Release connections and threads."""


class ProviderEmbedder:
    """An embedder on top of a provider: rejects blank texts, removes repetitions, and checks every vector."""

    def __init__(self, provider: EmbeddingProvider, cache_size: int) -> None:
        self._provider = provider
        self._cache_size = cache_size
        self._cache: OrderedDict[str, Vector] = OrderedDict()

    @property
    def model(self) -> str:
        """The provider's model."""
        return self._provider.model

    @property
    def dimension(self) -> int:
        """The provider's dimension."""
        return self._provider.dimension

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in the same order."""
        import numpy as np

        reject_blank_texts(texts)
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        cleaned = [clean_text(text, " ") for text in texts]
        row_numbers = {text: number for number, text in enumerate(dict.fromkeys(cleaned))}
        rows = await self._provider.embed(list(row_numbers))
        rows = check_vectors(rows, count=len(row_numbers), dimension=self.dimension, model=self.model)
        return rows if len(row_numbers) == len(texts) else rows[[row_numbers[text] for text in cleaned]]

    async def embed_one(self, text: str) -> Vector:
        """Return the vector of one text."""
        vector = self._cache.get(text)
        if vector is None:
            vector = (await self.embed([text]))[0]
            vector.flags.writeable = False
            self._add_to_cache(text, vector)
        else:
            self._cache.move_to_end(text)
        return vector

    def _add_to_cache(self, text: str, vector: Vector) -> None:
        if len(text) > MAX_CACHED_TEXT_CHARS:
            return
        self._cache[text] = vector
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)

    async def close(self) -> None:
        """Release connections and threads."""
        await self._provider.close()
