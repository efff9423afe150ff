"""List the embedding providers, and say which of them can be used here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rem.errors import RemError

if TYPE_CHECKING:
    from rem.settings import Settings


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
    from rem.embeddings.factory import PROVIDERS

    selected = settings.embedding.provider
    statuses = [await _check_provider(settings, provider) for provider in PROVIDERS]
    if selected == "auto" and statuses[0].usable:
        selected = "local"
    return [replace(status, chosen=status.provider == selected) for status in statuses]


async def _check_provider(settings: Settings, provider: str) -> ProviderStatus:
    from rem.embeddings.bundled.files import read_manifest
    from rem.embeddings.factory import open_embedder

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
    is_bundled = embedder.model == read_manifest()["embedder"]
    note = "part of the package" if is_bundled else _provider_notes(settings).get(provider, "")
    status = ProviderStatus(provider, embedder.model, embedder.dimension, chosen=False, usable=True, note=note)
    await embedder.close()
    return status


def _provider_notes(settings: Settings) -> dict[str, str]:
    from rem.embeddings.minilm.weights import find_weights
    from rem.embeddings.providers import ollama, openai

    base_url = settings.embedding.base_url if settings.embedding.provider in ("ollama", "openai") else None
    download_note = "downloads the model at its first use, unless EMBEDDING__MODEL_PATH is set"
    return {
        "local": f"weights in {find_weights(settings.rem_home)}",
        "fastembed": download_note,
        "sentence-transformers": download_note,
        "ollama": f"not checked: {base_url or ollama.DEFAULT_BASE_URL}",
        "openai": f"not checked: {base_url or openai.DEFAULT_BASE_URL}",
    }
