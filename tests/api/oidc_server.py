"""A login provider on loopback: metadata, authorization, token and key endpoints, with real signatures."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.api.live_server import served
from tests.auth.forging import make_unsigned, sign_hs256

CLIENT_ID, CLIENT_SECRET = "rem-client", "client-secret-for-tests"


@dataclass
class Provider:
    """The provider, whose next login the test chooses."""

    claims: dict[str, Any] = field(
        default_factory=lambda: {
            "sub": "1",
            "email": "sarah@example.com",
            "email_verified": True,
            "name": "Sarah Chen",
        }
    )
    changes: dict[str, Any] = field(default_factory=dict)
    """Claims of the ID token that the test forges, such as `iss` or `nonce`."""
    algorithm: str = "RS256"
    signs_with_foreign_key: bool = False
    issuer_template: str = "{base}"
    base: str = ""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"}))
    requests: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    code_override: str | None = None

    @property
    def issuer(self) -> str:
        return self.issuer_template.replace("{base}", self.base)

    def sign(self, claims: dict[str, Any]) -> str:
        if self.algorithm == "none":
            return make_unsigned(claims, kid="k1")
        if self.algorithm == "HS256":
            # Key confusion: the public key, which everyone knows, as the secret of a symmetric signature.
            return sign_hs256(claims, self.key.as_pem(private=False), kid="k1")
        key = RSAKey.generate_key(2048, {"kid": "k1"}) if self.signs_with_foreign_key else self.key
        return jwt.encode({"alg": "RS256", "kid": "k1"}, claims, key)


def make_provider_app(provider: Provider) -> FastAPI:
    """Return the application of a provider."""
    app = FastAPI()

    @app.get("/{prefix:path}.well-known/openid-configuration")
    def metadata(prefix: str) -> dict[str, Any]:
        return {
            "issuer": provider.issuer,
            "authorization_endpoint": f"{provider.base}/authorize",
            "token_endpoint": f"{provider.base}/token",
            "jwks_uri": f"{provider.base}/keys",
            # A careless provider: REM must not accept these only because they are listed.
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            "code_challenge_methods_supported": ["S256"],
        }

    @app.get("/keys")
    def keys() -> dict[str, Any]:
        return {"keys": [provider.key.as_dict(private=False)]}

    @app.get("/authorize")
    def authorize(request: Request) -> RedirectResponse:
        asked = dict(request.query_params)
        provider.requests.append(asked)
        code = secrets.token_hex(8)
        provider.codes[code] = asked
        answer = urlencode({"code": provider.code_override or code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}", 302)

    @app.post("/token")
    async def token(request: Request) -> JSONResponse:
        form = dict(await request.form())
        asked = provider.codes.pop(str(form.get("code")), None)
        verifier = str(form.get("code_verifier", ""))
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or challenge != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        standard = {"iss": provider.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims = {**standard, **provider.claims, **provider.changes}
        id_token = provider.sign(claims)
        return JSONResponse({"access_token": "at", "token_type": "Bearer", "expires_in": 300, "id_token": id_token})

    return app


@asynccontextmanager
async def provider_served() -> AsyncIterator[Provider]:
    """Serve a provider."""
    provider = Provider()
    async with served(make_provider_app(provider)) as base:
        provider.base = base
        yield provider
