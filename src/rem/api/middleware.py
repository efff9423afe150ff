"""ASGI middleware: the request log with request ids, and the limits on the size and the time of bodies."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Collection, Mapping
from uuid import uuid4

from loguru import logger
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rem.api.errors import make_error_response
from rem.log_output import LogFormat, describe_exception, log_to_stderr


class LogHandler(logging.Handler):
    """Sets up loguru and passes uvicorn's log records to it. `rem serve` creates one in each server process."""

    def __init__(self, min_level: str, log_format: LogFormat = "text") -> None:
        super().__init__(min_level)
        log_to_stderr(min_level, log_format)

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record."""
        level = record.levelname if record.levelname in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL") else "DEBUG"
        exception = f": {describe_exception(record.exc_info[1])}" if record.exc_info and record.exc_info[1] else ""
        logger.log(level, "{}{}", record.getMessage(), exception)


REQUEST_ID_HEADER = "X-Request-Id"
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
"""Ids that clients may choose: short, and safe to write into a log line."""


class RequestIdMiddleware:
    """Gives each request an id, for its answer, its log lines and its entry in the audit log, also if it is refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _choose_request_id(Headers(scope=scope))
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with logger.contextualize(request_id=request_id):
            await self._app(scope, receive, send_with_id)


class RequestLogMiddleware:
    """Logs the status and duration of each request, and answers 500 for unexpected exceptions.

    The log line has the template of the path, not the path, because paths contain keys and names of people.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        start = time.perf_counter()

        async def send_noticed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noticed)
        except ClientDisconnect:
            # Nobody waits for an answer.
            pass
        except Exception as error:  # any failure must give the client a response and us a log line
            logger.error("{}", describe_exception(error))
            if status:
                raise
            await _internal_error_response(scope["state"]["request_id"])(scope, receive, send_noticed)
        finally:
            _log_request(scope, status, (time.perf_counter() - start) * 1000)


def _choose_request_id(headers: Headers) -> str:
    """Return the id that the client sent if it is safe to log, otherwise a new one."""
    client_id = headers.get(REQUEST_ID_HEADER, "")
    return client_id if REQUEST_ID.match(client_id) else uuid4().hex


def _internal_error_response(request_id: str) -> ASGIApp:
    return make_error_response(
        500,
        "internal_error",
        f"REM failed. Find the reason in its log, under the request id {request_id}.",
        details={"request_id": request_id},
    )


def _log_request(scope: Scope, status: int, milliseconds: float) -> None:
    route = get_path_template(scope)
    fields = {"method": scope["method"], "route": route, "status": status, "ms": round(milliseconds, 1)}
    # There is no status if the client disconnected before the response began.
    logger.bind(**fields).info("{} {} {} {} ms", scope["method"], route, status or "-", fields["ms"])


def get_path_template(scope: Scope) -> str:
    """Return the path with parameter names instead of values, such as `/api/v1/entities/{table}/{key}`.

    A route knows only its own part of the template, without the prefix of its router.
    """
    template = getattr(scope.get("route"), "path_format", None)
    if template is None:
        return "(no route)"
    values = scope.get("path_params", {})
    suffix = re.sub(r"{(\w+)}", lambda name: str(values.get(name[1], name[0])), template)
    path: str = scope["path"]
    return path[: len(path) - len(suffix)] + template if path.endswith(suffix) else str(template)


MIN_BODY_BYTES_PER_SECOND = 10_000
JSON_MARKS = (b",", b"[", b"{")
"""At most one of them for each value."""
MAX_JSON_VALUES = 20_000
"""A body with more takes long to check, and no other request is served meanwhile. Long texts are one value."""


class JsonValueCounter:
    """Counts the values of JSON while it arrives. Characters inside of texts do not count."""

    def __init__(self) -> None:
        self.values = 0
        self._is_in_text = False
        self._rest = b""

    def add(self, part: bytes) -> None:
        """Count the values that begin in the next part."""
        part = self._rest + part
        # A backslash at the end belongs to the first character of the next part.
        is_cut = (len(part) - len(part.rstrip(b"\\"))) % 2 == 1
        part, self._rest = (part[:-1], part[-1:]) if is_cut else (part, b"")
        pieces = part.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        # With NUL it is no UTF-8: in UTF-16, the characters of texts cannot be told apart here.
        outside = part if b"\0" in part else b"".join(pieces[1 if self._is_in_text else 0 :: 2])
        self.values += sum(map(outside.count, JSON_MARKS))
        self._is_in_text ^= len(pieces) % 2 == 0


class BodyLimitMiddleware:
    """Refuses request bodies of more than `max_bytes`, by their Content-Length or while they arrive, and slow ones.

    A body is slow if REM has waited for it for `max_seconds`, and for the time that its bytes take at
    MIN_BODY_BYTES_PER_SECOND. `max_bytes_by_path` has the paths with another limit. It also refuses JSON of very many
    values; `form_paths` are the paths that take forms with files, which are no JSON.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        max_bytes_by_path: Mapping[str, int] | None = None,
        *,
        max_seconds: float = 30.0,
        form_paths: Collection[str] = (),
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_bytes_by_path = max_bytes_by_path or {}
        self._max_seconds = max_seconds
        self._form_paths = form_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        max_bytes = self._max_bytes_by_path.get(scope["path"], self._max_bytes)
        message_text = f"The body is larger than {max_bytes:,} bytes, the limit for one request."
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > max_bytes:
            await make_error_response(413, "body_too_large", message_text)(scope, receive, send)
            return
        is_form = Headers(scope=scope).get("content-type", "").lower().startswith("multipart/")
        counter = None if is_form and scope["path"] in self._form_paths else JsonValueCounter()
        received_bytes, waited_seconds, is_complete = 0, 0.0, False

        async def receive_limited() -> Message:
            nonlocal received_bytes, waited_seconds, is_complete
            if is_complete:
                # What follows is the end of the connection, which may come at any time.
                return await receive()
            started = time.monotonic()
            max_wait = self._max_seconds + received_bytes / MIN_BODY_BYTES_PER_SECOND - waited_seconds
            try:
                async with asyncio.timeout(max_wait):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    408, "The body of the request arrives too slowly: send it again.", {"Connection": "close"}
                ) from None
            waited_seconds += time.monotonic() - started
            body = message.get("body", b"")
            received_bytes += len(body)
            if received_bytes > max_bytes:
                raise HTTPException(413, message_text)
            if counter is not None:
                counter.add(body)
                if counter.values > MAX_JSON_VALUES:
                    raise HTTPException(413, f"The body has more than {MAX_JSON_VALUES:,} values: send less at once.")
            is_complete = not message.get("more_body", False)
            return message

        await self._app(scope, receive_limited, send)
