"""Settings from the environment, an `.env` file and a YAML file: `API__PORT`, `REM_HOME`, …"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from rem.config_file import (
    PROJECT_ENV_FILE,
    PROJECT_FILE,
    find_config_file,
    find_env_file,
    get_group_class,
    read_config_file,
)
from rem.errors import SettingsError

DELIMITER = "__"
"""Joins the names of a group and a setting in the environment."""
MIN_GROUP_SIMILARITY = 0.75
MIN_GENERAL_SIMILARITY = 0.85
"""A variable whose name is this similar to a setting is an error. Less similar ones belong to other programs."""
EmbeddingProviderName: TypeAlias = Literal[
    "auto", "local", "fastembed", "sentence-transformers", "ollama", "openai", "none"
]
LOCAL_ZONE = "local"
"""The name of the machine's own time zone."""
LOCAL_ZONE_FILE = Path("/etc/localtime")

PrivacyAction: TypeAlias = Literal["keep", "mask", "refuse"]


class _Group(BaseModel):
    """Settings with a common prefix. An unknown name is an error, because a typo would silently mean the default."""

    model_config = ConfigDict(extra="forbid")


class PostgresSettings(_Group):
    """The database. Without a connection string, REM starts the embedded server under `REM_HOME`."""

    enabled: bool = Field(
        default=True,
        description=(
            "Use the database. With `false`, chat works without memory and all other functions raise an error."
        ),
    )
    connection_string: SecretStr | None = Field(
        default=None,
        description=(
            "Address of your own PostgreSQL server (15 or later, with pgvector 0.8 and pg_trgm). Without it, "
            "REM uses the embedded server."
        ),
    )
    pool_min_size: int = Field(
        default=1, ge=0, le=100, description="Minimum number of database connections of one process."
    )
    pool_max_size: int = Field(
        default=10, ge=1, le=100, description="Maximum number of database connections of one process."
    )
    connect_timeout_seconds: float = Field(default=10.0, gt=0, description="Maximum time to open a connection.")
    idle_timeout_seconds: float = Field(
        default=1800.0,
        ge=0,
        description="Time without a connection after which the embedded server stops. 0 means never.",
    )
    run_as: str = Field(default="nobody", description="System user of the embedded server when REM runs as root.")
    kv_logged: bool = Field(
        default=False, description="Write the key cache (`kv_store`) to the WAL, so that replicas have it."
    )
    sql_connection_string: SecretStr | None = Field(
        default=None, description="Login for the SQL verb, on servers where REM may not create a role for it."
    )

    @field_validator("connection_string", "sql_connection_string")
    @classmethod
    def _treat_empty_as_unset(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value and value.get_secret_value().strip() else None


class ApiSettings(_Group):
    """The HTTP API (`rem serve`)."""

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    allow_unauthenticated: bool = Field(
        default=False,
        description=(
            "Listen on an address that others can reach although callers need not prove who they are, for example in a "
            "container behind a gateway that does this. The option `--allow-unauthenticated` of `rem serve` does the "
            "same."
        ),
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on.")
    workers: int = Field(default=1, ge=1, le=64, description="Number of server processes.")
    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        default="info", description="Lowest level of log messages that are written."
    )
    reload: bool = Field(default=False, description="Restart the server when the code changes, for development.")
    cors_origins: list[str] = Field(default=[], description="Web origins that may call the API, as a JSON list.")
    allowed_hosts: list[str] = Field(
        default=[],
        description=(
            "Host names with a dot that clients may use, as a JSON list; `*` allows any. IP addresses and "
            "names without a dot are always allowed."
        ),
    )
    trusted_proxies: list[str] = Field(
        default=[],
        description=(
            "Addresses or networks of your reverse proxies, as a JSON list. Only from them REM takes the client's "
            "address (`X-Forwarded-For`) and scheme (`X-Forwarded-Proto`)."
        ),
    )
    body_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Maximum time that REM waits for the body of a request, plus one second for each 10,000 bytes.",
    )
    shutdown_seconds: float = Field(
        default=10.0, gt=0, description="Time that running answers get to finish when the server stops."
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _check_networks(cls, value: list[str]) -> list[str]:
        return [_check_network(text.strip()) for text in value]


def _check_network(text: str) -> str:
    try:
        network = ip_network(text, strict=False)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an IP address or a network such as 10.0.0.0/8") from error
    return str(network) if "/" in text else text


RATE_PERIOD_SECONDS: dict[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
RateText: TypeAlias = Annotated[str, Field(pattern=r"^([1-9][0-9]{0,8} ?/ ?(second|minute|hour|day)|unlimited)$")]


class RateLimitSettings(_Group):
    """Rate limits of the HTTP API: requests per period for each tier, such as `50/minute`; or `unlimited`.

    See the [guide](limits.md).
    """

    enabled: bool | None = Field(
        default=None, description="Limit the requests of each caller. Without a value: as `AUTH__ENABLED`."
    )
    anonymous: RateText = Field(default="50/minute", description="Limit of each address without a login.")
    free: RateText = Field(default="120/minute", description="Limit of each user of the tier `free`.")
    basic: RateText = Field(default="600/minute", description="Limit of each user of the tier `basic`.")
    pro: RateText = Field(default="3000/minute", description="Limit of each user of the tier `pro`.")
    timeout_seconds: float = Field(
        default=2.0,
        gt=0,
        description=(
            "Maximum time that a request waits for its counter in the database. After that each server process counts "
            "by itself for a while."
        ),
    )


class AuditSettings(_Group):
    """The audit log ([guide](administration.md))."""

    enabled: bool | None = Field(
        default=None, description="Log who read, wrote and deleted what. Without a value: as `AUTH__ENABLED`."
    )
    retention_days: int | None = Field(
        default=365, ge=1, le=36_500, description="Age at which entries are deleted; `null` in the YAML file: never."
    )


class EmbeddingSettings(_Group):
    """The embedder, which turns texts into vectors ([guide](embeddings.md))."""

    provider: EmbeddingProviderName = Field(
        default="auto",
        description=("Source of the vectors. `auto` means `local` if its weights are installed, otherwise `none`."),
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


class SearchSettings(_Group):
    """Full-text search."""

    language: str = Field(
        default="english",
        pattern=r"^[a-z_]{1,63}$",
        description=(
            "PostgreSQL text search configuration that stems words. `metadata.language` of a row overrides it."
        ),
    )


class RerankerSettings(_Group):
    """The cross-encoder that reranks search hits ([guide](reranking.md))."""

    model_path: Path | None = Field(
        default=None, description="Folder with an exported cross-encoder. Without it, reranking is off."
    )
    candidates: int = Field(default=50, ge=1, le=200, description="Number of best hits that are reranked.")
    weight: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Weight of the reranker's score, from 0 (search score only) to 1 (reranker's score only).",
    )
    threads: int = Field(
        default=0, ge=0, le=256, description="Threads of the reranker. 0 means one for each CPU, up to 4."
    )

    @field_validator("model_path")
    @classmethod
    def _make_absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value else None


class SqlSettings(_Group):
    """Limits of one query with the SQL verb ([guide](sql.md))."""

    timeout_seconds: float = Field(default=5.0, gt=0, le=300, description="Maximum run time.")
    max_rows: int = Field(default=1000, ge=1, le=100_000, description="Maximum number of rows.")
    max_bytes: int = Field(
        default=10_000_000, ge=1000, le=1_000_000_000, description="Maximum size of all rows as JSON."
    )
    pool_max_size: int = Field(
        default=4,
        ge=1,
        le=100,
        description="Maximum number of SQL queries at the same time. One user has at most half of them. Others wait.",
    )
    max_memory_bytes: int = Field(
        default=256_000_000,
        ge=64_000_000,
        description="Maximum memory of one query. It works with the embedded server on Linux.",
    )


OutputModeSetting: TypeAlias = Literal["auto", "tool", "native", "prompt"]


class LlmSettings(_Group):
    """The language model. Without one, the built-in model `rem:local` answers with excerpts from stored texts."""

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


class RagSettings(_Group):
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


class VectorStoreSettings(_Group):
    """The vectors of messages and texts. These names set the group EMBEDDING, unless that sets the same itself."""

    enabled: bool = Field(
        default=True,
        description="Search by meaning. With `false`, search uses words only, as `EMBEDDING__PROVIDER=none`.",
    )
    embedding_provider: EmbeddingProviderName | None = Field(
        default=None, description="The same as `EMBEDDING__PROVIDER`."
    )
    embedding_model: str | None = Field(default=None, description="The same as `EMBEDDING__MODEL`.")
    backend: str = Field(default="pgvector", description="Has no effect: vectors are stored in PostgreSQL.")
    persist_directory: Path | None = Field(default=None, description="Has no effect, for the same reason.")
    collection_name: str | None = Field(default=None, description="Has no effect, for the same reason.")

    @property
    def unused_names(self) -> list[str]:
        """The given names that have no effect."""
        other_backend = self.backend if self.backend != "pgvector" else None
        values = {"backend": other_backend, **self.model_dump(include={"persist_directory", "collection_name"})}
        return [name for name, value in values.items() if value is not None]


class MemorySettings(_Group):
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


class ChatSettings(_Group):
    """Information about the user that the model is given."""

    auto_inject_user_context: bool = Field(
        default=False, description="Give the model the user's profile, instead of the instruction to look it up."
    )


class AgentsSettings(_Group):
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


class AudioSettings(_Group):
    """Transcription of recordings."""

    provider: Literal["auto", "openai", "local", "none"] = Field(
        default="auto",
        description=(
            "Transcriber. `auto` means `openai` if a key or an address is set, otherwise `local` if it is installed."
        ),
    )
    model: str = Field(default="whisper-1", description="Model name.")
    base_url: str | None = Field(
        default=None, description="Address of the transcription service. Without it, `LLM__BASE_URL`."
    )
    api_key: SecretStr | None = Field(
        default=None, description="API key of the transcription service. Without it, `LLM__OPENAI_API_KEY`."
    )
    timeout_seconds: float = Field(default=60.0, gt=0, description="Maximum time for one recording.")
    max_bytes: int = Field(default=25_000_000, ge=1000, description="Maximum size of a recording.")


class IngestSettings(_Group):
    """Ingestion of files ([guide](ingestion.md))."""

    max_bytes: int = Field(default=100_000_000, ge=1000, le=2_000_000_000, description="Maximum size of a file.")
    max_expanded_bytes: int = Field(
        default=500_000_000,
        ge=1000,
        description="Maximum size of the unpacked content of a file (DOCX, XLSX, PPTX), and of its text.",
    )
    timeout_seconds: float = Field(default=120.0, gt=0, description="Maximum time to fetch a file, and to read it.")
    chunk_tokens: int = Field(default=192, ge=32, le=8192, description="Maximum number of tokens in one chunk.")
    paths: list[Path] = Field(
        default=[],
        description=("Folders that the API and agents may read, as a JSON list. `rem ingest` may read any folder."),
    )
    private_hosts: list[str] = Field(
        default=[],
        description=(
            "Hosts in private networks that the API and agents may fetch from, as a JSON list of `host` or `host:port`."
        ),
    )
    s3_endpoint: str | None = Field(default=None, description="S3-compatible server to use instead of Amazon's.")
    s3_buckets: list[str] = Field(
        default=[],
        description="Buckets that the API and agents may read with the server's credentials, as a JSON list.",
    )


class WorkerSettings(_Group):
    """Background jobs ([guide](jobs.md))."""

    in_process: bool = Field(default=True, description="Let `rem serve` process jobs as well.")
    concurrency: int = Field(default=2, ge=1, le=64, description="Number of jobs at the same time in one process.")
    attempts: int = Field(default=5, ge=1, le=100, description="Number of attempts after which a failing job is dead.")
    retry_seconds: float = Field(
        default=2.0, gt=0, description="Wait before the second attempt. It doubles for each further attempt."
    )
    heartbeat_seconds: float = Field(
        default=30.0, ge=1, description="Time without a heartbeat after which another worker takes over a job."
    )
    shutdown_seconds: float = Field(
        default=10.0,
        ge=0,
        description="Time that running jobs get to finish on shutdown. After that they return to the queue.",
    )


class DreamingSettings(_Group):
    """Dreams ([guide](dreaming.md))."""

    schedule: str | None = Field(
        default="0 3 * * *",
        description=("Time of the dream runs for all users, as a cron expression in UTC; `never` turns them off."),
    )
    use_model: bool = Field(default=True, description="Use `LLM__DEFAULT_MODEL` in dreams, if it is set.")
    max_model_calls: int = Field(
        default=100, ge=0, le=100_000, description="Maximum number of model calls in one dream of one user."
    )
    max_sources: int = Field(
        default=5000, ge=1, description="Maximum number of sessions and texts that one dream of one user reads."
    )
    pause_minutes: int = Field(default=60, ge=1, description="Pause between two messages that ends an episode.")

    @field_validator("schedule")
    @classmethod
    def _check_schedule(cls, value: str | None) -> str | None:
        if value is None or value.strip().lower() in ("", "never", "off"):
            return None
        if not is_cron_expression(value):
            raise ValueError(
                f"{value!r} is not a cron expression with a future time: "
                "write five fields, for example '0 3 * * *' for 03:00, or write never"
            )
        return value.strip()


def is_cron_expression(expression: str) -> bool:
    """Return True if `expression` is a cron expression that has a next time. A sixth field is the seconds."""
    # Imported here, because most processes use the default schedule and never check one.
    from croniter import croniter  # type: ignore[import-untyped]

    if not croniter.is_valid(expression):
        return False
    try:
        croniter(expression).get_next()
    except ValueError:
        # For example the 31st of February.
        return False
    return True


class OAuthClientSettings(_Group):
    """REM as a client of a login provider."""

    client_id: str | None = Field(
        default=None,
        min_length=1,
        description="Client id of REM at the provider. Without it, this login is off.",
    )
    client_secret: SecretStr | None = Field(default=None, description="Client secret of REM at the provider.")


class MicrosoftSettings(OAuthClientSettings):
    """Login with Microsoft."""

    tenant: str = Field(
        default="common",
        pattern=r"^[A-Za-z0-9.-]{1,100}$",
        description="Directory whose accounts may log in: its id, or `common`, `organizations` or `consumers`.",
    )
    authority: str = Field(
        default="https://login.microsoftonline.com",
        pattern=r"^https?://[^\s/?#]+$",
        description="Address of Microsoft's login; national clouds have another.",
    )


class OidcSettings(OAuthClientSettings):
    """Login with any other OpenID Connect provider."""

    issuer: str | None = Field(
        default=None,
        pattern=r"^https?://\S+$",
        description="Address of the provider; `/.well-known/openid-configuration` is below it.",
    )
    name: str = Field(
        default="oidc",
        pattern=r"^[a-z][a-z0-9-]{0,30}$",
        description="Name of the provider in the address of its login: `/api/auth/{name}/login`.",
    )


MIN_SECRET_CHARS = 32


class AuthSettings(_Group):
    """Authentication ([guide](authentication.md))."""

    enabled: bool = Field(
        default=False,
        description="Callers must prove who they are. With `false`, REM trusts `X-User-Id` and `X-Tenant-Id`.",
    )
    allow_anonymous: bool | None = Field(
        default=None,
        description=(
            "Serve requests without a login; they read only what the tenant shares. Without a value: `true`, but "
            "`false` in production."
        ),
    )
    mcp_requires_auth: bool = Field(
        default=True, description="Refuse anonymous MCP requests even if others are served. Only with `AUTH__ENABLED`."
    )
    session_secret: SecretStr | None = Field(
        default=None,
        description=(
            f"Secret that signs cookies and tokens, at least {MIN_SECRET_CHARS} characters. Production needs it; "
            "elsewhere REM creates one in `REM_HOME`."
        ),
    )
    previous_secrets: list[SecretStr] = Field(
        default=[],
        description=(
            "Earlier values of `AUTH__SESSION_SECRET`, as a JSON list. What they signed stays valid until it expires."
        ),
    )
    public_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/?#]+$",
        description=(
            "Address under which people and MCP clients reach this server, such as `https://rem.example.com`. Without "
            "it, the address of each request."
        ),
    )
    tenant: str = Field(
        default="default",
        min_length=1,
        max_length=255,
        description="Tenant of those who log in and of anonymous callers.",
    )
    tenants_by_domain: dict[str, str] = Field(
        default={},
        description='Tenants by the domain of the e-mail address, as a JSON object: `{"acme.com": "acme"}`.',
    )
    allowed_domains: list[str] = Field(
        default=[],
        description=(
            "Domains of the e-mail addresses that may log in, as a JSON list. Without it, everyone with an account at "
            "a login provider."
        ),
    )
    admin_emails: list[str] = Field(
        default=[], description="E-mail addresses that get the role `admin` when they log in, as a JSON list."
    )
    access_token_minutes: int = Field(default=15, ge=1, le=1440, description="Lifetime of an access token.")
    refresh_token_days: int = Field(
        default=30, ge=1, le=365, description="Time without use after which a refresh token expires."
    )
    session_hours: int = Field(
        default=168, ge=1, le=8760, description="Time after which people must log in again in the browser."
    )
    google: OAuthClientSettings = OAuthClientSettings()
    microsoft: MicrosoftSettings = MicrosoftSettings()
    oidc: OidcSettings = OidcSettings()

    @property
    def has_login(self) -> bool:
        """Return True if people can log in with a provider."""
        return self.enabled and any(provider.client_id for provider in (self.google, self.microsoft, self.oidc))

    @field_validator("session_secret", "previous_secrets")
    @classmethod
    def _check_secrets(cls, value: SecretStr | list[SecretStr] | None) -> SecretStr | list[SecretStr] | None:
        for secret in value if isinstance(value, list) else [value] if value is not None else []:
            if len(secret.get_secret_value()) < MIN_SECRET_CHARS:
                raise ValueError(
                    f"a secret has at least {MIN_SECRET_CHARS} characters; `openssl rand -hex 32` prints one"
                )
        return value

    @field_validator("allowed_domains", "admin_emails")
    @classmethod
    def _lower_all(cls, value: list[str]) -> list[str]:
        return [item.strip().lower() for item in value]

    @field_validator("tenants_by_domain")
    @classmethod
    def _lower_domains(cls, value: dict[str, str]) -> dict[str, str]:
        return {domain.strip().lower(): tenant for domain, tenant in value.items()}


