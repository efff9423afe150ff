"""The server sends the web interface: the built files are current, small, cached, and allowed to do nothing else."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import httpx2
import pytest
from tooling.api_types import TYPES_FILE, write_types
from tooling.web_manifest import MANIFEST, hash_sources

from rem.api.main import create_app
from rem.api.web import MIN_COMPRESSED_BYTES, WEB_FOLDER
from rem.auth.access import WEB_PAGES
from rem.settings import Settings
from tests.api.auth_server import auth_served, browser
from tests.api.live_server import served

MAX_FIRST_LOAD_BYTES = 300_000


def test_the_built_files_are_current() -> None:
    assert MANIFEST.read_text(encoding="utf-8").strip() == hash_sources(), "web/ has changed: run make web"


def test_the_types_of_the_api_are_current() -> None:
    assert write_types(create_app(Settings()).openapi()) == TYPES_FILE.read_text(encoding="utf-8"), "run make web-types"


async def test_every_page_is_the_same_page(anyone: httpx2.AsyncClient) -> None:
    page = (WEB_FOLDER / "index.html").read_text(encoding="utf-8")
    for path in (*WEB_PAGES, "/chat/550e8400-e29b-41d4-a716-446655440000", "/memory/resources/a/b"):
        response = await anyone.get(path)
        assert (response.status_code, response.text) == (200, page), path
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"


async def test_the_page_runs_only_its_own_scripts(anyone: httpx2.AsyncClient) -> None:
    response = await anyone.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", response.text) is None


async def test_the_first_load_is_small(anyone: httpx2.AsyncClient) -> None:
    page = (await anyone.get("/")).text
    first = re.findall(r'(?:src|href)="(/assets/[^"]+)"', page)
    assert first
    total = 0
    for path in first:
        async with anyone.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as response:
            raw = b"".join([part async for part in response.aiter_raw()])
        is_compressed = response.headers.get("content-encoding") == "gzip"
        assert is_compressed or len(raw) < MIN_COMPRESSED_BYTES
        assert "immutable" in response.headers["cache-control"]
        assert (gzip.decompress(raw) if is_compressed else raw) == (WEB_FOLDER / path.removeprefix("/")).read_bytes()
        total += len(raw)
    assert total < MAX_FIRST_LOAD_BYTES


async def test_a_browser_that_has_a_file_gets_it_only_once(anyone: httpx2.AsyncClient) -> None:
    etag = (await anyone.get("/")).headers["etag"]
    again = await anyone.get("/", headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["/assets/none.js", "/assets/..%2findex.html", "/assets/%2e%2e/web.py", "/nowhere"])
async def test_other_paths_are_not_files(anyone: httpx2.AsyncClient, path: str) -> None:
    response = await anyone.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


async def test_paths_of_the_api_stay_what_they_are(anyone: httpx2.AsyncClient) -> None:
    for path in ("/api/v1/nothing", "/v1/nothing", "/api/v1/sessions/none"):
        assert (await anyone.get(path)).json()["error"]["code"] == "not_found"
    assert (await anyone.get("/health/live")).json() == {"status": "ok", "detail": None}
    assert (await anyone.post("/")).status_code == 405


async def test_the_page_needs_no_login_and_says_which_ones_there_are(settings: Settings) -> None:
    async with auth_served(settings, allow_anonymous=False) as address, browser(address) as client:
        assert (await client.get("/chat")).status_code == 200
        assert (await client.get("/api/v1/sessions")).status_code == 401
        logins = (await client.get("/api/auth/providers")).json()
    assert logins == {
        "providers": [],
        "login_urls": {},
        "is_required": True,
        "allows_anonymous": False,
        "has_dev_token": True,
        "default_user": None,
    }


async def test_without_authentication_the_default_user_is_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.yaml"
    app = create_app(settings.model_copy(update={"rem_home": tmp_path}))
    async with served(app) as address, browser(address) as client:

        async def read_user() -> str | None:
            logins = (await client.get("/api/auth/providers")).json()
            assert (logins["is_required"], logins["has_dev_token"]) == (False, False)
            user: str | None = logins["default_user"]
            return user

        assert await read_user() is None
        # What `rem config set user` writes holds without a restart; the environment of the server overrides it.
        file.write_text("user: alice@example.com\n", encoding="utf-8")
        assert await read_user() == "alice@example.com"
        monkeypatch.setenv("REM_USER", "bob@example.com")
        assert await read_user() is None
        monkeypatch.delenv("REM_USER")
        file.write_text("usr: misspelt@example.com\n", encoding="utf-8")
        assert await read_user() is None
