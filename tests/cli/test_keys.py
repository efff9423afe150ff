"""`rem keys`: create, list and revoke API keys."""

from __future__ import annotations

import json
import re

from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.context import resolve_user_id
from rem.settings import Settings
from tests.cli.test_serve import serving
from tests.rem_command import output, rem
from tests.test_docs import DOCS, read_commands


async def test_keys_of_the_guide_are_made_listed_and_revoked(dsn: str, rem: Rem) -> None:
    here = {"POSTGRES__CONNECTION_STRING": dsn}
    backup, gateway, listing = read_commands(DOCS / "authentication.md", "keys")
    key = output(*backup, settings=here).strip()
    assert re.fullmatch(r"remk_[0-9a-f]{12}_[\w-]{43}", key)
    identity, expires_at = await ApiKeys(rem.database).identify(key)
    assert identity.id == resolve_user_id("sarah@example.com")
    assert identity.scopes == {"read"}
    assert expires_at is not None
    service = json.loads(output(*gateway, "--json", settings=here))
    identity, _ = await ApiKeys(rem.database).identify(service["key"])
    assert (identity.id, identity.tenant_id, identity.role) == (None, "acme", "service")
    listed = output(*listing, settings=here)
    assert "backup script" in listed
    assert "gateway" in listed
    assert key[18:] not in listed
    revoked = output("keys", "revoke", key[:17], settings=here)
    assert revoked == f"{key[:17]} (backup script) is revoked.\n"
    assert json.loads(output("keys", "list", "--user", "sarah@example.com", "--json", settings=here))[0]["revoked_at"]


def test_wrong_keys_are_explained(settings: Settings, dsn: str) -> None:
    here = {"POSTGRES__CONNECTION_STRING": dsn}
    for arguments, code, message in (
        (("create", "x"), 2, "A key needs a user"),
        (
            ("create", "x", "--user", "a@b.c", "--scopes", "root"),
            2,
            "one or more of the scopes admin, chat, read, write",
        ),
        (("create", "x", "--user", "a@b.c", "--expires", "soon"), 2, "is not a duration"),
        (("create", "x", "--user", "a@b.c", "--all-tenants"), 2, "Only a key with the role service"),
        (("create", " ", "--user", "a@b.c"), 2, "1 to 200 characters"),
        (("revoke", "remk_000000000000"), 3, "There is no such key."),
    ):
        refused = rem("keys", *arguments, settings=here)
        assert (refused.returncode, message in refused.stderr) == (code, True), refused.stderr


def test_key_works_on_a_server_in_production(dsn: str) -> None:
    here = {"POSTGRES__CONNECTION_STRING": dsn, "ENVIRONMENT": "production", "AUTH__ENABLED": "true"}
    key = output("keys", "create", "script", "--user", "sarah@example.com", settings=here).strip()
    with serving(settings={**here, "AUTH__SESSION_SECRET": "s" * 32}) as (address, _process):
        import httpx2

        assert httpx2.get(f"{address}/api/v1/sessions").status_code == 401
        answer = httpx2.get(f"{address}/api/v1/sessions", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200
        assert httpx2.get(f"{address}/api/dev/token").status_code == 404
