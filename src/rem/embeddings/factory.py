"""Open the embedder that the settings select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rem.embeddings.embedder import Embedder, EmbeddingProvider, ProviderEmbedder
from rem.embeddings.thread_pool import thread_count
from rem.errors import EmbeddingDisabledError, EmbeddingError, EmbeddingMisconfiguredError

if TYPE_CHECKING:
    from rem.embeddings.embedder import Vector, Vectors
    from rem.embeddings.providers.http_service import HttpService
    from rem.embeddings.providers.local import LocalModel
    from rem.settings import EmbeddingSettings, Settings

MISSING_WEIGHTS_MESSAGE = (
    "The weights of all-MiniLM-L6-v2 are missing. Run `rem models pull`, or unset EMBEDDING__MODEL to use the model of "
    "the package."
)
DISABLED_MESSAGE = "Embeddings are disabled (EMBEDDING__PROVIDER=none), so search uses words only."


class UnavailableEmbedder:
    """The embedder of an installation that has none. Every call raises the error that says why and what to do."""

    model = "none"

    def __init__(self, dimension: int, error: EmbeddingError) -> None:
        self.dimension = dimension
        self.error = error

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Raise the error."""
        raise self.error

    async def embed_one(self, text: str) -> Vector:
        """Raise the error."""
        raise self.error

    async def close(self) -> None:
        """Do nothing."""


def open_embedder(settings: Settings) -> Embedder:
    """Return the embedder that the settings select. Raise `EmbeddingMisconfiguredError` if it cannot work.

    This is fast: models are loaded and services are called at the first text.
    """
    provider = settings.embedding.provider
    if provider == "none":
        return UnavailableEmbedder(settings.embedding.dimension, EmbeddingDisabledError(DISABLED_MESSAGE))
    if provider == "auto":
        provider = "local"
    return ProviderEmbedder(PROVIDERS[provider](settings), settings.embedding.cache_size)


def try_open_embedder(settings: Settings) -> Embedder:
    """Return the embedder that the settings select. If it cannot work, the error is raised at the first text."""
    try:
        return open_embedder(settings)
    except EmbeddingMisconfiguredError as error:
        return UnavailableEmbedder(settings.embedding.dimension, error)


def _open_local(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.minilm.weights import DIMENSION
    from rem.embeddings.providers.local import LocalProvider
    from rem.embeddings.validation import dimension_error

    options = settings.embedding
    model = _choose_local_model(settings)
    if options.dimension != DIMENSION:
        raise dimension_error(model.name, DIMENSION, options.dimension)
    return LocalProvider(model, threads=thread_count(options.threads), batch_size=options.batch_size)


def keep_recorded_model(settings: Settings, recorded: str) -> Settings:
    """Return the settings with the model that made the vectors of a database, where they name none.

    Databases of earlier releases have vectors of MiniLM. They keep it as long as its weights are here.
    """
    from rem.embeddings.minilm.weights import MODEL, find_weights

    options = settings.embedding
    if options.provider not in ("auto", "local") or options.model or recorded != MODEL:
        return settings
    if find_weights(settings.rem_home) is None:
        return settings
    return settings.model_copy(update={"embedding": options.model_copy(update={"model": recorded})})


def _choose_local_model(settings: Settings) -> LocalModel:
    """Return the local model of the settings: by default the bundled one."""
    from rem.embeddings.bundled.model import MODEL as BUNDLED
    from rem.embeddings.bundled.model import BundledModel
    from rem.embeddings.minilm.model import MiniLM
    from rem.embeddings.minilm.weights import MODEL, find_weights

    wanted = settings.embedding.model
    if wanted not in (None, BUNDLED, MODEL, MODEL.rpartition("/")[2]):
        raise EmbeddingMisconfiguredError(
            f"The local provider has the models {MODEL} and {BUNDLED}, not {wanted!r}: unset EMBEDDING__MODEL, "
            "or choose another EMBEDDING__PROVIDER."
        )
    if wanted in (None, BUNDLED):
        return BundledModel()
    weights = find_weights(settings.rem_home)
    if weights is None:
        raise EmbeddingMisconfiguredError(MISSING_WEIGHTS_MESSAGE)
    return MiniLM(settings.rem_home, weights)


def _open_fastembed(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.providers.libraries import DEFAULT_MODEL, FastembedEncoder, LibraryProvider, require_library

    require_library("fastembed", "fastembed")
    options = settings.embedding
    model = options.model or DEFAULT_MODEL
    return LibraryProvider(
        model,
        options.dimension,
        options.batch_size,
        lambda: FastembedEncoder(model, options.model_path, settings.rem_home, thread_count(options.threads)),
    )


def _open_sentence_transformers(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.providers.libraries import (
        DEFAULT_MODEL,
        LibraryProvider,
        SentenceTransformersEncoder,
        require_library,
    )

    require_library("sentence_transformers", "sentence-transformers")
    options = settings.embedding
    model = options.model or DEFAULT_MODEL
    return LibraryProvider(
        model, options.dimension, options.batch_size, lambda: SentenceTransformersEncoder(model, options.model_path)
    )


def _open_ollama(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.providers.ollama import DEFAULT_BASE_URL, DEFAULT_MODEL, OllamaProvider

    options = settings.embedding
    service = _open_service(options, options.base_url or DEFAULT_BASE_URL)
    return OllamaProvider(service, options.model or DEFAULT_MODEL, options.dimension, options.batch_size)


def _open_openai(settings: Settings) -> EmbeddingProvider:
    from rem.embeddings.providers.openai import DEFAULT_BASE_URL, DEFAULT_MODEL, OpenAIProvider

    options = settings.embedding
    if not options.api_key and not options.base_url:
        raise EmbeddingMisconfiguredError(
            "EMBEDDING__PROVIDER=openai needs EMBEDDING__API_KEY, or EMBEDDING__BASE_URL of a server that needs no key."
        )
    service = _open_service(options, options.base_url or DEFAULT_BASE_URL)
    return OpenAIProvider(service, options.model or DEFAULT_MODEL, options.dimension, options.batch_size)


def _open_service(options: EmbeddingSettings, base_url: str) -> HttpService:
    from rem.embeddings.providers.http_service import HttpService, RetryPolicy

    headers = {"Authorization": f"Bearer {options.api_key.get_secret_value()}"} if options.api_key else {}
    return HttpService(base_url, headers, RetryPolicy(options.max_retries, options.timeout_seconds))


PROVIDERS: dict[str, Callable[[Settings], EmbeddingProvider]] = {
    "local": _open_local,
    "fastembed": _open_fastembed,
    "sentence-transformers": _open_sentence_transformers,
    "ollama": _open_ollama,
    "openai": _open_openai,
}
"""The function that opens each provider. The names are those of `EMBEDDING__PROVIDER`."""
