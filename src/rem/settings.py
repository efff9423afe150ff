"""Settings from the environment and `.env`: `POSTGRES__CONNECTION_STRING`, `API__PORT`, `REM_HOME`, …"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from rem.errors import SettingsError


class _Group(BaseModel):
    """Settings with a common prefix. A misspelt name is an error: silently it would mean the default."""

    model_config = ConfigDict(extra="forbid")


class PostgresSettings(_Group):
    """Where memories are kept. Without a connection string REM starts its own server under `REM_HOME`."""

    enabled: bool = Field(default=True, description="false: chat works without memory, everything else says so")
    connection_string: SecretStr | None = None
    pool_min_size: int = Field(default=1, ge=0, le=100)
    pool_max_size: int = Field(default=10, ge=1, le=100)
    connect_timeout_seconds: float = Field(default=10.0, gt=0)
    idle_timeout_seconds: float = Field(default=1800.0, ge=0, description="embedded server; 0 means never")
    run_as: str = Field(default="nobody", description="embedded server, when REM runs as root")
    kv_logged: bool = Field(default=False, description="keep kv_store in the WAL, so that replicas have it")
    sql_connection_string: SecretStr | None = Field(
        default=None, description="login of the SQL verb, where REM may not create a role for it"
    )

    @field_validator("connection_string", "sql_connection_string")
    @classmethod
    def _empty_means_embedded(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value and value.get_secret_value().strip() else None


class ApiSettings(_Group):
    """Where the HTTP API listens."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=64)
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    reload: bool = Field(default=False, description="start anew when the code changes, for development")
    cors_origins: list[str] = Field(default=[], description="web pages that may call the API, as a JSON list")
    allowed_hosts: list[str] = Field(
        default=[], description="names with a dot by which the API may be called, as a JSON list; * for any"
    )
    shutdown_seconds: float = Field(default=10.0, gt=0, description="how long answers may take to end on shutdown")


class EmbeddingSettings(_Group):
    """What the vectors of this database look like, and who makes them."""

    provider: Literal["auto", "local", "fastembed", "sentence-transformers", "ollama", "openai", "none"] = Field(
        default="auto", description="auto: local if its weights are there, else none"
    )
    model: str | None = Field(default=None, description="the provider's default if not given")
    model_path: Path | None = Field(default=None, description="fastembed, sentence-transformers: a folder, no download")
    dimension: int = Field(default=384, ge=1, le=4000)
    base_url: str | None = Field(default=None, description="openai: any compatible server; ollama: where it listens")
    api_key: SecretStr | None = None
    batch_size: int = Field(default=64, ge=1, le=2048, description="texts in one call of the model or the service")
    threads: int = Field(default=0, ge=0, le=256, description="of the models in this process; 0: one per CPU, up to 4")
    timeout_seconds: float = Field(default=30.0, gt=0)
    max_retries: int = Field(default=4, ge=0, le=20)
    cache_size: int = Field(default=1024, ge=0, description="how many recent queries keep their vector")


class SearchSettings(_Group):
    """How texts are searched."""

    language: str = Field(
        default="english",
        pattern=r"^[a-z_]{1,63}$",
        description="how words are stemmed: a text search configuration of PostgreSQL; a row's metadata.language wins",
    )


class RerankerSettings(_Group):
    """Whether a cross-encoder rereads what a search found, and how much it has to say."""

    model_path: Path | None = Field(default=None, description="a folder with an exported model; without one, off")
    candidates: int = Field(default=50, ge=1, le=200, description="how many of the best are reread")
    weight: float = Field(default=1.0, ge=0, le=1, description="1: the reranker's order; 0: that of the search")
    threads: int = Field(default=0, ge=0, le=256, description="0: one per CPU, up to 4")

    @field_validator("model_path")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value else None


class SqlSettings(_Group):
    """How much one query of the SQL verb may take."""

    timeout_seconds: float = Field(default=5.0, gt=0, le=300)
    max_rows: int = Field(default=1000, ge=1, le=100_000)
    max_bytes: int = Field(default=10_000_000, ge=1000, le=1_000_000_000, description="of all rows as JSON")
    pool_max_size: int = Field(default=4, ge=1, le=100, description="queries at the same time; others wait")


class LlmSettings(_Group):
    """Which language model answers. Without one, `rem:local` answers with extracts of the memory."""

    default_model: str | None = Field(default=None, description="provider:name, such as openai:gpt-4o")
    default_temperature: float | None = Field(default=None, ge=0, le=2, description="the provider's own if not given")
    base_url: str | None = Field(default=None, description="any OpenAI-compatible server, for openai: and bare names")
    openai_api_key: SecretStr | None = None
    anthropic_api_key: SecretStr | None = None
    timeout_seconds: float = Field(default=60.0, gt=0, description="until the first word, and between two")
    answer_seconds: float = Field(default=600.0, gt=0, description="for a whole answer, with tools and child agents")
    max_retries: int = Field(default=2, ge=0, le=10)
    request_limit: int = Field(default=25, ge=1, le=1000, description="calls of the model in one answer")
    total_tokens_limit: int | None = Field(
        default=None, ge=1, description="tokens in one answer, child agents included"
    )


class RagSettings(_Group):
    """Whether what was said before is brought into a question, and how much of it."""

    enabled: bool = False
    top_k: int = Field(default=5, ge=1, le=50)
    min_similarity: float = Field(default=0.3, ge=0, le=1)
    max_tokens: int = Field(default=1024, ge=50, le=100_000)