class PrivacySettings(_Group):
    """Secrets and personal data in texts that are stored ([guide](privacy.md))."""

    credentials: PrivacyAction = Field(
        default="mask",
        description=(
            "API keys, tokens, private keys and passwords in URLs: `keep`, `mask` or `refuse`. They are known by their "
            "format."
        ),
    )
    card_numbers: PrivacyAction = Field(
        default="mask", description="Numbers of payment cards, checked by their last digit: `keep`, `mask` or `refuse`."
    )
    emails: PrivacyAction = Field(
        default="keep", description="E-mail addresses in texts: `keep`, `mask` or `refuse`. Names and keys keep them."
    )
    phones: PrivacyAction = Field(
        default="keep", description="Phone numbers in texts: `keep`, `mask` or `refuse`. Names and keys keep them."
    )


class OtelSettings(_Group):
    """Traces for OpenTelemetry (extra `otel`)."""

    enabled: bool = Field(default=False, description="Send traces to a collector.")
    service_name: str = Field(default="rem-api", description="Name of this service in the traces.")
    collector_endpoint: str = Field(default="http://localhost:4318", description="Address of the collector.")


class Settings(BaseSettings):
    """Settings of the whole process. Group and field names are joined by two underscores: `API__PORT`."""

    model_config = SettingsConfigDict(env_nested_delimiter=DELIMITER, env_ignore_empty=True, extra="ignore")

    rem_home: Path = Field(
        default=Path("~/.rem"), description="Folder for the embedded server, downloaded models and your own agents."
    )
    rem_config: Path | None = Field(
        default=None,
        description=(
            "YAML file with settings; `rem --config FILE` is the same. Without it, `config.yaml` in `REM_HOME`. A "
            "`rem.yaml` in the current folder is not read unless this names it."
        ),
    )
    rem_env_file: Path | None = Field(
        default=None,
        description=(
            "File with environment variables, such as `.env`. An `.env` in the current folder is not read unless this "
            "names it."
        ),
    )
    rem_user: str | None = Field(
        default=None,
        min_length=1,
        max_length=320,
        description="User of commands without `--user`: an e-mail address or an id.",
    )
    environment: Literal["development", "test", "staging", "production"] = Field(
        default="development",
        description=(
            "Kind of installation. `production` needs secrets and has no development token "
            "([guide](authentication.md))."
        ),
    )
    rem_time_zone: str | None = Field(
        default=None,
        description=(
            "Time zone of words such as today and yesterday: an IANA name such as `Europe/Ljubljana`, or `local` for "
            "that of the machine. Without it, commands use `local`, and the server and the library use UTC."
        ),
    )
    postgres: PostgresSettings = PostgresSettings()
    auth: AuthSettings = AuthSettings()
    api: ApiSettings = ApiSettings()
    rate_limit: RateLimitSettings = RateLimitSettings()
    audit: AuditSettings = AuditSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    search: SearchSettings = SearchSettings()
    reranker: RerankerSettings = RerankerSettings()
    sql: SqlSettings = SqlSettings()
    llm: LlmSettings = LlmSettings()
    memory: MemorySettings = MemorySettings()
    chat: ChatSettings = ChatSettings()
    agents: AgentsSettings = AgentsSettings()
    audio: AudioSettings = AudioSettings()
    ingest: IngestSettings = IngestSettings()
    worker: WorkerSettings = WorkerSettings()
    dreaming: DreamingSettings = DreamingSettings()
    privacy: PrivacySettings = PrivacySettings()
    otel: OtelSettings = OtelSettings()

    @field_validator("rem_home")
    @classmethod
    def _make_absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("environment", mode="before")
    @classmethod
    def _expand_environment(cls, value: object) -> object:
        """Accept the usual short names: a `prod` that silently meant development would be open to everyone."""
        name = str(value).strip().lower()
        return {"prod": "production", "dev": "development", "local": "development"}.get(name, name)

    @property
    def is_production(self) -> bool:
        """Return True if this is an installation in production."""
        return self.environment == "production"

    @property
    def limits_rates(self) -> bool:
        """Return True if the requests of each caller are limited."""
        return self.auth.enabled if self.rate_limit.enabled is None else self.rate_limit.enabled

    @property
    def writes_audit_log(self) -> bool:
        """Return True if the audit log is written."""
        return self.auth.enabled if self.audit.enabled is None else self.audit.enabled

    @property
    def allows_anonymous(self) -> bool:
        """Return True if requests without a login are served."""
        if not self.auth.enabled:
            return True
        return not self.is_production if self.auth.allow_anonymous is None else self.auth.allow_anonymous

    @field_validator("rem_time_zone")
    @classmethod
    def _check_time_zone(cls, value: str | None) -> str | None:
        if value is not None:
            _load_time_zone(value)
        return value

    @property
    def time_zone(self) -> tzinfo:
        """The time zone of words such as today."""
        return UTC if self.rem_time_zone is None else _load_time_zone(self.rem_time_zone)

    def now(self) -> datetime:
        """Return the current time in the time zone of the settings."""
        return datetime.now(self.time_zone)

    @model_validator(mode="after")
    def _apply_vector_store(self) -> Settings:
        """Let the names under `memory.vector_store` set the embedder, unless the group EMBEDDING sets it itself."""
        store = self.memory.vector_store
        given = {"provider": store.embedding_provider if store.enabled else "none", "model": store.embedding_model}
        changes = {
            name: value
            for name, value in given.items()
            if value is not None and name not in self.embedding.model_fields_set
        }
        if changes:
            self.embedding = self.embedding.model_copy(update=changes)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, the strongest first: arguments, the environment, REM_ENV_FILE, the YAML file."""
        env_file = DotEnvSettingsSource(settings_cls, env_file=find_env_file(os.environ.get("REM_ENV_FILE")))
        for source in (env_settings, env_file):
            if isinstance(source, EnvSettingsSource):
                _refuse_misspelt_names(source.env_vars)
        return init_settings, env_settings, env_file, _ConfigFileSource(settings_cls)


class _ConfigFileSource(PydanticBaseSettingsSource):
    """Reads the YAML file. It stores the path of the file in `rem_config`."""

    def __call__(self) -> dict[str, Any]:
        state = self.current_state
        named = state.get("rem_config")
        home = Path(state.get("rem_home") or Settings.model_fields["rem_home"].default)
        path = find_config_file(Path(named) if named else None, home)
        return {} if path is None else {"rem_config": path, **read_config_file(path, self.settings_cls)}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return nothing: `__call__` returns all values at once."""
        return None, field_name, False


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """Return the settings of this process. They are read once. Raise SettingsError if they are not valid."""
    try:
        return Settings()
    except UnicodeDecodeError as error:
        raise SettingsError("The file that REM_ENV_FILE names is not UTF-8 text: save it as UTF-8.") from error
    except ValidationError as error:
        issues = "; ".join(_describe(issue) for issue in error.errors())
        raise SettingsError(f"The environment or REM_ENV_FILE is not valid: {issues}") from error


