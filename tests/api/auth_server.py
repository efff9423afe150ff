"""An API whose callers must prove who they are, with a login provider on loopback."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx2
from pydantic import SecretStr

from rem.api.main import create_app
from rem.settings import AuthSettings, MicrosoftSettings, OidcSettings, Settings
from tests.api.live_server import served
from tests.api.oidc_server import CLIENT_ID, CLIENT_SECRET, Provider

SECRET = "a secret of the tests, long enough"
MAX_COOKIE_BYTES = 4096
"""Browsers drop a cookie that is longer."""


def with_auth(settings: Settings, provider: Provider | None = None, **auth: Any) -> Settings:
    """Return settings with authentication, and the login of a provider."""
    logins: dict[str, Any] = {}
    if provider is not None:
        client = {"client_id": CLIENT_ID, "client_secret": SecretStr(CLIENT_SECRET)}
        logins["oidc"] = OidcSettings(**client, issuer=provider.base)
        logins["microsoft"] = MicrosoftSettings(**client, authority=provider.base)
    values = {"enabled": True, "session_secret": SecretStr(SECRET), **logins, **auth}
    return settings.model_copy(update={"auth": AuthSettings(**values)})


@asynccontextmanager
async def auth_served(
    settings: Settings, provider: Provider | None = None, environment: str = "development", **auth: Any
) -> AsyncIterator[str]:
    """Serve the API with authentication, and yield its address."""
    settings = with_auth(settings, provider, **auth).model_copy(update={"environment": environment})
    async with served(create_app(settings)) as address:
        yield address


@asynccontextmanager
async def browser(address: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client with cookies that follows redirects."""
    async with httpx2.AsyncClient(base_url=address, timeout=30, follow_redirects=True) as client:
        yield client


async def log_in(client: httpx2.AsyncClient, name: str = "oidc") -> dict[str, Any]:
    """Log in as the provider's person, and return who that is."""
    response = await client.get(f"/api/auth/{name}/login")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def get_cookies(response: httpx2.Response) -> list[str]:
    """Return the names and values of all cookies that a request and its redirects were given."""
    answers = (*response.history, response)
    return [cookie.partition(";")[0] for answer in answers for cookie in answer.headers.get_list("set-cookie")]


def bearer(token: str) -> dict[str, str]:
    """Return the header of a token or key."""
    return {"Authorization": f"Bearer {token}"}


def read_form(page: str) -> dict[str, str]:
    """Return the hidden fields of a page."""
    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)}
