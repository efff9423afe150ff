"""HostCheckMiddleware: IP addresses, names without a dot, and allowed names."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from rem.api.main import create_app
from rem.settings import ApiSettings, Settings


def client(*allowed: str) -> httpx.AsyncClient:
    app = create_app(Settings(api=ApiSettings(allowed_hosts=list(allowed))))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8000", "[::1]:8000", "[::1]", "192.168.1.5", "localhost:80", "rem", "rem:8000", "me.localhost", ""],
)
async def test_ip_address_or_plain_host_name_is_allowed(host: str) -> None:
    async with client() as http:
        assert (await http.get("/health/live", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "evil.example."])
async def test_unknown_host_name_is_refused(host: str) -> None:
    async with client() as http:
        refused = await http.get("/health/live", headers={"host": host})
    assert refused.status_code == 421
    assert refused.json()["error"]["code"] == "host_not_allowed"
    assert "API__ALLOWED_HOSTS" in refused.json()["error"]["message"]


async def test_configured_host_names_are_allowed() -> None:
    async with client("REM.example.com") as http:
        assert (await http.get("/health/live", headers={"host": "rem.example.com:443"})).status_code == 200
        assert (await http.get("/health/live", headers={"host": "other.example.com"})).status_code == 421
    async with client("*") as http:
        assert (await http.get("/health/live", headers={"host": "any.example.com"})).status_code == 200