def describe_ignored_files() -> list[str]:
    """Return a warning for each file with settings in the current folder that is not read.

    A folder may come from somebody else, and its settings could send the user's memory to another server.
    """
    settings = get_settings()
    warnings = []
    for path, name, used in (
        (PROJECT_FILE, "REM_CONFIG", settings.rem_config),
        (PROJECT_ENV_FILE, "REM_ENV_FILE", settings.rem_env_file),
    ):
        is_read = used is not None and used.expanduser().absolute() == path.absolute()
        if not is_read and _has_settings(path):
            warnings.append(
                f"REM does not read the settings in {path} of the current folder, because the folder may come from "
                f"somebody else. If you trust it: {name}={path}"
            )
    return warnings


def _has_settings(path: Path) -> bool:
    """Return whether a file exists and, if it is one for environment variables, contains settings of REM."""
    if not path.is_file():
        return False
    if path != PROJECT_ENV_FILE:
        return True
    try:
        names = [name.lower() for name in DotEnvSettingsSource(Settings, env_file=path).env_vars]
    except (OSError, UnicodeDecodeError):
        return False
    return any(name in _GENERAL or (_split_group(name)[1] and _split_group(name)[0] in _GROUPS) for name in names)


def _load_time_zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name, or the machine's own. Raise ValueError if there is none."""
    from zoneinfo import ZoneInfo

    if name != LOCAL_ZONE:
        try:
            return ZoneInfo(name)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                f"there is no time zone {name!r}: write a name such as Europe/Ljubljana, or local"
            ) from error
    try:
        variable = os.environ.get("TZ", "").removeprefix(":")
        if variable:
            return ZoneInfo(variable)
        with LOCAL_ZONE_FILE.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError, KeyError):
        # The offset of today is a good guess where the system does not name its zone.
        return datetime.now().astimezone().tzinfo or UTC


