"""Connection strings: check them, split their hosts, describe them without the password, and explain errors."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

from rem.errors import DatabaseUnavailableError, RemError, SettingsError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from rem.settings import PostgresSettings

_MESSAGE = (
    "A connection string such as POSTGRES__CONNECTION_STRING must look like "
    "postgresql://user:password@host:5432/database, with special characters of the user and password written as %XX."
)


def read_connection_string(value: SecretStr | None) -> str:
    """Return a connection string for the driver. Raise SettingsError if it is not one."""
    text = value.get_secret_value().strip() if value is not None else ""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.split("+")[0] not in ("postgresql", "postgres") or "#" in rest:
        raise SettingsError(_MESSAGE)
    # SQLAlchemy writes postgresql+asyncpg://. The role of the SQL verb never writes, so `read-write` would refuse it.
    return f"postgresql://{rest}".replace("target_session_attrs=read-write", "target_session_attrs=primary")


def get_direct_connection_string(settings: PostgresSettings) -> str:
    """Return the address of the server itself, not of a connection pooler."""
    return read_connection_string(settings.direct_connection_string or settings.connection_string)


def split_hosts(connection_string: str) -> list[str]:
    """Return a connection string for each host of `postgresql://user@first,second/database`."""
    parts = urlsplit(connection_string)
    credentials, at_sign, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{credentials}{at_sign}{host}")) for host in hosts.split(",")]


def describe_connection_string(connection_string: str) -> str:
    """Return the host and the database for messages, without the password."""
    parts = urlsplit(connection_string)
    host = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]
    return f"{host}{parts.path}"


def explain_connect_error(error: Exception, address: str) -> RemError | None:
    """Return the error of REM for an error of `asyncpg.connect`, or None if it has no better message."""
    if isinstance(error, asyncpg.InvalidPasswordError | asyncpg.InvalidAuthorizationSpecificationError):
        return DatabaseUnavailableError(f"The server at {address} refuses the user or password: {error}")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return DatabaseUnavailableError(
            f"The server at {address} has no such database: {error}. Create it, or fix the connection string."
        )
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):
        return SettingsError(
            f"A connection pooler answers at {address} ({error}): set POSTGRES__DIRECT_CONNECTION_STRING to the "
            "address of the server itself (docs/deployment.md)."
        )
    if isinstance(error, OSError):
        return DatabaseUnavailableError(
            f"No PostgreSQL server can be reached at {address} ({error}): check the address."
        )
    return None


def explain_unreadable_string(error: ValueError) -> SettingsError:
    """Return the error of REM for a connection string that the driver cannot read."""
    return SettingsError(f"{_MESSAGE} ({error})" if isinstance(error, asyncpg.ClientConfigurationError) else _MESSAGE)