class MemorySettings(_Group):
    """How much of a conversation the model is given."""

    strategy: Literal["simple", "summarization", "hybrid"] = "simple"
    max_history_tokens: int = Field(default=4096, ge=100, le=2_000_000)
    auto_prune_days: int | None = Field(
        default=None, ge=1, description="delete idle sessions after so long; off if unset"
    )
    rag: RagSettings = RagSettings()


class ChatSettings(_Group):
    """What the model is told of the user."""

    auto_inject_user_context: bool = Field(
        default=False, description="the profile itself instead of a hint how to get it"
    )


class AgentsSettings(_Group):
    """Where agents of one's own are."""

    path: Path | None = Field(default=None, description="a folder with YAML files; agents under REM_HOME if not given")

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value else None


class AudioSettings(_Group):
    """Who writes down what was spoken."""

    provider: Literal["auto", "openai", "local", "none"] = Field(
        default="auto", description="auto: openai if there is a key or address, else local if it is installed"
    )
    model: str = "whisper-1"
    base_url: str | None = Field(default=None, description="LLM__BASE_URL if not given")
    api_key: SecretStr | None = Field(default=None, description="LLM__OPENAI_API_KEY if not given")
    timeout_seconds: float = Field(default=60.0, gt=0)
    max_bytes: int = Field(default=25_000_000, ge=1000)


class IngestSettings(_Group):
    """What may be taken in, and from where."""

    max_bytes: int = Field(default=100_000_000, ge=1000, le=2_000_000_000, description="of one file")
    max_expanded_bytes: int = Field(
        default=500_000_000, ge=1000, description="of what a packed file (DOCX, XLSX, PPTX) holds, and of its text"
    )
    timeout_seconds: float = Field(default=120.0, gt=0, description="to fetch one file, and to read it")
    chunk_tokens: int = Field(default=192, ge=32, le=8192, description="at most so many tokens in one chunk")
    paths: list[Path] = Field(
        default=[], description="folders that the API and agents may read, as a JSON list; `rem ingest` reads any"
    )
    private_hosts: list[str] = Field(
        default=[],
        description="hosts of private networks, as host or host:port, that the API and agents may fetch from",
    )
    s3_endpoint: str | None = Field(default=None, description="another server than Amazon's, for s3://")
    s3_buckets: list[str] = Field(
        default=[], description="buckets that the API and agents may read with the server's credentials"
    )


class WorkerSettings(_Group):
    """How background work is done."""

    in_process: bool = Field(default=True, description="whether `rem serve` also works off jobs")
    concurrency: int = Field(default=2, ge=1, le=64, description="jobs at the same time in one process")
    attempts: int = Field(default=5, ge=1, le=100, description="until a job that fails is set aside")
    retry_seconds: float = Field(default=2.0, gt=0, description="before the second attempt; doubled for each further")
    heartbeat_seconds: float = Field(
        default=30.0, ge=1, description="a job whose worker is silent for so long is taken over"
    )
    shutdown_seconds: float = Field(
        default=10.0, ge=0, description="how long running jobs may take to end on shutdown; then they wait again"
    )


class DreamingSettings(_Group):
    """What is derived from memories, and when."""

    schedule: str | None = Field(default="0 3 * * *", description="when everyone's memories are dreamt on; cron, UTC")
    use_model: bool = Field(default=True, description="use LLM__DEFAULT_MODEL where one is configured")
    max_model_calls: int = Field(default=100, ge=0, le=100_000, description="of one dream of one user")
    max_sources: int = Field(default=5000, ge=1, description="sessions and texts that one dream of one user looks at")
    pause_minutes: int = Field(default=60, ge=1, description="silence after which an episode is over")

    @field_validator("schedule")
    @classmethod
    def _cron_or_never(cls, value: str | None) -> str | None:
        if value is None or value.strip().lower() in ("", "never", "off"):
            return None
        if not is_cron_expression(value):
            raise ValueError(
                f"{value!r} is no cron expression of a time that comes: "
                "write five fields, as in '0 3 * * *' for three at night, or never"
            )
        return value.strip()


def is_cron_expression(expression: str) -> bool:
    """Whether a text says when something is due, as crontab does, and that day comes; six fields end with seconds."""
    # Imported only where a schedule is given: the default is known to be one.
    from croniter import croniter  # type: ignore[import-untyped]

    if not croniter.is_valid(expression):
        return False
    try:
        croniter(expression).get_next()
    except ValueError:
        # The 31st of February.
        return False
    return True


class OtelSettings(_Group):
    """Whether traces are sent to an OpenTelemetry collector."""

    enabled: bool = False
    service_name: str = "rem-api"
    collector_endpoint: str = "http://localhost:4318"


class Settings(BaseSettings):
    """Everything that can be configured; nested names are joined by two underscores."""

    model_config = SettingsConfigDict(env_nested_delimiter="__", env_file=".env", env_ignore_empty=True, extra="ignore")

    rem_home: Path = Path("~/.rem")
    postgres: PostgresSettings = PostgresSettings()
    api: ApiSettings = ApiSettings()
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
    otel: OtelSettings = OtelSettings()

    @field_validator("rem_home")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings of this process, read once."""
    try:
        return Settings()
    except UnicodeDecodeError as error:
        raise SettingsError("The file .env is not UTF-8 text: save it as UTF-8.") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'__'.join(str(part) for part in problem['loc']).upper()}: {_describe(problem)}"
            for problem in error.errors()
        )
        raise SettingsError(f"The environment or .env is not valid: {problems}") from error


def _describe(problem: ErrorDetails) -> str:
    return "there is no such setting" if problem["type"] == "extra_forbidden" else problem["msg"]
