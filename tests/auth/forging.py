"""Make tokens as an attacker would, past the libraries that refuse to."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any


def encode(part: dict[str, Any] | bytes) -> str:
    """Return a part of a token."""
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode(part: str) -> dict[str, Any]:
    """Return what is in a part of a token."""
    decoded: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return decoded


def sign_hs256(claims: dict[str, Any], secret: bytes, **header: str) -> str:
    """Return a token with a symmetric signature, also with a public key as its secret (key confusion)."""
    signed = f"{encode({'alg': 'HS256', **header})}.{encode(claims)}"
    return f"{signed}.{encode(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def make_unsigned(claims: dict[str, Any], algorithm: str = "none", **header: str) -> str:
    """Return a token without a signature."""
    return f"{encode({'alg': algorithm, **header})}.{encode(claims)}."
