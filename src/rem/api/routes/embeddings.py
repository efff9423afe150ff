"""`POST /embeddings`: turn texts into vectors with the configured embedding model, by OpenAI's protocol."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from rem.api.caller_turns import CallerTurns
from rem.api.dependencies import JsonBody, RemDep, ScopeDep
from rem.api.disconnect import cancel_on_disconnect
from rem.api.openapi_errors import error_responses
from rem.api.rate_limit import find_proven_caller
from rem.errors import InvalidInputError, ModelNotFoundError
from rem.search.embedder import Embedder, Vector
from rem.sessions.tokens import count_tokens

router = APIRouter(tags=["models"])
MAX_TEXTS = 256
"""More texts at once would keep the other callers of the embedder waiting."""
MAX_TEXT_CHARS = 40_000
BATCH_TEXTS = 32
DEFAULT_NAMES = ("rem", "default")


class EmbeddingsRequest(BaseModel):
    """Texts to turn into vectors."""

    input: (
        Annotated[str, Field(max_length=MAX_TEXT_CHARS)]
        | Annotated[list[Annotated[str, Field(max_length=MAX_TEXT_CHARS)]], Field(min_length=1, max_length=MAX_TEXTS)]
    ) = Field(description="a text, or a list of texts; tokens are not accepted")
    model: str = Field(default="rem", max_length=200, description="`rem`: the configured model")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1, description="if given, it must be the model's own")
    user: str | None = None

    @property
    def texts(self) -> list[str]:
        """Return the texts as a list."""
        return [self.input] if isinstance(self.input, str) else self.input


class EmbeddingObject(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    """The number of tokens of the texts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingsUsage


@router.post(
    "/embeddings", dependencies=[JsonBody], responses=error_responses(404, 502), operation_id="create_embeddings"
)
async def create_embeddings(request: Request, body: EmbeddingsRequest, rem: RemDep, scope: ScopeDep) -> EmbeddingList:
    """Return the vector of each text. Nothing is stored."""
    embedder = rem.embedder
    if body.model not in (*DEFAULT_NAMES, embedder.model):
        raise ModelNotFoundError(f"There is no embedding model {body.model!r}: use rem or {embedder.model}.")
    if body.dimensions not in (None, embedder.dimension):
        raise InvalidInputError(f"dimensions: the vectors of {embedder.model} have {embedder.dimension}.")
    texts = body.texts
    vectors = await cancel_on_disconnect(request, _embed_in_turn(request, embedder, texts))
    tokens = await asyncio.to_thread(lambda: sum(map(count_tokens, texts)))
    return EmbeddingList(
        data=[
            EmbeddingObject(index=index, embedding=_encode(vector, body.encoding_format))
            for index, vector in enumerate(vectors)
        ],
        model=embedder.model,
        usage=EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


async def _embed_in_turn(request: Request, embedder: Embedder, texts: Sequence[str]) -> Sequence[Vector]:
    """Embed texts while no other request of the caller does: the searches of others wait for the same threads."""
    turns: CallerTurns = request.app.state.embedding_turns
    vectors: list[Vector] = []
    async with turns.of(find_proven_caller(request.scope)):
        for start in range(0, len(texts), BATCH_TEXTS):
            vectors += list(await embedder.embed(texts[start : start + BATCH_TEXTS]))
    return vectors


def _encode(vector: Vector, encoding: Literal["float", "base64"]) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    values: list[float] = vector.tolist()
    return values
