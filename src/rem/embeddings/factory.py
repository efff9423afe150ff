"""Which embedder the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rem.embeddings.embedder import Embedder, EmbeddingProvider, ProviderEmbedder
from rem.embeddings.thread_pool import thread_count
from rem.errors import EmbeddingDisabledError, EmbeddingError, EmbeddingMisconfiguredError

if TYPE_CHECKING:
    from rem.embeddings.embedder import Vector, Vectors
    from rem.embeddings.providers.http_service import HttpService
    from rem.settings import EmbeddingSettings, Settings

_NO_WEIGHTS = (
    "The weights of the local embedding model are not there. Run `rem models pull`, or choose another "
    "EMBEDDING__PROVIDER."
)
_OFF = "Embeddings are off (EMBEDDING__PROVIDER=none), so search goes by words alone."


class UnavailableEmbedder:
    """Stands where an embedder would: every call says why there is none, and what to do."""

    model = "none"

    def __init__(self, dimension: int, error: EmbeddingError) -> None:
        self.dimension = dimension
        self.error = error

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Refuse."""
        raise self.error

    async def embed_one(self, text: str) -> Vector:
        """Refuse."""
        raise self.error

    async def close(self) -> None:
        """Nothing to close."""


def open_embedder(settings: Settings) -> Embedder:
    """The embedder that the settings ask for. Cheap: models are loaded and services called at the first text."""
    chosen = settings.embedding.provider
    if chosen == "none":
        return UnavailableEmbedder(settings.embedding.dimension, EmbeddingDisabledError(_OFF))
    if chosen == "auto":
        from rem.embeddings.minilm.weights import find_weights

        if find_weights(settings.rem_home) is None:
            return UnavailableEmbedder(settings.embedding.dimension, EmbeddingDisabledError(_NO_WEIGHTS))
        chosen = "local"
    return ProviderEmbedder(_PROVIDERS[chosen](settings), settings.embedding.cache_size)


def try_open_embedder(settings: Settings) -> Embedder:
    """The same, but settings that cannot work are an error only when something is to be embedded."""
    try:
        return open_embedder(settings)
    except EmbeddingMisconfiguredError as error:
        return UnavailableEmbedder(settings.embedding.dimension, error)


def _local(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.minilm.weights import DIMENSION, MODEL, find_weights
    from rem.embeddings.providers.local import LocalProvider
    from rem.embeddings.validation import dimension_error

    wanted = settings.embedding
    if wanted.model not in (None, MODEL, MODEL.rpartition("/")[2]):
        raise EmbeddingMisconfiguredError(
            f"The local provider has one model, {MODEL}, not {wanted.model!r}: unset EMBEDDING__MODEL, "
            "or choose another EMBEDDING__PROVIDER."
        )
    if wanted.dimension != DIMENSION:
        raise dimension_error(MODEL, DIMENSION, wanted.dimension)
    weights = find_weights(settings.rem_home)
    if weights is None:
        raise EmbeddingMisconfiguredError(_NO_WEIGHTS)
    return LocalProvider(settings.rem_home, weights, threads=thread_count(wanted.threads), batch_size=wanted.batch_size)


def _fastembed(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.providers.libraries import DEFAULT_MODEL, FastembedEncoder, LibraryProvider, require_library

    require_library("fastembed", "fastembed")
    wanted = settings.embedding
    model = wanted.model or DEFAULT_MODEL
    return LibraryProvider(
        model,
        wanted.dimension,
        wanted.batch_size,
        lambda: FastembedEncoder(model, wanted.model_path, settings.rem_home, thread_count(wanted.threads)),
    )


def _sentence_transformers(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.providers.libraries import (
        DEFAULT_MODEL,
        LibraryProvider,
        SentenceTransformersEncoder,
        require_library,
    )

    require_library("sentence_transformers", "sentence-transformers")
    wanted = settings.embedding
    model = wanted.model or DEFAULT_MODEL
    return LibraryProvider(
        model, wanted.dimension, wanted.batch_size, lambda: SentenceTransformersEncoder(model, wanted.model_path)
    )


def _ollama(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.providers.ollama import DEFAULT_BASE_URL, DEFAULT_MODEL, OllamaProvider

    wanted = settings.embedding
    service = _service(wanted, wanted.base_url or DEFAULT_BASE_URL)
    return OllamaProvider(service, wanted.model or DEFAULT_MODEL, wanted.dimension, wanted.batch_size)


def _openai(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.providers.openai import DEFAULT_BASE_URL, DEFAULT_MODEL, OpenAIProvider

    wanted = settings.embedding
    if not wanted.api_key and not wanted.base_url:
        raise EmbeddingMisconfiguredError(
            "EMBEDDING__PROVIDER=openai needs EMBEDDING__API_KEY, or EMBEDDING__BASE_URL of a server that needs no key."
        )
    service = _service(wanted, wanted.base_url or DEFAULT_BASE_URL)
    return OpenAIProvider(service, wanted.model or DEFAULT_MODEL, wanted.dimension, wanted.batch_size)


def _service(wanted: EmbeddingSettings, base_url: str) -> HttpService:
    from rem.embeddings.providers.http_service import HttpService, RetryPolicy

    headers = {"Authorization": f"Bearer {wanted.api_key.get_secret_value()}"} if wanted.api_key else {}
    return HttpService(base_url, headers, RetryPolicy(wanted.max_retries, wanted.timeout_seconds))


_PROVIDERS: dict[str, Callable[[Settings], EmbeddingProvider]] = {
    "local": _local,
    "fastembed": _fastembed,
    "sentence-transformers": _sentence_transformers,
    "ollama": _ollama,
    "openai": _openai,
}
