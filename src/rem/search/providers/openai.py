"""Provider for OpenAI, or any server with a compatible `/embeddings` route."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rem.errors import EmbeddingUnavailableError
from rem.search.embedding_validation import parse_vectors
from rem.search.providers.http_service import HttpService, RequestRejectedError

if TYPE_CHECKING:
    from rem.search.embedder import Vectors

DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "text-embedding-3-small"

NATIVE_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
MAX_TEXT_BYTES = 32_000
"""OpenAI accepts 8,192 tokens for each text. A token has about four bytes."""
MAX_REQUEST_BYTES = 500_000
"""OpenAI accepts 300,000 tokens for each request. A token rarely has fewer than two bytes."""
MIN_TEXT_BYTES = 500
"""A text that is too long is halved until it would be shorter than this."""
TOO_LONG_PATTERN = re.compile(
    r"context|too (long|large|many tokens)|(maximum|max)\b.{0,200}(token|length|size)|exceed", re.IGNORECASE
)
NO_DIMENSIONS_PATTERN = re.compile(r"dimension|matryoshka|extra (inputs|fields)|unexpected|unrecognized", re.IGNORECASE)


class OpenAIProvider:
    """The service, called in batches that are bounded by count and size. Texts that are too long are truncated."""

    def __init__(self, service: HttpService, model: str, dimension: int, batch_size: int) -> None:
        self.model = model
        self.dimension = dimension
        self._service = service
        self._batch_size = batch_size
        self._sends_dimensions = NATIVE_DIMENSIONS.get(model) != dimension

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in the same order."""
        rows: list[Any] = []
        for batch in _split_into_batches(texts, self._batch_size):
            rows += await self._embed_batch(batch)
        return parse_vectors(rows, self.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    async def _embed_batch(self, texts: Sequence[str]) -> list[Any]:
        """Return the rows of one batch. A rejected request is repeated without `dimensions`, or with shorter texts."""
        max_bytes = MAX_TEXT_BYTES
        while True:
            try:
                return await self._request([_truncate(text, max_bytes) for text in texts])
            except RequestRejectedError as error:
                if self._sends_dimensions and NO_DIMENSIONS_PATTERN.search(error.reason):
                    self._sends_dimensions = False
                elif max_bytes > MIN_TEXT_BYTES and TOO_LONG_PATTERN.search(error.reason):
                    max_bytes = min(max_bytes, max(len(text.encode()) for text in texts)) // 2
                else:
                    raise

    async def _request(self, texts: list[str]) -> list[Any]:
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self._sends_dimensions:
            body["dimensions"] = self.dimension
        answer = await self._service.post("/embeddings", body)
        try:
            rows = {item["index"]: item["embedding"] for item in answer["data"]}
            return [rows[number] for number in range(max(len(texts), len(answer["data"])))]
        except (KeyError, TypeError) as error:
            raise EmbeddingUnavailableError(
                f"{self._service.base_url} did not answer with one vector for each of {len(texts)} texts. "
                "Is EMBEDDING__BASE_URL right?"
            ) from error


def _split_into_batches(texts: Sequence[str], batch_size: int) -> Iterator[list[str]]:
    batch: list[str] = []
    batch_bytes = 0
    for text in texts:
        size = min(len(text.encode()), MAX_TEXT_BYTES)
        if batch and (len(batch) == batch_size or batch_bytes + size > MAX_REQUEST_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(text)
        batch_bytes += size
    if batch:
        yield batch


def _truncate(text: str, max_bytes: int) -> str:
    return text.encode()[:max_bytes].decode(errors="ignore") if len(text) > max_bytes // 4 else text
