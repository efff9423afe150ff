"""A key does no more on any route than its scopes allow, although its user may do everything."""

from __future__ import annotations

import asyncpg
import httpx2
import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.auth.access import CHAT_PATHS
from rem.auth.api_keys import ApiKeys
from rem.auth.identity import Role
from rem.settings import Settings
from tests.api.live_server import served
from tests.security.callers import make_settings
from tests.security.http_attacks import Attack, list_attacks, list_routes, send_attack
from tests.security.victim import ALICE, SECRET, create_victim, take_fingerprint


@pytest.mark.parametrize("scope", ["read", "chat", "admin"])
async def test_key_of_the_owner_does_no_more_than_its_scope(
    scope: str, rem: Rem, settings: Settings, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    victim = await create_victim(rem, settings)
    await rem.index()
    key, _ = await ApiKeys(rem.database).create("narrow", ALICE, "default", role=Role.ADMIN, scopes=[scope])
    app = create_app(make_settings("a key of the owner", settings))
    attacks = [attack for attack in list_attacks(list_routes(app), victim) if attack.path not in CHAT_PATHS]
    attacks += [Attack("POST", "/api/auth/tokens"), Attack("POST", "/api/auth/logout?everywhere=true")]
    failures = []
    headers = {"Authorization": f"Bearer {key}"}
    async with served(app) as address, httpx2.AsyncClient(base_url=address, timeout=30) as http:
        # The first use of a key is noted.
        assert (await http.get("/api/auth/providers", headers=headers)).status_code == 200
        before = await take_fingerprint(sql, victim)
        for attack in attacks:
            response = await send_attack(http, attack, headers)
            if response.status_code >= 500:
                failures.append(f"{attack}: {response.status_code} {response.text[:300]}")
            if scope != "read" and SECRET in response.text:
                failures.append(f"{attack}: reads with the scope {scope}")
            if attack.method != "GET" and (after := await take_fingerprint(sql, victim)) != before:
                failures.append(f"{attack}: changed {[name for name in after if after[name] != before[name]]}")
                before = after
    assert not failures, "\n".join(failures)
