"""All settings of a process, read from the environment, an `.env` file and a YAML file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from rem.errors import SettingsError
from rem.settings.background import AudioSettings, DreamingSettings, IngestSettings, WorkerSettings
from rem.settings.chat import AgentsSettings, ChatSettings, LlmSettings, MemorySettings
from rem.settings.config_file import (
    PROJECT_ENV_FILE,
    PROJECT_FILE,
    find_config_file,
    find_env_file,
    read_config_file,
)
from rem.settings.database import PostgresSettings, SqlSettings
from rem.settings.group import DELIMITER, get_group_class
from rem.settings.search import EmbeddingSettings, RerankerSettings, SearchSettings
from rem.settings.security import AuditSettings, AuthSettings, EncryptionSettings, PrivacySettings
from rem.settings.server import (
    ApiSettings,
    LogSettings,
    MetricsSettings,
    OtelSettings,
    PhoenixSettings,
    RateLimitSettings,
)

LOCAL_ZONE = "local"
"""The name of the machine's own time zone."""
LOCAL_ZONE_FILE = Path("/etc/localtime")
MIN_GROUP_SIMILARITY = 0.75
MIN_GENERAL_SIMILARITY = 0.85
"""A variable whose name is this similar to a setting is an error. Less similar ones belong to other programs."""


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
    encryption: EncryptionSettings = EncryptionSettings()
    privacy: PrivacySettings = PrivacySettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    otel: OtelSettings = OtelSettings()
    phoenix: PhoenixSettings = PhoenixSettings()

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
        names = VariableNames(settings_cls)
        for source in (env_settings, env_file):
            if isinstance(source, EnvSettingsSource):
                names.refuse_misspelt(source.env_vars)
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
        issues = "; ".join(VariableNames(Settings).describe(issue) for issue in error.errors())
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
        return VariableNames(Settings).contain_settings(DotEnvSettingsSource(Settings, env_file=path).env_vars)
    except (OSError, UnicodeDecodeError):
        return False


def list_ignored_variables() -> list[str]:
    """Return the environment variables that look like settings, such as `SERVER__PORT`, but have no known group."""
    return VariableNames(Settings).list_unknown_groups(os.environ)


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


class VariableNames:
    """Compares the names of variables with the settings of a class."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        self._groups = {name for name, field in model.model_fields.items() if get_group_class(field) is not None}
        self._general = set(model.model_fields) - self._groups

    def contain_settings(self, names: Iterable[str]) -> bool:
        """Return True if one of the names is a setting, or one of a known group."""
        return any(name.lower() in self._general or self._is_of_known_group(name) for name in names)

    def list_unknown_groups(self, names: Iterable[str]) -> list[str]:
        """Return the names that look like settings, such as `SERVER__PORT`, but have no known group."""
        return sorted(name for name in names if DELIMITER in name.strip("_") and not self._is_of_known_group(name))

    def refuse_misspelt(self, names: Iterable[str]) -> None:
        """Raise SettingsError if a name is almost that of a setting: it would silently have no effect."""
        for name in names:
            if (correct := self._correct(name.lower())) is not None:
                raise SettingsError(
                    f"{name.upper()}: there is no such setting (did you mean {correct.upper()}?). "
                    "If the variable belongs to another program, run REM without it."
                )

    def describe(self, issue: ErrorDetails) -> str:
        """Return a message for a value that is not valid. It begins with the name of the variable."""
        path = [str(part) for part in issue["loc"]]
        name = DELIMITER.join(path)
        if issue["type"] == "extra_forbidden":
            close = get_close_matches(name, self._list_group(path[:-1]), 1)
            message = "there is no such setting" + (f" (did you mean {close[0].upper()}?)" if close else "")
        else:
            message = issue["msg"].removeprefix("Value error, ")
        return f"{name.upper()}: {message}"

    def _is_of_known_group(self, name: str) -> bool:
        group, rest = _split(name)
        return bool(rest) and group in self._groups

    def _correct(self, name: str) -> str | None:
        """Return the setting that a misspelt name means, or None if it is correct or belongs to another program."""
        group, rest = _split(name)
        if rest:
            close = [] if group in self._groups else get_close_matches(group, self._groups, 1, MIN_GROUP_SIMILARITY)
            return f"{close[0]}{DELIMITER}{rest}" if close else None
        if not name.startswith("rem_") or name in self._general:
            return None
        return next(iter(get_close_matches(name, self._general, 1, MIN_GENERAL_SIMILARITY)), None)

    def _list_group(self, path: Sequence[str]) -> list[str]:
        """Return the full names of the settings in a group."""
        model = self._model
        for name in path:
            model = get_group_class(model.model_fields[name]) or model
        return [DELIMITER.join((*path, name)) for name in model.model_fields]


def _split(name: str) -> tuple[str, str]:
    group, _, rest = name.lower().partition(DELIMITER)
    return group, rest
