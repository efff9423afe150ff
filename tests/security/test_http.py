"""Every route of the HTTP API answers another user, another tenant and nobody as if Alice had no memory."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from rem.api.main import create_app
from rem.app import Rem
from rem.settings import Settings
from tests.api.live_server import served
from tests.security.callers import ADMINISTRATOR, CALLERS, make_headers, make_settings
from tests.security.http_attacks import (
    API,
    LOGIN,
    MCP,
    PUBLIC,
    WRITES_OWN_ROW,
    Attack,
    list_attacks,
    list_routes,
    send_attack,
)
from tests.security.victim import NAME, SECRET, Victim, create_victim, take_fingerprint


def test_every_route_is_known_to_the_attacks() -> None:
    routes = list_routes(create_app())
    assert len(routes) > 40
    assert routes >= (PUBLIC | LOGIN | MCP | WRITES_OWN_ROW), "a route that no longer exists is described"


async def test_victim_has_a_row_of_every_table(rem: Rem, settings: Settings) -> None:
    victim = await create_victim(rem, settings)
    assert set(victim.rows) == set(rem.for_user().store.types.models)


@pytest.mark.parametrize("caller", CALLERS)
async def test_nobody_else_reads_or_changes_a_memory(
    caller: str, rem: Rem, settings: Settings, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    victim = await create_victim(rem, settings)
    await rem.index()
    headers = await make_headers(caller, rem)
    app = create_app(make_settings(caller, settings))
    before = await take_fingerprint(sql, victim)
    failures: list[str] = []
    async with served(app) as address, httpx2.AsyncClient(base_url=address, timeout=30) as http:
        for attack in list_attacks(list_routes(app), victim):
            if caller == ADMINISTRATOR and attack.path.startswith(f"{API}/admin/"):
                # Administrators manage accounts, and see the names of these people, but not what they have stored.
                if attack.method != "GET":
                    continue
                attack = replace(attack, is_refused=False, checks_names="/users" not in attack.path)
            response = await send_attack(http, attack, headers)
            failures += _check(attack, response)
            if attack.is_refused and response.status_code not in (401, 403, 404):
                missing = await send_attack(
                    http, replace(attack, path=attack.path.replace(*_forge_id(attack, victim))), headers
                )
                if missing.status_code != response.status_code:
                    failures.append(f"{attack}: {response.status_code}, for a missing one {missing.status_code}")
            if attack.method != "GET" and (after := await take_fingerprint(sql, victim)) != before:
                failures.append(f"{attack}: changed {[name for name in after if after[name] != before[name]]}")
                before = after
    assert not failures, "\n".join(failures)


def _forge_id(attack: Attack, victim: Victim) -> tuple[str, str]:
    """Return the identifier in the path of an attack, and one that does not exist."""
    known = [
        *victim.identifiers,
        str(victim.session_id),
        victim.session_name,
        str(victim.message_id),
        str(victim.file_id),
    ]
    identifier = max((text for text in known if text in attack.path), key=len)
    return identifier, str(uuid4())


def _check(attack: Attack, response: httpx2.Response) -> list[str]:
    failures = []
    text = response.text
    sent = f"{attack.path} {attack.body} {attack.headers}".lower()
    if response.status_code >= 500:
        failures.append(f"{attack}: {response.status_code} {text[:300]}")
    if SECRET in text:
        failures.append(f"{attack}: leaks the content: {text[:300]}")
    if attack.checks_names and NAME in text.lower() and NAME not in sent:
        failures.append(f"{attack}: leaks a name: {text[:300]}")
    return failures
