"""The documentation of error responses in the OpenAPI document, the same for every route."""

from __future__ import annotations

from typing import Any, TypeAlias

from rem.api.errors import ErrorResponse, make_error_body

Responses: TypeAlias = dict[int | str, dict[str, Any]]

EXAMPLES = {
    400: ("The input is invalid.", "invalid_input", "limit must not be negative."),
    401: ("This needs a login.", "unauthorized", "This needs a login: send a valid token or API key, or log in."),
    403: ("The caller may not do this.", "forbidden", "X-User-Id names another user: leave the header out."),
    404: ("It does not exist, or it belongs to another user.", "not_found", "resources has no such row."),
    409: ("The change conflicts with a stored row.", "conflict", "Another of the owner's rows has this key already."),
    412: ("The entity has changed since it was read.", "precondition_failed", "The entity has changed: read it again."),
    413: ("The body is too large.", "body_too_large", "The body is larger than one request may send."),
    415: ("The Content-Type of the body is not supported.", "unsupported_media_type", "Send YAML or JSON."),
    422: ("The request does not match its schema.", "invalid_request", "query: is missing."),
    500: ("REM failed.", "internal_error", "REM failed. Find the reason in its log."),
    502: ("The language model failed.", "model_error", "The language model closed the connection."),
    503: ("The memory is not available.", "memory_off", "This needs the database, which is switched off."),
    504: ("The language model did not answer in time.", "model_timeout", "The language model takes too long."),
}
"""Description, code and example message of each status."""


def error_responses(*statuses: int) -> Responses:
    """Return the documentation of errors with these statuses, for the `responses` of a route."""
    return {status: _document(status) for status in statuses}


def _document(status: int) -> dict[str, Any]:
    description, code, message = EXAMPLES[status]
    example = {"error": make_error_body(status, code, message).model_dump(mode="json")}
    return {
        "model": ErrorResponse,
        "description": description,
        "content": {"application/json": {"example": example}},
    }


COMMON_ERRORS = error_responses(400, 401, 403, 413, 422, 500, 503)
"""The errors that every route of the API may return."""
