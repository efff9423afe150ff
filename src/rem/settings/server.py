"""The groups API, RATE_LIMIT, LOG, METRICS, OTEL and PHOENIX: the HTTP server, and what it reports to others."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, SecretStr, field_validator

from rem.settings.group import SettingsGroup

RATE_PERIOD_SECONDS: dict[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
MIN_TOKEN_CHARS = 16
RateText: TypeAlias = Annotated[str, Field(pattern=r"^([1-9][0-9]{0,8} ?/ ?(second|minute|hour|day)|unlimited)$")]


class ApiSettings(SettingsGroup):
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
    header_seconds: float = Field(
        default=10.0,
        gt=0,
        description="Maximum time that REM waits on a connection for the first line and the headers of a request.",
    )
    body_seconds: float = Field(
        default=30.0,
        gt=0,
        description=(
            "Maximum time that REM waits for the body of a request, plus one second for each 10,000 bytes. As long it "
            "waits for a client that does not read its answer."
        ),
    )
    max_connections_per_address: int = Field(
        default=500,
        ge=1,
        description=(
            "Maximum number of connections that one address may have with one server process. "
            "`API__TRUSTED_PROXIES` may have any number."
        ),
    )
    max_chats_per_caller: int = Field(
        default=8,
        ge=1,
        description=(
            "Maximum number of chats and agent runs that one caller may have at the same time in one server process. "
            "Without a login, all callers of one address share it."
        ),
    )
    max_queries_per_caller: int = Field(
        default=32,
        ge=1,
        description=(
            "Maximum number of queries, questions, embeddings and calls of MCP that one caller may have, running or "
            "waiting, in one server process. Without a login, all callers of one address together have twice as many."
        ),
    )
    shutdown_seconds: float = Field(
        default=10.0, gt=0, description="Time that running answers get to finish when the server stops."
    )
    freeze_seconds: float = Field(
        default=30.0,
        gt=0,
        description=(
            "Time after which `rem serve` ends a server process whose event loop does not answer, and starts another."
        ),
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _check_networks(cls, value: list[str]) -> list[str]:
        return [_check_network(text.strip()) for text in value]


def _check_network(text: str) -> str:
    try:
        network = ip_network(text, strict=False)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an IP address or a network such as 10.1.2.0/24") from error
    if network.prefixlen == 0:
        raise ValueError(f"{text!r} are all addresses: name those of your reverse proxies")
    return str(network) if "/" in text else text


class RateLimitSettings(SettingsGroup):
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


class LogSettings(SettingsGroup):
    """The log of `rem serve` and `rem worker`."""

    format: Literal["text", "json"] = Field(
        default="text",
        description=(
            "Form of the log on standard error: lines for people, or one JSON object for each message, with the id of "
            "its request or job."
        ),
    )


class MetricsSettings(SettingsGroup):
    """Metrics for Prometheus at `/metrics` (extra `metrics`, [guide](operations.md))."""

    enabled: bool = Field(default=False, description="Serve metrics.")
    token: SecretStr | None = Field(
        default=None,
        min_length=MIN_TOKEN_CHARS,
        description=(
            "Token that Prometheus must send (`Authorization: Bearer …`). It is necessary if `AUTH__ENABLED` is set."
        ),
    )


class OtelSettings(SettingsGroup):
    """Traces for OpenTelemetry (extra `otel`)."""

    enabled: bool = Field(default=False, description="Send traces to a collector.")
    service_name: str = Field(default="rem-api", description="Name of this service in the traces.")
    collector_endpoint: str = Field(default="http://localhost:4318", description="Address of the collector.")


class PhoenixSettings(SettingsGroup):
    """Arize Phoenix, for [evaluations](evaluation.md#use-arize-phoenix)."""

    endpoint: str | None = Field(
        default=None, description="Address of the Phoenix server, such as http://localhost:6006."
    )
    api_key: SecretStr | None = Field(default=None, description="API key of the Phoenix server, if it needs one.")
    project: str = Field(default="rem", description="The Phoenix project with the traces of REM.")
    timeout_seconds: float = Field(default=30, gt=0, description="Time limit of a request to Phoenix.")
