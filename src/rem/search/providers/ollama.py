"""Provider for an Ollama server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingMisconfiguredError, EmbeddingUnavailableError
from rem.search.embedding_validation import parse_vectors
from rem.search.providers.http_service import HttpService

if TYPE_CHECKING:
    from rem.search.embedder import Vectors

DEFAULT_BASE_URL = "http://127.0.0.1:11434"
DEFAULT_MODEL = "all-minilm"


class OllamaProvider:
    """An Ollama server. It truncates texts that are longer than the model's context."""

    def __init__(self, service: HttpService, model: str, dimension: int, batch_size: int) -> None:
        self.model = model
        self.dimension = dimension
        self._service = service
        self._batch_size = batch_size

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in the same order."""
        rows: list[Any] = []
        for start in range(0, len(texts), self._batch_size):
            rows += await self._request(texts[start : start + self._batch_size])
        return parse_vectors(rows, self.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    async def _request(self, texts: Sequence[str]) -> list[Any]:
        try:
            answer = await self._service.post("/api/embed", {"model": self.model, "input": texts, "truncate": True})
        except EmbeddingMisconfiguredError as error:
            if "not found" in str(error):
                raise EmbeddingMisconfiguredError(f"{error} Fetch it with `ollama pull {self.model}`.") from error
            raise
        rows = answer.get("embeddings") if isinstance(answer, dict) else None
        if not isinstance(rows, list) or len(rows) != len(texts):
            raise EmbeddingUnavailableError(
                f"{self._service.base_url} did not answer with one vector for each of {len(texts)} texts. "
                "Is EMBEDDING__BASE_URL right?"
            )
        return rows
