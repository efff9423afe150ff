"""The health check reports what keeps REM from working."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.db.embedded.server import EmbeddedServer
from rem.errors import EncryptionError
from rem.settings import EmbeddingSettings, Settings
from tests.api.live_server import client, served
from tests.encryption.keys import K1, encrypting


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int


async def test_full_disk_of_the_embedded_server_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(rem_home=tmp_path, embedding=EmbeddingSettings(provider="none"))
    async with served(create_app(settings)) as address, client(address) as anyone:
        assert (await anyone.get("/health")).status_code == 200
        monkeypatch.setattr(shutil, "disk_usage", lambda _folder: DiskUsage(10**9, 10**9 - 5_000, 5_000))
        answer = await anyone.get("/health")
        assert answer.status_code == 503
        assert answer.json()["status"] == "unavailable"
        assert "is full (4 kB free): free some space" in answer.json()["detail"]
        assert (await anyone.get("/health/live")).status_code == 200
    EmbeddedServer(tmp_path).stop()


async def test_missing_key_is_reported(settings: Settings) -> None:
    """The server was started before the texts were encrypted."""
    async with served(create_app(settings)) as address, client(address, "alice@example.com") as alice:
        assert (await alice.get("/health")).status_code == 200
        async with Rem.open(encrypting(settings, K1)):
            pass
        answer = await alice.get("/health")
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
        assert "set ENCRYPTION__ENABLED=true and ENCRYPTION__KEYS" in answer.json()["detail"]
        refused = await alice.get("/api/v1/entities/resources")
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, EncryptionError.code)
        assert (await alice.get("/health/live")).status_code == 200
