"""A server does not start without the settings that authentication needs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from rem.api.main import create_app
from rem.auth.production import check_auth_settings
from rem.errors import SettingsError
from rem.settings import AuthSettings, MicrosoftSettings, OAuthClientSettings, OidcSettings, PostgresSettings, Settings

SECRET = SecretStr("s" * 32)
GOOGLE = OAuthClientSettings(client_id="id", client_secret=SECRET)


def settings(environment: str = "production", postgres: bool = True, **auth: Any) -> Settings:
    return Settings(
        environment=environment,
        auth=AuthSettings(**auth),
        postgres=PostgresSettings(enabled=postgres),
    )


def test_complete_settings_are_accepted() -> None:
    check_auth_settings(settings("development"))
    check_auth_settings(settings("development", enabled=True))
    check_auth_settings(settings(enabled=True, session_secret=SECRET))
    check_auth_settings(
        settings(enabled=True, session_secret=SECRET, google=GOOGLE, public_url="https://rem.example.com")
    )


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (settings(), ["AUTH__SESSION_SECRET", "AUTH__ENABLED", "API__ALLOW_UNAUTHENTICATED"]),
        (settings(enabled=True), ["AUTH__SESSION_SECRET"]),
        (settings(enabled=True, google=GOOGLE), ["AUTH__SESSION_SECRET", "AUTH__PUBLIC_URL"]),
        (settings(enabled=True, session_secret=SECRET, public_url="http://x.org"), ["AUTH__PUBLIC_URL must", "https"]),
        (settings("development", postgres=False, enabled=True), ["POSTGRES__ENABLED"]),
        (
            settings("development", enabled=True, google=OAuthClientSettings(client_id="a")),
            ["AUTH__GOOGLE__CLIENT_SECRET"],
        ),
        (
            settings("development", enabled=True, microsoft=MicrosoftSettings(client_id="a")),
            ["AUTH__MICROSOFT__CLIENT_SECRET"],
        ),
        (
            settings("development", enabled=True, oidc=OidcSettings(client_id="a")),
            ["AUTH__OIDC__CLIENT_SECRET", "AUTH__OIDC__ISSUER"],
        ),
        (settings("development", enabled=True, oidc=OidcSettings(name="google")), ["AUTH__OIDC__NAME"]),
    ],
)
def test_missing_settings_are_named_all_at_once(given: Settings, missing: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        check_auth_settings(given)
    for name in missing:
        assert name in str(refused.value)
    with pytest.raises(SettingsError, match=r"REM does not start"):
        create_app(given)


@pytest.mark.parametrize(
    ("environment", "enabled", "given", "expected"),
    [
        ("development", False, False, True),
        ("development", True, None, True),
        ("staging", True, None, True),
        ("production", True, None, False),
        ("production", True, True, True),
        ("development", True, False, False),
    ],
)
def test_anonymous_callers_are_served_outside_of_production(
    environment: str, enabled: bool, given: bool | None, expected: bool
) -> None:
    assert settings(environment, enabled=enabled, allow_anonymous=given).allows_anonymous is expected


@pytest.mark.parametrize(
    ("written", "meant"), [("prod", "production"), ("Production ", "production"), ("dev", "development")]
)
def test_short_names_of_the_environment(written: str, meant: str) -> None:
    assert settings(written).environment == meant


def test_unknown_environment_is_an_error() -> None:
    with pytest.raises(ValueError, match="production"):
        settings("prodution")


def test_short_secrets_are_an_error() -> None:
    for given in ({"session_secret": SecretStr("short")}, {"previous_secrets": [SECRET, SecretStr("short")]}):
        with pytest.raises(ValueError, match="at least 32 characters"):
            AuthSettings(**given)
