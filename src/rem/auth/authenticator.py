"""Find out who calls: from a Bearer token, an API key, the session cookie, or nothing."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Literal
from uuid import UUID

from rem.auth.accounts import Accounts, list_administrators
from rem.auth.api_keys import KEY_PREFIX, ApiKeys
from rem.auth.headers import apply_headers, read_cookie, trust_headers
from rem.auth.identity import Identity, Role, Tier, make_anonymous
from rem.auth.logins import Logins
from rem.auth.signing import Purpose, Signer
from rem.db.database import Database
from rem.db.sql import query
from rem.errors import MemoryDisabledError, UnauthorizedError
from rem.settings import Settings

CACHE_SECONDS = 5.0
"""How long a process remembers a credential: a revoked one is refused everywhere after this time at the latest."""
MAX_CACHED_IDENTITIES = 10_000
MAX_CREDENTIAL_CHARS = 8192
SESSION_COOKIE = "rem_session"
HOST_PREFIX = "__Host-"
DEV_PREFIX = "dev_"
DEV_USER_ID = "test-user"
DEV_EMAIL = "test@rem.local"
DEV_NAME = "Test User"


class IdentityCache:
    """Remembers for a few seconds who a credential belongs to. It keeps hashes, not the credentials."""

    def __init__(self, seconds: float = CACHE_SECONDS) -> None:
        self._seconds = seconds
        self._entries: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()

    def get(self, credential: str) -> Identity | None:
        """Return the identity of a credential that was checked a moment ago."""
        entry = self._entries.get(_hash(credential))
        return entry[1] if entry is not None and entry[0] > time.time() else None

    def put(self, credential: str, identity: Identity, expires_at: float | None) -> None:
        """Remember a credential that was checked, but not longer than it is valid."""
        until = time.time() + self._seconds
        self._entries[_hash(credential)] = (until if expires_at is None else min(until, expires_at), identity)
        if len(self._entries) > MAX_CACHED_IDENTITIES:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget everything, so that what was revoked in this process is refused at once."""
        self._entries.clear()


class Authenticator:
    """Finds out who calls."""

    def __init__(self, settings: Settings, database: Database | None) -> None:
        self._settings = settings
        self._database = database
        self._administrators = list_administrators(settings.auth)
        self.cache = IdentityCache()

    @cached_property
    def signer(self) -> Signer:
        """The signer. Its secret is read when it is needed, because that may create a file."""
        return Signer.from_settings(self._settings)

    @cached_property
    def logins(self) -> Logins:
        """The logins of people."""
        return Logins(self.database, self.signer, self._settings.auth)

    @cached_property
    def keys(self) -> ApiKeys:
        """The API keys."""
        return ApiKeys(self.database)

    @cached_property
    def accounts(self) -> Accounts:
        """The accounts of people."""
        return Accounts(self.database)

    @property
    def database(self) -> Database:
        """The database. Raise MemoryDisabledError if it is switched off."""
        if self._database is None:
            raise MemoryDisabledError
        return self._database

    @property
    def cookie_name(self) -> str:
        """The name of the session cookie."""
        return self.name_cookie(SESSION_COOKIE)

    def name_cookie(self, name: str) -> str:
        """Return the whole name of a cookie.

        Browsers accept the prefix only from HTTPS, for exactly this host: no other host of the domain can plant one.
        """
        return f"{HOST_PREFIX}{name}" if self.is_secure else name

    @property
    def is_secure(self) -> bool:
        """Return True if cookies are for HTTPS only."""
        return self._settings.is_production or (self._settings.auth.public_url or "").startswith("https://")

    async def authenticate(self, headers: Mapping[str, str]) -> Identity:
        """Return the caller of a request with these headers.

        Raise UnauthorizedError if it sends a credential that is not valid, and ForbiddenError if a header names
        someone else.
        """
        identity = await self._identify(headers)
        if identity is None and not self._settings.auth.enabled:
            return trust_headers(headers)
        return apply_headers(identity or make_anonymous(self._settings.auth.tenant), headers)

    async def is_valid(self, identity: Identity) -> bool:
        """Return whether the key or login of a caller is still valid. A token that has expired proves its login."""
        if identity.method not in ("api_key", "token", "cookie"):
            return True
        name = "is_key_valid" if identity.method == "api_key" else "is_login_valid"
        async with self.database.connection() as connection:
            return bool(await connection.fetchval(query("auth/auth", name), UUID(identity.credential_id)))

    async def _identify(self, headers: Mapping[str, str]) -> Identity | None:
        token = _get_bearer(headers)
        if token is not None:
            # Without authentication, clients of other systems send keys of their own, which mean nothing here.
            if self._settings.auth.enabled or token.startswith((DEV_PREFIX, KEY_PREFIX)):
                return await self._identify_token(token)
            return None
        cookie = self._get_cookie(headers) if self._settings.auth.enabled else None
        if cookie is None:
            return None
        try:
            return await self._check_login(Purpose.SESSION, cookie)
        except UnauthorizedError:
            # Browsers send an old cookie with every request, also with the one that logs in again.
            return None

    async def _identify_token(self, token: str) -> Identity:
        if token.startswith(DEV_PREFIX):
            if self._settings.is_production or not is_dev_token(self.signer, token):
                raise UnauthorizedError("The development token is not valid here.")
            return make_dev_identity(self._settings.auth.tenant)
        if token.startswith(KEY_PREFIX):
            return await self._check_key(token)
        return await self._check_login(Purpose.ACCESS, token)

    async def _check_key(self, key: str) -> Identity:
        identity = self.cache.get(key)
        if identity is None:
            identity, expires_at = await self.keys.identify(key, self._administrators)
            self.cache.put(key, identity, expires_at)
        return identity

    async def _check_login(self, purpose: Literal[Purpose.ACCESS, Purpose.SESSION], token: str) -> Identity:
        # The same text must not count as a token and as a cookie.
        name = f"{purpose} {token}"
        identity = self.cache.get(name)
        if identity is None:
            identity, expires_at = await self.logins.identify(purpose, token)
            self.cache.put(name, identity, expires_at)
        return identity

    def _get_cookie(self, headers: Mapping[str, str]) -> str | None:
        value = read_cookie(headers.get("cookie", ""), self.cookie_name)
        return value if value and len(value) <= MAX_CREDENTIAL_CHARS else None


def _get_bearer(headers: Mapping[str, str]) -> str | None:
    """Return the Bearer token of a request. Other kinds of Authorization are not for us."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        return None
    if len(token) > MAX_CREDENTIAL_CHARS:
        raise UnauthorizedError("The token is too long to be one of this server.")
    return token.strip()


def _hash(credential: str) -> bytes:
    return sha256(credential.encode(errors="replace")).digest()


def make_dev_token(signer: Signer) -> str:
    """Return the development token. It is the same as long as the secret is."""
    return DEV_PREFIX + signer.digest("development token")[:32]


def is_dev_token(signer: Signer, token: str) -> bool:
    """Return True if a text is the development token."""
    return hmac.compare_digest(make_dev_token(signer).encode(), token.encode(errors="replace"))


def make_dev_identity(tenant_id: str) -> Identity:
    """Return the test user, who is an administrator of the tier pro."""
    return Identity(DEV_USER_ID, tenant_id, Role.ADMIN, Tier.PRO, DEV_EMAIL, DEV_NAME, method="dev")
