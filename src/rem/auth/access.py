"""The scope that a request needs, by its method and path."""

from __future__ import annotations

from rem.auth.identity import CHAT, READ, WRITE, Identity
from rem.errors import ForbiddenError, UnauthorizedError

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
READING_POSTS = frozenset(("/api/v1/query", "/api/v1/embeddings", "/v1/embeddings"))
"""Paths whose POST only reads: a query is too long for an address."""
CHAT_PATHS = frozenset(f"{root}/{path}" for root in ("/api/v1", "/v1") for path in ("chat/completions", "responses"))
PUBLIC_PATHS = ("/health", "/.well-known/", "/docs", "/redoc", "/openapi.json", "/api/dev/token")
"""Paths that need no login even where everything else does."""
AUTH_PATH = "/api/auth"
OWN_PATHS = tuple(f"{AUTH_PATH}/{name}" for name in ("me", "keys", "logins", "tokens"))
"""The paths below AUTH_PATH that are for people who are logged in; the others log them in."""


def is_public(path: str) -> bool:
    """Return True if a path needs no login."""
    if _is_below(path, AUTH_PATH):
        return not any(_is_below(path, own) for own in OWN_PATHS)
    return any(_is_below(path, public.rstrip("/")) for public in PUBLIC_PATHS)


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")


def check_access(identity: Identity, method: str, path: str) -> None:
    """Raise an error if the scopes of a caller do not allow a request.

    Methods that change something need `write`, so a new route is protected without a word.
    """
    if identity.scopes & _get_sufficient_scopes(method, path.rstrip("/")):
        return
    needed = READ if method in SAFE_METHODS else WRITE
    if identity.id is None and not identity.is_authenticated:
        raise UnauthorizedError("This needs a login: send a token or an API key, or log in.")
    raise ForbiddenError(f"The token or key does not have the scope {needed}, which this needs.")


def _get_sufficient_scopes(method: str, path: str) -> frozenset[str]:
    if method in SAFE_METHODS or (method == "POST" and path in READING_POSTS):
        return frozenset((READ,))
    return frozenset((WRITE, CHAT)) if path in CHAT_PATHS else frozenset((WRITE,))
