"""Settings from the environment and `.env`: `POSTGRES__CONNECTION_STRING`, `API__PORT`, `REM_HOME`, …"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rem.errors import SettingsError


class PostgresSettings(BaseModel):
    """Where memories are kept. Without a connection string REM starts its own server under `REM_HOME`."""

    connection_string: SecretStr | None = None
    pool_min_size: int = Field(default=1, ge=0, le=100)
    pool_max_size: int = Field(default=10, ge=1, le=100)
    connect_timeout_seconds: float = Field(default=10.0, gt=0)
    idle_timeout_seconds: float = Field(default=1800.0, ge=0, description="embedded server; 0 means never")
    run_as: str = Field(default="nobody", description="embedded server, when REM runs as root")
    kv_logged: bool = Field(default=False, description="keep kv_store in the WAL, so that replicas have it")

    @field_validator("connection_string")
    @classmethod
    def _empty_means_embedded(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value and value.get_secret_value().strip() else None


class ApiSettings(BaseModel):
    """Where the HTTP API listens."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=64)
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"


class EmbeddingSettings(BaseModel):
    """What the vectors of this database look like."""

    dimension: int = Field(default=384, ge=1, le=4000)


class Settings(BaseSettings):
    """Everything that can be configured; nested names are joined by two underscores."""

    model_config = SettingsConfigDict(env_nested_delimiter="__", env_file=".env", extra="ignore")

    rem_home: Path = Path("~/.rem")
    postgres: PostgresSettings = PostgresSettings()
    api: ApiSettings = ApiSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()

    @field_validator("rem_home")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings of this process, read once."""
    try:
        return Settings()
    except ValidationError as error:
        problems = "; ".join(
            f"{'__'.join(str(part) for part in problem['loc']).upper()}: {problem['msg']}" for problem in error.errors()
        )
        raise SettingsError(f"The environment or .env is not valid: {problems}") from error
