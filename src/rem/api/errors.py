"""Error responses of the API, all in OpenAI's format: `{"error": {"message", "type", "code", "param", "details"}}`."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

import rem.errors as errors
from rem.text import clean_text

MAX_MESSAGE_CHARS = 4000
"""Messages may quote the input; more of it would not help the reader."""
MAX_VALIDATION_ERRORS = 5
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class ErrorBody(BaseModel):
    """The error itself."""

    message: str = Field(description="For people: the problem, and the next step.")
    type: str = Field(description="`invalid_request_error`, `rate_limit_error` or `server_error`.")
    code: str = Field(description="For programs: a fixed identifier of the problem.")
    param: str | None = Field(default=None, description="The invalid field of the request.")
    details: dict[str, Any] | None = None


class ErrorResponse(BaseModel):
    """The body of every error response."""

    error: ErrorBody


RETRY_AFTER_SECONDS = (2, 6)
"""A failover of the database takes some seconds, and so do most answers of an agent.

Each client is given another time, because all would come at the same moment.
"""

STATUS_BY_ERROR: dict[type[errors.RemError], int] = {
    # As OpenAI does; its clients know the code.
    errors.ModelNotFoundError: 404,
    errors.FetchForbiddenError: 403,
    errors.FileTooLargeError: 413,
    errors.FileUnreadableError: 422,
    errors.QueryTimeoutError: 504,
    errors.SessionNameError: 422,
    errors.InvalidInputError: 400,
    errors.UnauthorizedError: 401,
    errors.ForbiddenError: 403,
    errors.LoginProviderError: 502,
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.MemoryDisabledError: 503,
    errors.CorruptRowError: 500,
    errors.EncryptionError: 500,
    errors.DatabaseError: 503,
    errors.EmbeddingError: 503,
    errors.RerankerError: 503,
    errors.ModelRequiredError: 422,
    errors.ModelTimeoutError: 504,
    errors.ModelRateLimitError: 429,
    # Not a 5xx: clients retry those on their own, and each retry would cost as much again.
    errors.RunLimitError: 422,
    errors.ModelError: 502,
    errors.QueueFullError: 429,
    errors.ToolFailedError: 502,
    errors.ServerStoppingError: 503,
    errors.TooManyChatsError: 429,
    errors.TooManyQueriesError: 429,
    errors.AudioError: 503,
    errors.FetchError: 502,
    errors.MissingExtraError: 503,
    errors.RemError: 500,
}

CODE_BY_STATUS = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    412: "precondition_failed",
    413: "body_too_large",
    415: "unsupported_media_type",
    421: "host_not_allowed",
    422: "invalid_request",
    429: "rate_limit_exceeded",
}


def http_status(error: errors.RemError) -> int:
    """Return the HTTP status of an error of REM; subclasses inherit it."""
    return next(STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_BY_ERROR)


def make_error_body(
    status: int, code: str, message: str, *, param: str | None = None, details: dict[str, Any] | None = None
) -> ErrorBody:
    """Return the error in OpenAI's format. `status` determines its `type`."""
    return ErrorBody(
        message=_make_sendable(message),
        type=_error_type(status),
        code=code,
        param=param and _make_sendable(param),
        details=details,
    )


def to_error_body(error: errors.RemError) -> ErrorBody:
    """Return an error of REM in OpenAI's format, for a response or for the error event of a stream."""
    param = "model" if isinstance(error, errors.ModelNotFoundError) else None
    return make_error_body(http_status(error), error.code, str(error), param=param, details=_error_details(error))


