"""Settings: `API__PORT` in the environment, or `api: {port: 8000}` in a YAML file. One file for each area."""

from rem.settings.background import AudioSettings, DreamingSettings, IngestSettings, WorkerSettings, is_cron_expression
from rem.settings.chat import (
    AgentsSettings,
    ChatSettings,
    LlmSettings,
    MemorySettings,
    OutputModeSetting,
    RagSettings,
    VectorStoreSettings,
)
from rem.settings.database import PostgresSettings, SqlSettings
from rem.settings.search import EmbeddingProviderName, EmbeddingSettings, RerankerSettings, SearchSettings
from rem.settings.security import (
    MIN_SECRET_CHARS,
    AuditSettings,
    AuthSettings,
    EncryptionSettings,
    MicrosoftSettings,
    OAuthClientSettings,
    OidcSettings,
    PrivacyAction,
    PrivacySettings,
)
from rem.settings.server import (
    RATE_PERIOD_SECONDS,
    ApiSettings,
    LogSettings,
    MetricsSettings,
    OtelSettings,
    PhoenixSettings,
    RateLimitSettings,
)
from rem.settings.settings import LOCAL_ZONE, Settings, describe_ignored_files, get_settings, list_ignored_variables

__all__ = [
    "LOCAL_ZONE",
    "MIN_SECRET_CHARS",
    "RATE_PERIOD_SECONDS",
    "AgentsSettings",
    "ApiSettings",
    "AudioSettings",
    "AuditSettings",
    "AuthSettings",
    "ChatSettings",
    "DreamingSettings",
    "EmbeddingProviderName",
    "EmbeddingSettings",
    "EncryptionSettings",
    "IngestSettings",
    "LlmSettings",
    "LogSettings",
    "MemorySettings",
    "MetricsSettings",
    "MicrosoftSettings",
    "OAuthClientSettings",
    "OidcSettings",
    "OtelSettings",
    "OutputModeSetting",
    "PhoenixSettings",
    "PostgresSettings",
    "PrivacyAction",
    "PrivacySettings",
    "RagSettings",
    "RateLimitSettings",
    "RerankerSettings",
    "SearchSettings",
    "Settings",
    "SqlSettings",
    "VectorStoreSettings",
    "WorkerSettings",
    "describe_ignored_files",
    "get_settings",
    "is_cron_expression",
    "list_ignored_variables",
]
