"""ASGI middleware that writes an entry of the audit log for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.middleware import get_path_template
from rem.api.rate_limit import find_network
from rem.audit.entry import SYNCHRONOUS, Action, AuditEntry, audit_scope, note_action
from rem.auth.access import READING_POSTS
from rem.context import DEFAULT_TENANT, resolve_user_id
from rem.mcp.http import MCP_PATH

if TYPE_CHECKING:
    from rem.audit.log import AuditLog
    from rem.auth.identity import Identity

_AUDITED_PREFIXES = ("/api/", "/v1/")
_READING_POSTS = frozenset((*READING_POSTS, MCP_PATH, f"{MCP_PATH}/"))
"""Paths whose POST reads; what a tool of MCP does beyond that, the tool notes."""
_IS_AUDITED = "is_audited"
"""Marks a request in its state that has reached the AuditMiddleware."""
_TABLE_OF_PARAMETER = {
    "session": "sessions",
    "message": "messages",
    "approval": "approvals",
    "file_id": "files",
    "run": "dream_runs",
    "job": "jobs",
    "login": "logins",
}
_PARAMETERS_WITHOUT_ROW = frozenset(("provider", "model"))


class AuditMiddleware:
    """Writes who did what, after the answer; for deletions, approvals and administration before the answer.

    The log is `app.state.audit_log`; without one, nothing is written.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        log = _get_log(scope)
        if log is None:
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})[_IS_AUDITED] = True
        entry = _start_entry(scope)
        is_recorded = False

        async def send_audited(message: Message) -> None:
            nonlocal is_recorded
            if message["type"] == "http.response.start":
                _complete(entry, scope, message["status"])
                if entry.action in SYNCHRONOUS and message["status"] < 400:
                    await log.record(entry)
                    is_recorded = True
            await send(message)

        with audit_scope(entry):
            try:
                await self._app(scope, receive, send_audited)
            finally:
                if not is_recorded:
                    log.add(entry)


class RefusalAuditMiddleware:
    """Writes an entry for a request that is refused (401, 403) before it reaches the AuditMiddleware.

    It runs outside of the authentication. Requests beyond a rate limit (429) have no entry: so nobody can fill the log.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        log = _get_log(scope)
        if log is None:
            await self._app(scope, receive, send)
            return

        async def send_audited(message: Message) -> None:
            is_refused = message["type"] == "http.response.start" and message["status"] in (401, 403)
            if is_refused and not scope.get("state", {}).get(_IS_AUDITED):
                log.add(_make_refusal(scope, message["status"]))
            await send(message)

        await self._app(scope, receive, send_audited)


def _get_log(scope: Scope) -> AuditLog | None:
    """Return the log for a request; None if it has no entry."""
    if scope["type"] != "http" or not scope["path"].startswith(_AUDITED_PREFIXES):
        return None
    return getattr(scope["app"].state, "audit_log", None) if "app" in scope else None


def _make_refusal(scope: Scope, status: int) -> AuditEntry:
    """Return the entry of a refused request. Without a proven caller it is in the tenant of anonymous callers."""
    entry = _start_entry(scope)
    if entry.method in (None, "none"):
        entry.tenant_id = scope["app"].state.settings.auth.tenant
        entry.action = Action.LOGIN
    else:
        entry.action = classify(scope["method"], scope["path"])
    # The path has keys and names, and its template is not known yet.
    entry.operation = f"{scope['method']} (refused)"
    entry.status = status
    return entry


def _start_entry(scope: Scope) -> AuditEntry:
    state = scope.get("state", {})
    identity: Identity | None = state.get("user")
    client = scope.get("client")
    return AuditEntry(
        Action.READ,
        scope["method"],
        tenant_id=DEFAULT_TENANT if identity is None else identity.tenant_id,
        actor=None if identity is None else identity.id,
        role=None if identity is None else identity.role.value,
        via="mcp" if scope["path"].startswith(MCP_PATH) else "http",
        method=None if identity is None else identity.method,
        credential_id=None if identity is None else identity.credential_id,
        client=find_network(client[0]) if client else None,
        request_id=state.get("request_id"),
    )


def _complete(entry: AuditEntry, scope: Scope, status: int) -> None:
    """Fill in what is known when the answer begins: the route, its status, and the rows that the path names."""
    # The routes of MCP have no template.
    template = MCP_PATH if entry.via == "mcp" else get_path_template(scope)
    entry.status = status
    entry.operation = f"{scope['method']} {template}"
    note_action(classify(scope["method"], template))
    parameters = {name: str(value) for name, value in scope.get("path_params", {}).items()}
    user = parameters.pop("user", None)
    if user is not None:
        entry.subject = entry.subject or resolve_user_id(user)
    if entry.targets:
        return
    table, key = parameters.pop("table", None), parameters.pop("key", None)
    if table is not None:
        entry.add_target(table, key)
    for name, value in parameters.items():
        if name in _PARAMETERS_WITHOUT_ROW:
            continue
        entry.add_target(_TABLE_OF_PARAMETER.get(name, name), value)


def classify(method: str, template: str) -> Action:
    """Return what a request does, by its method and the template of its path."""
    if "/admin/" in template:
        return Action.ADMIN
    if template.startswith(("/api/auth/", "/api/dev/")):
        return Action.LOGIN
    if method in ("GET", "HEAD", "OPTIONS"):
        return Action.READ
    if "/approvals/" in template:
        return Action.APPROVE
    if method == "DELETE" or template.endswith("/clear"):
        return Action.DELETE
    return Action.READ if template in _READING_POSTS else Action.WRITE
