"""The groups INGEST, AUDIO, WORKER and DREAMING: the work that reads files, and the work in the background."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from rem.settings.group import SettingsGroup


class IngestSettings(SettingsGroup):
    """Ingestion of files ([guide](ingestion.md))."""

    max_bytes: int = Field(default=100_000_000, ge=1000, le=2_000_000_000, description="Maximum size of a file.")
    max_expanded_bytes: int = Field(
        default=500_000_000,
        ge=1000,
        description="Maximum size of the unpacked content of a file (DOCX, XLSX, PPTX), and of its text.",
    )
    timeout_seconds: float = Field(default=120.0, gt=0, description="Maximum time to fetch a file, and to read it.")
    process_seconds: float = Field(
        default=900.0,
        gt=0,
        description="Maximum time of a worker to fetch, read, cut and store one file. After that the file has failed.",
    )
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


class AudioSettings(SettingsGroup):
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


class WorkerSettings(SettingsGroup):
    """Background jobs ([guide](jobs.md))."""

    in_process: bool = Field(default=True, description="Let `rem serve` process jobs and index as well.")
    concurrency: int = Field(
        default=3,
        ge=1,
        le=64,
        description="Number of jobs at the same time in one process. One owner gets at most one less than that.",
    )
    max_waiting: int = Field(
        default=1000,
        ge=1,
        description="Number of jobs of one owner that may wait. Beyond that, uploads are answered with 429.",
    )
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


class DreamingSettings(SettingsGroup):
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


def next_cron_time(expression: str, after: datetime) -> datetime:
    """Return the first time after `after` that matches a valid cron expression, in UTC."""
    from croniter import croniter

    next_at: datetime = croniter(expression, after.astimezone(UTC)).get_next(datetime)
    return next_at
