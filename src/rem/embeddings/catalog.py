"""Which providers can be used here, and what the others lack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

from rem.errors import RemError

if TYPE_CHECKING:
    from rem.settings import Settings


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """A provider under the current settings. Services are not called: usable means that nothing is missing here."""

    provider: str
    model: str
    dimension: int
    chosen: bool
    usable: bool
    note: str


async def list_providers(settings: Settings) -> list[ProviderStatus]:
    """Every provider, the chosen one marked."""
    from rem.settings import EmbeddingSettings

    chosen = settings.embedding.provider
    providers = get_args(EmbeddingSettings.model_fields["provider"].annotation)
    found = [await _offer(settings, provider) for provider in providers if provider not in ("auto", "none")]
    effective = "local" if chosen == "auto" and found[0].usable else chosen
    return [replace(offer, chosen=offer.provider == effective) for offer in found]


async def _offer(settings: Settings, provider: str) -> ProviderStatus:
    from rem.embeddings.factory import open_embedder

    wanted = settings.embedding
    # Model, address and key are those of the chosen provider; the others are shown with their defaults.
    own = wanted.provider in (provider, "auto" if provider == "local" else provider)
    changes: dict[str, object] = {"provider": provider}
    if not own:
        changes |= {"model": None, "model_path": None, "base_url": None, "api_key": None}
    trial = settings.model_copy(update={"embedding": wanted.model_copy(update=changes)})
    try:
        embedder = open_embedder(trial)
    except RemError as error:
        return ProviderStatus(provider, "", wanted.dimension, chosen=False, usable=False, note=str(error))
    note = _notes(settings).get(provider, "")
    offer = ProviderStatus(provider, embedder.model, embedder.dimension, chosen=False, usable=True, note=note)
    await embedder.close()
    return offer


def _notes(settings: Settings) -> dict[str, str]:
    from rem.embeddings.minilm.weights import find_weights
    from rem.embeddings.providers import ollama, openai

    address = settings.embedding.base_url if settings.embedding.provider in ("ollama", "openai") else None
    hub = "downloads the model at its first use, unless EMBEDDING__MODEL_PATH is set"
    return {
        "local": f"weights in {find_weights(settings.rem_home)}",
        "fastembed": hub,
        "sentence-transformers": hub,
        "ollama": f"not asked: {address or ollama.DEFAULT_BASE_URL}",
        "openai": f"not asked: {address or openai.DEFAULT_BASE_URL}",
    }
