"""What an embedder promises, and the one that keeps the promise for every provider."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rem.embeddings.validation import check_vectors, clean_for_embedding, reject_blank_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vector: TypeAlias = "NDArray[np.float32]"
"""One row of `dimension` numbers."""
Vectors: TypeAlias = "NDArray[np.float32]"
"""One row per text."""

_LONGEST_CACHED_TEXT = 2_000


class EmbeddingProvider(Protocol):
    """Where vectors come from. It is asked for at least one text, none of them blank and none twice."""

    @property
    def model(self) -> str:
        """What is recorded with the data: vectors of equal models can be compared."""

    @property
    def dimension(self) -> int:
        """How long a vector is."""

    async def vectors(self, texts: Sequence[str]) -> Vectors:
        """One row per text, in their order."""

    async def close(self) -> None:
        """Give back connections and threads."""


class Embedder(Protocol):
    """Texts to vectors. A failure is an `EmbeddingError`, never a zero or made-up vector."""

    @property
    def model(self) -> str:
        """What is recorded with the data: vectors of equal models can be compared."""

    @property
    def dimension(self) -> int:
        """How long a vector is."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One float32 row per text, in their order; `InvalidInputError` if a text is blank (see `is_blank`)."""

    async def embed_one(self, text: str) -> Vector:
        """The vector of one text, read-only; those of recent short texts are remembered, for queries."""

    async def close(self) -> None:
        """Give back connections and threads."""


class ProviderEmbedder:
    """An embedder over a provider: it refuses blank texts, asks once per text, and checks every answer."""

    def __init__(self, provider: EmbeddingProvider, cache_size: int) -> None:
        self._provider = provider
        self._cache_size = cache_size
        self._recent: OrderedDict[str, Vector] = OrderedDict()

    @property
    def model(self) -> str:
        """The provider's model."""
        return self._provider.model

    @property
    def dimension(self) -> int:
        """The provider's dimension."""
        return self._provider.dimension

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text, in their order."""
        import numpy as np

        reject_blank_texts(texts)
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        cleaned = [clean_for_embedding(text) for text in texts]
        places = {text: place for place, text in enumerate(dict.fromkeys(cleaned))}
        answer = await self._provider.vectors(list(places))
        rows = check_vectors(answer, count=len(places), dimension=self.dimension, model=self.model)
        return rows if len(places) == len(texts) else rows[[places[text] for text in cleaned]]

    async def embed_one(self, text: str) -> Vector:
        """The vector of one text."""
        vector = self._recent.get(text)
        if vector is None:
            vector = (await self.embed([text]))[0]
            vector.flags.writeable = False
            self._remember(text, vector)
        else:
            self._recent.move_to_end(text)
        return vector

    def _remember(self, text: str, vector: Vector) -> None:
        if len(text) > _LONGEST_CACHED_TEXT:
            return
        self._recent[text] = vector
        while len(self._recent) > self._cache_size:
            self._recent.popitem(last=False)

    async def close(self) -> None:
        """Give back connections and threads."""
        await self._provider.close()
