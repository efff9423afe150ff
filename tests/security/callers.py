"""The callers that attack: another user, another tenant, and nobody; without and with authentication."""

from __future__ import annotations

from rem.app import Rem
from rem.auth.api_keys import ApiKeys
from rem.auth.identity import ALL_SCOPES, Role
from rem.settings import AuthSettings, RateLimitSettings, Settings
from tests.security.victim import ALICE

BOB = "bob@example.com"
ADMINISTRATOR = "a key of an administrator"
CALLERS = (
    *("another user", "the same user in another tenant", "nobody"),
    *("a key of another user", "a key of another tenant", "a key of another user that names Alice", "a forged key"),
    *("a service key of another tenant that names Alice", ADMINISTRATOR),
    "nobody, with authentication",
)


def is_with_authentication(caller: str) -> bool:
    """Return whether the server that a caller attacks authenticates its callers."""
    return "key" in caller or "authentication" in caller


def make_settings(caller: str, settings: Settings) -> Settings:
    """Return the settings of the server that a caller attacks."""
    auth = AuthSettings(enabled=is_with_authentication(caller))
    # Every attack is to reach its route.
    return settings.model_copy(update={"auth": auth, "rate_limit": RateLimitSettings(enabled=False)})


async def make_headers(caller: str, rem: Rem) -> dict[str, str]:
    """Return the headers of a caller."""
    keys = ApiKeys(rem.database)
    match caller:
        case "another user":
            return {"X-User-Id": BOB}
        case "the same user in another tenant":
            return {"X-User-Id": ALICE, "X-Tenant-Id": "other"}
        case "a key of another user":
            return _bearer((await keys.create("bob", BOB, "default"))[0])
        case "a key of another tenant":
            return _bearer((await keys.create("alice", ALICE, "other"))[0])
        case "a key of another user that names Alice":
            return {**_bearer((await keys.create("bob", BOB, "default"))[0]), "X-User-Id": ALICE}
        case "a service key of another tenant that names Alice":
            key, _ = await keys.create("gateway", None, "other", role=Role.SERVICE, scopes=ALL_SCOPES)
            return {**_bearer(key), "X-User-Id": ALICE}
        case "a key of an administrator":
            key, _ = await keys.create("boss", BOB, "default", role=Role.ADMIN, scopes=ALL_SCOPES)
            return _bearer(key)
        case "a forged key":
            key, _ = await keys.create("alice", ALICE, "default")
            return _bearer(key[:-6] + "AAAAAA")
        case _:
            return {}


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
