"""The scope that a request needs, by its method and path."""

from __future__ import annotations

from rem.auth.identity import CHAT, READ, WRITE, Identity
from rem.errors import ForbiddenError, UnauthorizedError

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
READING_POSTS = frozenset(
    (
        *("/api/v1/query", "/api/v1/query/parse", "/api/v1/ask", "/api/v1/forget/preview"),
        *("/api/v1/embeddings", "/v1/embeddings"),
    )
)
"""Paths whose POST only reads: a query is too long for an address."""
CHAT_PATHS = frozenset(f"{root}/{path}" for root in ("/api/v1", "/v1") for path in ("chat/completions", "responses"))
DOCS_PATH = "/docs"
METRICS_PATH = "/metrics"
PUBLIC_PATHS = ("/health", METRICS_PATH, "/.well-known/", DOCS_PATH, "/openapi.json", "/api/dev/token")
"""Paths that need no login even where everything else does. Metrics have a token of their own."""
WEB_PAGES = ("/", "/chat", "/memory", "/graph", "/timeline", "/files", "/care")
"""Addresses of the web interface. All show the same page, which holds nothing of a user: its scripts fetch that."""
WEB_ASSETS, WEB_ICON = "/assets", "/favicon.svg"
AUTH_PATH = "/api/auth"
OWN_PATHS = tuple(f"{AUTH_PATH}/{name}" for name in ("me", "keys", "logins", "tokens"))
"""The paths below AUTH_PATH that are for people who are logged in; the others log them in."""


def is_public(path: str) -> bool:
    """Return True if a path needs no login."""
    if _is_below(path, AUTH_PATH):
        return not any(_is_below(path, own) for own in OWN_PATHS)
    return is_web(path) or any(_is_below(path, public.rstrip("/")) for public in PUBLIC_PATHS)


def is_web(path: str) -> bool:
    """Return True if a path leads to the web interface: a page, or a file that a page loads."""
    return path in ("/", WEB_ICON) or any(_is_below(path, root) for root in (WEB_ASSETS, *WEB_PAGES) if root != "/")


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent}/")


def check_access(identity: Identity, method: str, path: str) -> None:
    """Raise an error if the scopes of a caller do not allow a request.

    Methods that change something need `write`, so a new route is protected without a word.
    """
    sufficient = _get_sufficient_scopes(method, path.rstrip("/"))
    if identity.scopes & sufficient:
        return
    if identity.id is None and not identity.is_authenticated:
        raise UnauthorizedError("This needs a login: send a token or an API key, or log in.")
    needed = " or ".join(sorted(sufficient))
    raise ForbiddenError(f"The token or key does not have the scope {needed}, which this needs.")


def _get_sufficient_scopes(method: str, path: str) -> frozenset[str]:
    if method in SAFE_METHODS or (method == "POST" and path in READING_POSTS):
        return frozenset((READ,))
    return frozenset((WRITE, CHAT)) if path in CHAT_PATHS else frozenset((WRITE,))
