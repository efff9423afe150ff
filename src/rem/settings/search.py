"""The groups EMBEDDING, SEARCH and RERANKER: how texts are found."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field, SecretStr, field_validator

from rem.settings.group import SettingsGroup

EmbeddingProviderName: TypeAlias = Literal[
    "auto", "local", "fastembed", "sentence-transformers", "ollama", "openai", "none"
]


class EmbeddingSettings(SettingsGroup):
    """The embedder, which turns texts into vectors ([guide](embeddings.md))."""

    provider: EmbeddingProviderName = Field(
        default="auto",
        description="Source of the vectors. `auto` means `local`.",
    )
    model: str | None = Field(default=None, description="Model name. Without it, the default model of the provider.")
    model_path: Path | None = Field(
        default=None,
        description="Folder with the model for `fastembed` or `sentence-transformers`, instead of a download.",
    )
    dimension: int = Field(default=384, ge=1, le=4000, description="Length of the vectors.")
    base_url: str | None = Field(
        default=None, description="Address of the Ollama server or of an OpenAI-compatible server."
    )
    api_key: SecretStr | None = Field(default=None, description="API key of the embedding service.")
    batch_size: int = Field(
        default=64, ge=1, le=2048, description="Number of texts in one call of the model or the service."
    )
    threads: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Threads of a model that runs in the process. 0 means one for each CPU, up to 4.",
    )
    timeout_seconds: float = Field(default=30.0, gt=0, description="Maximum time for one call of the service.")
    max_retries: int = Field(default=4, ge=0, le=20, description="Number of retries after a temporary failure.")
    cache_size: int = Field(default=1024, ge=0, description="Number of recent queries whose vectors are cached.")


class SearchSettings(SettingsGroup):
    """Full-text search."""

    language: str = Field(
        default="english",
        pattern=r"^[a-z_]{1,63}$",
        description=(
            "PostgreSQL text search configuration that stems words. `metadata.language` of a row overrides it."
        ),
    )


class RerankerSettings(SettingsGroup):
    """The cross-encoder that reranks search hits ([guide](reranking.md))."""

    enabled: bool | None = Field(
        default=None,
        description=(
            "`true` reranks the hits of SEARCH and the rows of answers to plain questions, `false` nothing. Not set: "
            "answers, and with a model of your own SEARCH too."
        ),
    )
    model_path: Path | None = Field(
        default=None, description="Folder with an exported cross-encoder, instead of REM's own one."
    )
    candidates: int = Field(default=20, ge=1, le=200, description="Number of best rows that are reranked.")
    weight: float = Field(
        default=0.01, ge=0, le=10, description="Factor of the model's logit, which is added to the score of a hit."
    )
    answer_weight: float = Field(
        default=0.06,
        ge=0,
        le=10,
        description="The same for answers to plain questions. 0 answers without the reranker.",
    )
    threads: int = Field(
        default=0, ge=0, le=256, description="Threads of the reranker. 0 means one for each CPU, up to 4."
    )

    @property
    def reranks_search(self) -> bool:
        """Whether the hits of SEARCH are reranked."""
        return self.model_path is not None if self.enabled is None else self.enabled

    @field_validator("model_path")
    @classmethod
    def _make_absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value else None
