"""Open the embedder that the settings select, and list the providers that can be used here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rem.errors import EmbeddingDisabledError, EmbeddingError, EmbeddingMisconfiguredError, RemError
from rem.search.embedder import Embedder, EmbeddingProvider, ProviderEmbedder
from rem.search.thread_pool import thread_count

if TYPE_CHECKING:
    from rem.search.embedder import Vector, Vectors
    from rem.search.providers.http_service import HttpService
    from rem.settings import EmbeddingSettings, Settings

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
    from rem.search.embedding_validation import dimension_error
    from rem.search.models.files import DIMENSION, MODEL
    from rem.search.providers.local import LocalProvider

    options = settings.embedding
    if options.model not in (None, MODEL):
        raise EmbeddingMisconfiguredError(
            f"The local provider has the model {MODEL}, not {options.model!r}: unset EMBEDDING__MODEL, or choose "
            "another EMBEDDING__PROVIDER."
        )
    if options.dimension != DIMENSION:
        raise dimension_error(MODEL, DIMENSION, options.dimension)
    return LocalProvider(threads=thread_count(options.threads), batch_size=options.batch_size)


def _open_fastembed(settings: Settings) -> EmbeddingProvider:
    from rem.search.providers.libraries import DEFAULT_MODEL, FastembedEncoder, LibraryProvider, require_library

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
    from rem.search.providers.libraries import (
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
    from rem.search.providers.ollama import DEFAULT_BASE_URL, DEFAULT_MODEL, OllamaProvider

    options = settings.embedding
    service = _open_service(options, options.base_url or DEFAULT_BASE_URL)
    return OllamaProvider(service, options.model or DEFAULT_MODEL, options.dimension, options.batch_size)


def _open_openai(settings: Settings) -> EmbeddingProvider:
    from rem.search.providers.openai import DEFAULT_BASE_URL, DEFAULT_MODEL, OpenAIProvider

    options = settings.embedding
    if not options.api_key and not options.base_url:
        raise EmbeddingMisconfiguredError(
            "EMBEDDING__PROVIDER=openai needs EMBEDDING__API_KEY, or EMBEDDING__BASE_URL of a server that needs no key."
        )
    service = _open_service(options, options.base_url or DEFAULT_BASE_URL)
    return OpenAIProvider(service, options.model or DEFAULT_MODEL, options.dimension, options.batch_size)


def _open_service(options: EmbeddingSettings, base_url: str) -> HttpService:
    from rem.search.providers.http_service import HttpService, RetryPolicy

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


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """A provider under the current settings. `usable` means that nothing is missing here; services are not called."""

    provider: str
    model: str
    dimension: int
    chosen: bool
    usable: bool
    note: str


async def list_providers(settings: Settings) -> list[ProviderStatus]:
    """Return the status of every provider. The one that the settings select has `chosen` set."""
    selected = settings.embedding.provider
    statuses = [await _check_provider(settings, provider) for provider in PROVIDERS]
    if selected == "auto" and statuses[0].usable:
        selected = "local"
    return [replace(status, chosen=status.provider == selected) for status in statuses]


async def _check_provider(settings: Settings, provider: str) -> ProviderStatus:
    options = settings.embedding
    # Model, address and key belong to the selected provider; the others are shown with their defaults.
    is_selected = options.provider in (provider, "auto" if provider == "local" else provider)
    changes: dict[str, object] = {"provider": provider}
    if not is_selected:
        changes |= {"model": None, "model_path": None, "base_url": None, "api_key": None}
    provider_settings = settings.model_copy(update={"embedding": options.model_copy(update=changes)})
    try:
        embedder = open_embedder(provider_settings)
    except RemError as error:
        return ProviderStatus(provider, "", options.dimension, chosen=False, usable=False, note=str(error))
    note = _provider_notes(settings)[provider]
    status = ProviderStatus(provider, embedder.model, embedder.dimension, chosen=False, usable=True, note=note)
    await embedder.close()
    return status


def _provider_notes(settings: Settings) -> dict[str, str]:
    from rem.search.providers import ollama, openai

    base_url = settings.embedding.base_url if settings.embedding.provider in ("ollama", "openai") else None
    download_note = "downloads the model at its first use, unless EMBEDDING__MODEL_PATH is set"
    return {
        "local": "part of the package",
        "fastembed": download_note,
        "sentence-transformers": download_note,
        "ollama": f"not checked: {base_url or ollama.DEFAULT_BASE_URL}",
        "openai": f"not checked: {base_url or openai.DEFAULT_BASE_URL}",
    }