def list_ignored_variables() -> list[str]:
    """Return the environment variables that look like settings, such as `SERVER__PORT`, but have no known group."""
    return sorted(name for name in os.environ if DELIMITER in name.strip("_") and _split_group(name)[0] not in _GROUPS)


_GROUPS = frozenset(name for name, field in Settings.model_fields.items() if get_group_class(field) is not None)
_GENERAL = frozenset(Settings.model_fields) - _GROUPS


def _refuse_misspelt_names(names: Iterable[str]) -> None:
    """Raise SettingsError if the name of a variable is almost that of a setting: it would silently have no effect."""
    for name in names:
        if (correct := _correct_name(name.lower())) is not None:
            raise SettingsError(
                f"{name.upper()}: there is no such setting (did you mean {correct.upper()}?). "
                "If the variable belongs to another program, run REM without it."
            )


def _correct_name(name: str) -> str | None:
    """Return the setting that a misspelt name means, or None if it is correct or belongs to another program."""
    group, rest = _split_group(name)
    if rest:
        close = [] if group in _GROUPS else get_close_matches(group, _GROUPS, 1, MIN_GROUP_SIMILARITY)
        return f"{close[0]}{DELIMITER}{rest}" if close else None
    if not name.startswith("rem_") or name in _GENERAL:
        return None
    return next(iter(get_close_matches(name, _GENERAL, 1, MIN_GENERAL_SIMILARITY)), None)


def _split_group(name: str) -> tuple[str, str]:
    group, _, rest = name.lower().partition(DELIMITER)
    return group, rest


def _describe(issue: ErrorDetails) -> str:
    path = [str(part) for part in issue["loc"]]
    name = DELIMITER.join(path)
    if issue["type"] == "extra_forbidden":
        close = get_close_matches(name, _list_names(path[:-1]), 1)
        message = "there is no such setting" + (f" (did you mean {close[0].upper()}?)" if close else "")
    else:
        message = issue["msg"].removeprefix("Value error, ")
    return f"{name.upper()}: {message}"


def _list_names(path: list[str]) -> list[str]:
    """Return the full names of the settings in a group."""
    model: type[BaseModel] = Settings
    for name in path:
        model = get_group_class(model.model_fields[name]) or model
    return [DELIMITER.join((*path, name)) for name in model.model_fields]
