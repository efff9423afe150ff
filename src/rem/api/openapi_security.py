"""The documentation of logins in the OpenAPI document: how a caller proves who it is, and for which paths."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rem.auth.access import check_access, is_public
from rem.auth.authenticator import Authenticator
from rem.auth.identity import make_anonymous
from rem.errors import UnauthorizedError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from rem.settings import Settings

OPENAPI_PATH = "/openapi.json"
ACCESS_TOKEN, API_KEY, SESSION_COOKIE = "accessToken", "apiKey", "sessionCookie"


def declare_security(app: FastAPI, settings: Settings) -> None:
    """Add the security schemes to the document of an application, and what each of its operations needs."""
    make_document = app.openapi

    making = threading.Lock()

    def make_secured_document() -> dict[str, Any]:
        with making:
            is_made = app.openapi_schema is not None
            document = make_document()
            if not is_made:
                document.setdefault("components", {})["securitySchemes"] = _describe_schemes(settings)
                _require_schemes(document, settings)
            return document

    async def send_document(request: Request) -> Response:
        # Making it takes seconds, in which the event loop must answer others.
        document = await asyncio.to_thread(make_secured_document)
        root_path = request.scope.get("root_path", "").rstrip("/")
        return JSONResponse(document | {"servers": [{"url": root_path}]} if root_path else document)

    app.openapi = make_secured_document  # type: ignore[method-assign]  # as FastAPI documents it
    app.add_route(OPENAPI_PATH, send_document, include_in_schema=False)


def _describe_schemes(settings: Settings) -> dict[str, dict[str, str]]:
    return {
        ACCESS_TOKEN: {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "An access token, which `POST /api/auth/tokens` returns; for development, the token of "
            "`GET /api/dev/token`.",
        },
        API_KEY: {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "remk_…",
            "description": "An API key, which `rem keys create` prints once. It is sent like a token: "
            "`Authorization: Bearer remk_…`.",
        },
        SESSION_COOKIE: {
            "type": "apiKey",
            "in": "cookie",
            "name": Authenticator(settings, None).cookie_name,
            "description": "The cookie of a login in the browser, such as `GET /api/auth/google/login`.",
        },
    }


def _require_schemes(document: dict[str, Any], settings: Settings) -> None:
    """Let every operation name the schemes. An empty requirement means that no login is needed."""
    logins: list[dict[str, list[str]]] = [{name: []} for name in (ACCESS_TOKEN, API_KEY, SESSION_COOKIE)]
    document["security"] = logins
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if is_public(path):
                operation["security"] = []
            elif _serves_anonymous(settings, method.upper(), path):
                operation["security"] = [*logins, {}]


def _serves_anonymous(settings: Settings, method: str, path: str) -> bool:
    """Return whether the authentication middleware lets a caller without a login pass."""
    if not settings.auth.enabled or not settings.allows_anonymous:
        return settings.allows_anonymous
    try:
        check_access(make_anonymous(), method, path)
    except UnauthorizedError:
        return False
    return True
