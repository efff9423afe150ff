"""Requests get an id and one line in the log, which says nothing of what was asked."""

from __future__ import annotations

import re
import time
from uuid import uuid4

from loguru import logger
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.errors import error_response
from rem.api.logs import described

HEADER = "X-Request-Id"
_SANE = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")


class RequestLog:
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
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        with logger.contextualize(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            except Exception as error:  # whatever it is, the client gets an answer and we a line
                logger.error("{}", described(error))
                if status:
                    raise
                await _failed(request_id)(scope, receive, send_with_id)
            finally:
                _log_request(scope, status, (time.perf_counter() - start) * 1000)


def _request_id(headers: Headers) -> str:
    """The client's own id, if it is one that may stand in a log; else a new one."""
    given = headers.get(HEADER, "")
    return given if _SANE.match(given) else uuid4().hex


def _failed(request_id: str) -> ASGIApp:
    return error_response(
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
