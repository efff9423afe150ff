"""Sign and verify tokens and cookies with the secret of the installation."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from rem.errors import SettingsError, UnauthorizedError
from rem.settings import MIN_SECRET_CHARS, Settings

ALGORITHM = "HS256"
CLOCK_SKEW_SECONDS = 10
_FILE_NAME = "session-secret"


class Purpose(StrEnum):
    """What a signed text is for. Each purpose has its own key and audience, so one cannot stand in for another."""

    ACCESS = "access"
    SESSION = "session"
    HANDSHAKE = "handshake"
    """The state of a login in progress."""
    CONSENT = "consent"
    """What a client asks a person to allow."""


class Signer:
    """Signs with the newest secret, and verifies with any of them."""

    def __init__(self, secrets_newest_first: list[str], issuer: str = "rem") -> None:
        self._secrets = secrets_newest_first
        self._issuer = issuer
        self._keys = {purpose: [_derive_key(secret, purpose) for secret in self._secrets] for purpose in Purpose}

    @classmethod
    def from_settings(cls, settings: Settings) -> Signer:
        """Return the signer of an installation."""
        earlier = [secret.get_secret_value() for secret in settings.auth.previous_secrets]
        return cls([read_secret(settings), *earlier], settings.auth.public_url or "rem")

    def sign(self, purpose: Purpose, claims: dict[str, Any], lifetime_seconds: float) -> str:
        """Return a signed token with the claims, which expires after its lifetime."""
        now = int(time.time())
        standard = {"iss": self._issuer, "aud": _audience(purpose), "iat": now, "exp": now + int(lifetime_seconds)}
        key = self._keys[purpose][0]
        return jwt.encode({"alg": ALGORITHM, "kid": key.kid}, {**claims, **standard}, key)

    def verify(self, purpose: Purpose, token: str) -> dict[str, Any]:
        """Return the claims of a token that this installation signed for a purpose, and that has not expired.

        Raise UnauthorizedError otherwise. The algorithm is fixed: the token's own header does not choose it.
        """
        checks = jwt.JWTClaimsRegistry(
            leeway=CLOCK_SKEW_SECONDS,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": _audience(purpose)},
            exp={"essential": True},
        )
        for key in self._keys[purpose]:
            try:
                decoded = jwt.decode(token, key, algorithms=[ALGORITHM])
            except (JoseError, ValueError):
                continue
            try:
                checks.validate(decoded.claims)
            except (JoseError, ValueError) as error:
                raise UnauthorizedError("The token has expired, or is not for this server: get a new one.") from error
            return decoded.claims
        raise UnauthorizedError("The token is not valid: it was not signed by this server.")

    def digest(self, purpose: str, text: str = "") -> str:
        """Return a text that only the holder of the newest secret can make, the same for the same purpose and text."""
        message = f"rem {purpose}\0{text}".encode()
        return hmac.new(self._secrets[0].encode(), message, hashlib.sha256).hexdigest()


def _derive_key(secret: str, purpose: Purpose) -> OctKey:
    material = hmac.new(secret.encode(), f"rem {purpose} key".encode(), hashlib.sha256).digest()
    key: OctKey = OctKey.import_key(material, {"kid": hashlib.sha256(material).hexdigest()[:16]})
    return key


def _audience(purpose: Purpose) -> str:
    return f"rem:{purpose}"


def read_secret(settings: Settings) -> str:
    """Return the secret of the installation. Outside of production a missing one is created in REM_HOME."""
    if settings.auth.session_secret is not None:
        return settings.auth.session_secret.get_secret_value()
    if settings.is_production:
        raise SettingsError(
            "AUTH__SESSION_SECRET is missing, and production needs it: `openssl rand -hex 32` prints one."
        )
    return _read_or_create(settings.rem_home / _FILE_NAME)


def _read_or_create(path: Path) -> str:
    """Return the secret in a file. Several processes may start at once: one creates the file, all read it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _create(path)
        secret = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"The secret in {path} cannot be read or created ({error}): set AUTH__SESSION_SECRET instead."
        ) from error
    if len(secret) < MIN_SECRET_CHARS:
        raise SettingsError(f"The secret in {path} is too short: remove the file, and REM creates a new one.")
    return secret


def _create(path: Path) -> None:
    """Create the file with its whole content at once, so that no other process reads a part of it."""
    own = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        try:
            os.link(own, path)
        except FileExistsError:
            return
    finally:
        own.unlink(missing_ok=True)
