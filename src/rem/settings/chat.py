"""The groups LLM, MEMORY, CHAT and AGENTS: the model, the history that it is given, and agents."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field, SecretStr, field_validator

from rem.settings.group import SettingsGroup
from rem.settings.search import EmbeddingProviderName

OutputModeSetting: TypeAlias = Literal["auto", "tool", "native", "prompt"]


class LlmSettings(SettingsGroup):
    """The language model. Without one, the memory answers itself (`rem:local`)."""

    default_model: str | None = Field(
        default=None, description="Language model as `provider:name`, such as `openai:gpt-4o`."
    )
    default_temperature: float | None = Field(
        default=None,
        ge=0,
        le=2,
        description=("Temperature, if neither the request nor the agent sets one. Without it, the provider's default."),
    )
    base_url: str | None = Field(
        default=None,
        description=("Address of an OpenAI-compatible server, for `openai:` models and for names without a provider."),
    )
    openai_api_key: SecretStr | None = Field(
        default=None, description="OpenAI API key. `OPENAI_API_KEY` works as well."
    )
    anthropic_api_key: SecretStr | None = Field(
        default=None, description="Anthropic API key. `ANTHROPIC_API_KEY` works as well."
    )
    output_mode: OutputModeSetting = Field(
        default="auto",
        description=(
            "How a model gives a structured answer: `tool` (it calls a tool), `native` (the provider gets the JSON "
            "schema), `prompt` (the prompt asks for JSON), or `auto`, which tries them in this order and remembers "
            "what works. An agent can override this."
        ),
    )
    timeout_seconds: float = Field(
        default=60.0, gt=0, description="Maximum time until the first chunk of an answer, and between two chunks."
    )
    answer_seconds: float = Field(
        default=600.0, gt=0, description="Maximum time for one answer, including tools and child agents."
    )
    max_retries: int = Field(default=2, ge=0, le=10, description="Number of retries after a temporary failure.")
    request_limit: int = Field(
        default=25, ge=1, le=1000, description="Maximum number of model calls in one answer, including child agents."
    )
    total_tokens_limit: int | None = Field(
        default=None, ge=1, description="Maximum number of tokens in one answer, including child agents."
    )


class RagSettings(SettingsGroup):
    """Recall: REM adds relevant messages from earlier sessions before the question."""

    enabled: bool = Field(
        default=False, description="Add earlier messages to each question. An agent can override this."
    )
    top_k: int = Field(default=5, ge=1, le=50, description="Maximum number of earlier messages.")
    min_similarity: float = Field(
        default=0.3, ge=0, le=1, description="Minimum similarity of an earlier message, from 0 to 1."
    )
    max_tokens: int = Field(
        default=1024, ge=50, le=100_000, description="Maximum number of tokens of all earlier messages."
    )


class VectorStoreSettings(SettingsGroup):
    """The vectors of messages and texts. These names set the group EMBEDDING, unless that sets the same itself."""

    enabled: bool = Field(
        default=True,
        description="Search by meaning. With `false`, search uses words only, as `EMBEDDING__PROVIDER=none`.",
    )
    embedding_provider: EmbeddingProviderName | None = Field(
        default=None, description="The same as `EMBEDDING__PROVIDER`."
    )
    embedding_model: str | None = Field(default=None, description="The same as `EMBEDDING__MODEL`.")


class MemorySettings(SettingsGroup):
    """Sessions, and the chat history that REM sends to the model ([guide](sessions.md))."""

    enabled: bool = Field(
        default=True,
        description=(
            "Store chats in sessions, and give the model their history. With `false`, chat stores nothing; agents "
            "still search what is in memory, and all other functions work."
        ),
    )
    storage_path: Path | None = Field(
        default=None, description="Folder of the embedded server's data. Without it, `REM_HOME`."
    )
    strategy: Literal["simple", "summarization", "hybrid"] = Field(
        default="simple", description="Rule that selects the history of a long session."
    )
    max_history_tokens: int = Field(
        default=4096, ge=100, le=2_000_000, description="Maximum number of tokens of the history."
    )
    auto_prune_days: int | None = Field(
        default=None,
        ge=1,
        description="Delete sessions after this many days without a new message. Without it, REM keeps them.",
    )
    vector_store: VectorStoreSettings = VectorStoreSettings()
    rag: RagSettings = RagSettings()

    @field_validator("storage_path")
    @classmethod
    def _refuse_file(cls, value: Path | None) -> Path | None:
        path = value.expanduser().absolute() if value else None
        if path is not None and path.is_file():
            raise ValueError(
                f"{path} is a file, and REM needs a folder. If it holds sessions of SQLite, leave storage_path out and "
                "run `rem sessions import` with this file"
            )
        return path


class ChatSettings(SettingsGroup):
    """Information about the user that the model is given."""

    auto_inject_user_context: bool = Field(
        default=False, description="Give the model the user's profile, instead of the instruction to look it up."
    )


class AgentsSettings(SettingsGroup):
    """Your own agents ([guide](agents.md))."""

    path: Path | None = Field(
        default=None, description="Folder with agents in YAML. Without it, the folder `agents` in `REM_HOME`."
    )
    evaluators_path: Path | None = Field(
        default=None, description="Folder with evaluators in YAML. Without it, the folder `evaluators` in `REM_HOME`."
    )

    @field_validator("path", "evaluators_path")
    @classmethod
    def _make_absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value else None
