"""Requests get an id and one line in the log, which says nothing of what was asked."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from uuid import uuid4

from loguru import logger
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.errors import make_error_response
from rem.api.logs import describe_exception

REQUEST_ID_HEADER = "X-Request-Id"
_SANE = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")


class RequestLogMiddleware:
    """Gives each request an id, logs how it ended, and answers for code that failed.

    The line has the path's template, not the path: keys and names of people are parts of paths.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0
        start = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with logger.contextualize(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            except Exception as error:  # whatever it is, the client gets an answer and we a line
                logger.error("{}", describe_exception(error))
                if status:
                    raise
                await _failed(request_id)(scope, receive, send_with_id)
            finally:
                _log_request(scope, status, (time.perf_counter() - start) * 1000)


def _request_id(headers: Headers) -> str:
    """The client's own id, if it is one that may stand in a log; else a new one."""
    given = headers.get(REQUEST_ID_HEADER, "")
    return given if _SANE.match(given) else uuid4().hex


def _failed(request_id: str) -> ASGIApp:
    return make_error_response(
        500,
        "internal_error",
        f"REM failed, and the reason is in its log: look for the request id {request_id} there.",
        details={"request_id": request_id},
    )


def _log_request(scope: Scope, status: int, milliseconds: float) -> None:
    route = _template(scope)
    fields = {"method": scope["method"], "route": route, "status": status, "ms": round(milliseconds, 1)}
    # A client that went away before the answer began has no status.
    logger.bind(**fields).info("{} {} {} {} ms", scope["method"], route, status or "-", fields["ms"])


def _template(scope: Scope) -> str:
    """The path with names in place of values. A route knows only its own part, behind the prefix of its router."""
    template = getattr(scope.get("route"), "path_format", None)
    if template is None:
        return "(no route)"
    values = scope.get("path_params", {})
    end = re.sub(r"{(\w+)}", lambda name: str(values.get(name[1], name[0])), template)
    path: str = scope["path"]
    return path[: len(path) - len(end)] + template if path.endswith(end) else str(template)


class BodyLimitMiddleware:
    """Refuses bodies that are larger than `most_bytes`: at once if they say so, else when they become so.

    `by_path` has the paths that take more, or less.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, by_path: Mapping[str, int] | None = None) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._by_path = by_path or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._by_path.get(scope["path"], self._most_bytes)
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > most:
            await make_error_response(413, "body_too_large", _reason(most))(scope, receive, send)
            return
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > most:
                raise HTTPException(413, _reason(most))
            return message

        await self._app(scope, bounded, send)


def _reason(most: int) -> str:
    return f"The body is larger than {most:,} bytes, which is the most that one request may send."


class HostCheckMiddleware:
    """Answers only requests that call the server by an address, by a name without a dot, or by an allowed name.

    Whoever sets up a name to point here owns a domain, and such names have a dot.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = {name.lower() for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not self._is_allowed(Headers(scope=scope).get("host", "")):
            refusal = make_error_response(
                421, "host_not_allowed", "REM is not called by this name: use its address, or set API__ALLOWED_HOSTS."
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        name = _without_port(host.strip().lower()).rstrip(".")
        is_plain = "." not in name or name.endswith(".localhost") or _is_ip(name)
        return is_plain or name in self._allowed or "*" in self._allowed


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
