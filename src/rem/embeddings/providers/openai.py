"""Vectors from OpenAI or any server with a compatible `/embeddings`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rem.embeddings.providers.http_service import HttpService, RefusedError
from rem.embeddings.validation import parse_vectors
from rem.errors import EmbeddingUnavailableError

if TYPE_CHECKING:
    from rem.embeddings.embedder import Vectors

DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "text-embedding-3-small"

_NATIVE_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
# OpenAI takes 8,192 tokens per text and 300,000 per request; a token is about four bytes, and rarely under two.
_LONGEST_TEXT_BYTES = 32_000
_REQUEST_BYTES = 500_000
_SHORTEST_CUT_BYTES = 500
_TOO_LONG = re.compile(
    r"context|too (long|large|many tokens)|(maximum|max)\b.*(token|length|size)|exceed", re.IGNORECASE
)
_NO_DIMENSIONS = re.compile(r"dimension|matryoshka|extra (inputs|fields)|unexpected|unrecognized", re.IGNORECASE)


class OpenAIProvider:
    """The service, asked in batches by count and size. Texts longer than the model takes are cut at their end."""

    def __init__(self, service: HttpService, model: str, dimension: int, batch_size: int) -> None:
        self.model = model
        self.dimension = dimension
        self._service = service
        self._batch_size = batch_size
        self._sends_dimensions = _NATIVE_DIMENSIONS.get(model) != dimension
        self._longest_bytes = _LONGEST_TEXT_BYTES

    async def vectors(self, texts: Sequence[str]) -> Vectors:
        """One row per text."""
        rows: list[Any] = []
        for batch in _batches(texts, self._batch_size):
            rows += await self._rows(batch)
        return parse_vectors(rows, self.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    async def _rows(self, texts: Sequence[str]) -> list[Any]:
        """The rows of one batch; what the service cannot do is asked again in a form that it can."""
        longest = self._longest_bytes
        while True:
            try:
                return await self._ask([_cut(text, longest) for text in texts])
            except RefusedError as error:
                if self._sends_dimensions and _NO_DIMENSIONS.search(error.reason):
                    self._sends_dimensions = False
                elif longest > _SHORTEST_CUT_BYTES and _TOO_LONG.search(error.reason):
                    longest = min(longest, max(len(text.encode()) for text in texts)) // 2
                else:
                    raise

    async def _ask(self, texts: list[str]) -> list[Any]:
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


def _batches(texts: Sequence[str], batch_size: int) -> Iterator[list[str]]:
    batch: list[str] = []
    filled = 0
    for text in texts:
        size = min(len(text.encode()), _LONGEST_TEXT_BYTES)
        if batch and (len(batch) == batch_size or filled + size > _REQUEST_BYTES):
            yield batch
            batch, filled = [], 0
        batch.append(text)
        filled += size
    if batch:
        yield batch


def _cut(text: str, longest_bytes: int) -> str:
    return text.encode()[:longest_bytes].decode(errors="ignore") if len(text) > longest_bytes // 4 else text
