"""Check the settings of authentication before a server starts."""

from __future__ import annotations

from collections.abc import Iterator

from rem.errors import SettingsError
from rem.settings import Settings


def check_auth_settings(settings: Settings) -> None:
    """Raise SettingsError that names everything that is missing for authentication, or for production."""
    missing = [*_find_incomplete(settings), *(_find_missing_in_production(settings) if settings.is_production else ())]
    if missing:
        start = "REM does not start in production" if settings.is_production else "REM does not start"
        raise SettingsError("\n- ".join((f"{start}:", *missing)))


def _find_incomplete(settings: Settings) -> Iterator[str]:
    auth = settings.auth
    if not auth.enabled:
        return
    if not settings.postgres.enabled:
        yield "POSTGRES__ENABLED is false, and authentication needs the database."
    if settings.metrics.enabled and settings.metrics.token is None:
        yield "METRICS__TOKEN is missing: `openssl rand -hex 32` prints one. Prometheus sends it."
    for name in ("google", "microsoft", "oidc"):
        provider = getattr(auth, name)
        if provider.client_id and provider.client_secret is None:
            yield f"AUTH__{name.upper()}__CLIENT_SECRET is missing."
    if auth.oidc.client_id and not auth.oidc.issuer:
        yield "AUTH__OIDC__ISSUER is missing."
    if auth.oidc.name in ("google", "microsoft"):
        yield f"AUTH__OIDC__NAME is {auth.oidc.name}, which is another login: choose another name."


def _find_missing_in_production(settings: Settings) -> Iterator[str]:
    auth = settings.auth
    if auth.session_secret is None:
        yield "AUTH__SESSION_SECRET is missing: `openssl rand -hex 32` prints one."
    if not auth.enabled and not settings.api.allow_unauthenticated:
        yield (
            "AUTH__ENABLED is missing: set it to true, or set API__ALLOW_UNAUTHENTICATED=true if a gateway in front of "
            "REM authenticates callers."
        )
    if auth.has_login and auth.public_url is None:
        yield "AUTH__PUBLIC_URL is missing: the address that people use, such as https://rem.example.com."
    if auth.public_url and auth.public_url.startswith("http://"):
        yield "AUTH__PUBLIC_URL must begin with https:// in production."