def make_error_response(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    details: dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return an error response in OpenAI's format."""
    return _to_response(status, make_error_body(status, code, message, param=param, details=details), headers)


def describe_validation_error(error: ValidationError | RequestValidationError) -> tuple[str, str | None]:
    """Return a sentence that names the invalid fields and their errors, and the name of the first field."""
    details = error.errors() if isinstance(error, RequestValidationError) else error.errors(include_url=False)
    shown = [(_field_path(detail["loc"]), _describe_detail(detail)) for detail in details[:MAX_VALIDATION_ERRORS]]
    more = f" And {len(details) - len(shown)} more." if len(details) > len(shown) else ""
    text = "; ".join(f"{field}: {message}" if field else message for field, message in shown)
    return f"{text}.{more}", shown[0][0] or None


def install_error_handlers(app: FastAPI) -> None:
    """Make an application answer every error in OpenAI's format."""
    app.exception_handler(errors.RemError)(_handle_rem_error)
    app.exception_handler(RequestValidationError)(_handle_validation_error)
    app.exception_handler(HTTPException)(_handle_http_error)


async def _handle_rem_error(_request: Request, error: errors.RemError) -> JSONResponse:
    return to_error_response(error)


def to_error_response(error: errors.RemError) -> JSONResponse:
    """Return the response for an error of REM."""
    return _to_response(http_status(error), to_error_body(error), _make_retry_headers(error))


def _make_retry_headers(error: errors.RemError) -> dict[str, str] | None:
    if isinstance(error, errors.DatabaseUnavailableError | errors.TooManyChatsError | errors.TooManyQueriesError):
        return {"Retry-After": str(random.randint(*RETRY_AFTER_SECONDS))}  # noqa: S311
    if isinstance(error, errors.QueueFullError):
        return {"Retry-After": str(error.retry_after)}
    # OpenAI's clients would retry on their own, and each retry would store the question again.
    return {"x-should-retry": "false"} if isinstance(error, errors.ModelError | errors.MemoryDisabledError) else None


async def _handle_validation_error(_request: Request, error: RequestValidationError) -> JSONResponse:
    details = error.errors()
    if details and details[0]["type"] == "json_invalid":
        detail = details[0]
        position = f" at character {detail['loc'][1]}" if len(detail["loc"]) > 1 else ""
        return make_error_response(400, "invalid_json", f"The body is not JSON: {detail['ctx']['error']}{position}.")
    message, param = describe_validation_error(error)
    return make_error_response(422, "invalid_request", message, param=param)


async def _handle_http_error(request: Request, error: HTTPException) -> JSONResponse:
    status = error.status_code
    message = str(error.detail)
    if status == 404 and message == HTTPStatus(404).phrase:
        message = "There is no such path: /docs lists all paths."
    elif status == 405:
        return _method_not_allowed(request)
    elif status == 400 and message == "There was an error parsing the body":
        return make_error_response(400, "invalid_json", "The body is not JSON in UTF-8, or it is nested too deeply.")
    return make_error_response(status, CODE_BY_STATUS.get(status, "error"), message, headers=error.headers)


def _method_not_allowed(request: Request) -> JSONResponse:
    """Return an error with the methods of the path. A route knows only its own method, so all routes are tried."""
    path = {name: request.scope[name] for name in ("type", "path", "root_path", "headers")}
    routes = request.app.router.routes
    allowed = [
        method
        for method in METHODS
        if any(route.matches({**path, "method": method})[0] is Match.FULL for route in routes)
    ]
    message = f"This path supports {' and '.join(allowed)}, not {request.method}: see /docs."
    return make_error_response(405, "method_not_allowed", message, headers={"Allow": ", ".join(allowed)})


def _to_response(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": body.model_dump(mode="json")}, status, headers)


def _error_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _error_details(error: errors.RemError) -> dict[str, Any] | None:
    if isinstance(error, errors.QuerySyntaxError):
        suggestion = error.suggestion and _make_sendable(error.suggestion)
        return {"line": error.line, "column": error.column, "suggestion": suggestion}
    if isinstance(error, errors.QueueFullError):
        return {"retry_after": error.retry_after}
    return None


def _make_sendable(text: str) -> str:
    """Return text that JSON can carry: bounded, and without lone surrogates. It may quote what the client sent."""
    return clean_text(text[:MAX_MESSAGE_CHARS])


def _field_path(location: Sequence[Any]) -> str:
    parts = list(map(str, location))
    if parts and parts[0] in ("body", "query", "path", "header"):
        parts = parts[1:]
    return ".".join(parts)


def _describe_detail(detail: Mapping[str, Any]) -> str:
    """Return what is wrong with a field, without quoting the input."""
    if detail["type"] == "missing":
        return "is missing"
    if detail["type"] == "extra_forbidden":
        return "there is no such field"
    text = str(detail["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
