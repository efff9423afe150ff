"""The development token: a Bearer token of a test user, made from the secret of the installation."""

from __future__ import annotations

import hmac

from rem.auth.identity import Identity, Role, Tier
from rem.auth.signing import Signer

DEV_PREFIX = "dev_"
DEV_USER_ID = "test-user"
DEV_EMAIL = "test@rem.local"
DEV_NAME = "Test User"


def make_dev_token(signer: Signer) -> str:
    """Return the development token. It is the same as long as the secret is."""
    return DEV_PREFIX + signer.digest("development token")[:32]


def is_dev_token(signer: Signer, token: str) -> bool:
    """Return True if a text is the development token."""
    return hmac.compare_digest(make_dev_token(signer).encode(), token.encode(errors="replace"))


def make_dev_identity(tenant_id: str) -> Identity:
    """Return the test user, who is an administrator of the tier pro."""
    return Identity(DEV_USER_ID, tenant_id, Role.ADMIN, Tier.PRO, DEV_EMAIL, DEV_NAME, method="dev")
