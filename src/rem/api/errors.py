"""One shape for every error of the API, which is OpenAI's: `{"error": {"message", "type", "code", "param", …}}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from rem import errors

_LONGEST_MESSAGE = 4000
_MOST_PROBLEMS = 5
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class ErrorBody(BaseModel):
    """What went wrong, and what to do about it."""

    message: str = Field(description="For people: what is wrong and what to do next.")
    type: str = Field(description="`invalid_request_error`, `rate_limit_error` or `server_error`.")
    code: str = Field(description="For programs: one word for what is wrong.")
    param: str | None = Field(default=None, description="The field of the request that is wrong.")
    details: dict[str, Any] | None = None


class ErrorResponse(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorBody


_STATUSES: dict[type[errors.RemError], int] = {
    # OpenAI answers an unknown model with 404, and its clients know the code.
    errors.ModelNotFoundError: 404,
    errors.FetchForbiddenError: 403,
    errors.FileTooLargeError: 413,
    errors.FileUnreadableError: 422,
    errors.InvalidInputError: 400,
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.MemoryDisabledError: 503,
    errors.CorruptRowError: 500,
    errors.DatabaseError: 503,
    errors.EmbeddingError: 503,
    errors.RerankerError: 503,
    errors.ModelRequiredError: 422,
    errors.ModelTimeoutError: 504,
    errors.ModelRateLimitError: 429,
    # Not a 5xx: clients try those again by themselves, and it would cost as much again.
    errors.RunLimitError: 422,
    errors.ModelError: 502,
    errors.ToolFailedError: 502,
    errors.AudioError: 503,
    errors.FetchError: 502,
    errors.MissingExtraError: 503,
    errors.RemError: 500,
}

_CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    412: "precondition_failed",
    413: "body_too_large",
    415: "unsupported_media_type",
    421: "host_not_allowed",
    422: "invalid_request",
    429: "rate_limit_exceeded",
}


def http_status(error: errors.RemError) -> int:
    """The HTTP status that one of REM's errors amounts to."""
    return next(_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES)


def make_error_body(
    status: int, code: str, message: str, *, param: str | None = None, details: dict[str, Any] | None = None
) -> ErrorBody:
    """An error in the one shape; `status` decides its type."""
    return ErrorBody(
        message=_sendable(message), type=_type_of(status), code=code, param=param and _sendable(param), details=details
    )


def to_error_body(error: errors.RemError) -> ErrorBody:
    """One of REM's errors in the one shape; also for the error event of a stream."""
    param = "model" if isinstance(error, errors.ModelNotFoundError) else None
    return make_error_body(http_status(error), error.code, str(error), param=param, details=_details(error))


def make_error_response(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    details: dict[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An answer that says what is wrong."""
    return _response(status, make_error_body(status, code, message, param=param, details=details), headers)


def describe_validation_error(error: ValidationError | RequestValidationError) -> tuple[str, str | None]:
    """What is wrong with the input, in a sentence that names the fields, and the first of these fields."""
    problems = error.errors() if isinstance(error, RequestValidationError) else error.errors(include_url=False)
    shown = [_problem(problem) for problem in problems[:_MOST_PROBLEMS]]
    more = f" And {len(problems) - len(shown)} more." if len(problems) > len(shown) else ""
    return "; ".join(f"{place}: {text}" if place else text for place, text in shown) + "." + more, shown[0][0] or None


def install(app: FastAPI) -> None:
    """Let an application answer with the one shape, whatever goes wrong."""
    app.exception_handler(errors.RemError)(_rem_error)
    app.exception_handler(RequestValidationError)(_validation_error)
    app.exception_handler(HTTPException)(_http_error)


async def _rem_error(_request: Request, error: errors.RemError) -> JSONResponse:
    # OpenAI's clients would ask again by themselves, and the question would be stored each time.
    headers = {"x-should-retry": "false"} if isinstance(error, errors.ModelError | errors.MemoryDisabledError) else None
    return _response(http_status(error), to_error_body(error), headers)


async def _validation_error(_request: Request, error: RequestValidationError) -> JSONResponse:
    problems = error.errors()
    if problems and problems[0]["type"] == "json_invalid":
        problem = problems[0]
        at = f" at character {problem['loc'][1]}" if len(problem["loc"]) > 1 else ""
        return make_error_response(400, "invalid_json", f"The body is not JSON: {problem['ctx']['error']}{at}.")
    message, param = describe_validation_error(error)
    return make_error_response(422, "invalid_request", message, param=param)


async def _http_error(request: Request, error: HTTPException) -> JSONResponse:
    status = error.status_code
    message = str(error.detail)
    if status == 404 and message == HTTPStatus(404).phrase:
        message = "There is no such path: see /docs for those that there are."
    elif status == 405:
        return _wrong_method(request)
    elif status == 400 and message == "There was an error parsing the body":
        return make_error_response(400, "invalid_json", "The body is not JSON in UTF-8, or it is nested too deeply.")
    return make_error_response(status, _CODES.get(status, "error"), message, headers=error.headers)


def _wrong_method(request: Request) -> JSONResponse:
    """What the path takes instead. A route knows only its own methods, so all of them are asked."""
    path = {name: request.scope[name] for name in ("type", "path", "root_path", "headers")}
    routes = request.app.router.routes
    allowed = [
        method
        for method in _METHODS
        if any(route.matches({**path, "method": method})[0] is Match.FULL for route in routes)
    ]
    message = f"This path does not take {request.method} but {' and '.join(allowed)}: see /docs."
    return make_error_response(405, "method_not_allowed", message, headers={"Allow": ", ".join(allowed)})


def _response(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": body.model_dump(mode="json")}, status, headers)


def _type_of(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _details(error: errors.RemError) -> dict[str, Any] | None:
    if isinstance(error, errors.QuerySyntaxError):
        suggestion = error.suggestion and _sendable(error.suggestion)
        return {"line": error.line, "column": error.column, "suggestion": suggestion}
    return None


def _sendable(text: str) -> str:
    """Text that may quote what the client sent, as JSON can carry it: bounded, without lone surrogates."""
    return text[:_LONGEST_MESSAGE].encode(errors="replace").decode()


def _problem(problem: Mapping[str, Any]) -> tuple[str, str]:
    """Where a problem is and what it is; never the input itself."""
    return _place(problem["loc"]), _in_words(problem)


def _place(location: Sequence[Any]) -> str:
    parts = list(map(str, location))
    if parts and parts[0] in ("body", "query", "path", "header"):
        parts = parts[1:]
    return ".".join(parts)


def _in_words(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "missing":
        return "is missing"
    if problem["type"] == "extra_forbidden":
        return "there is no such field"
    text = str(problem["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
