"""What the OpenAPI document says of errors, the same for every route."""

from __future__ import annotations

from typing import Any, TypeAlias

from rem.api.errors import ErrorResponse, make_error_body

Responses: TypeAlias = dict[int | str, dict[str, Any]]

_MEANINGS = {
    400: ("The input is not valid.", "invalid_input", "limit must not be negative."),
    403: ("Nothing may be fetched from there.", "place_forbidden", "/etc/passwd may not be read."),
    404: ("There is no such thing, or it is somebody else's.", "not_found", "resources has no such row."),
    409: ("The change contradicts what is stored.", "conflict", "Another of the owner's rows has this key already."),
    412: ("It was changed since it was read.", "precondition_failed", "It was changed since: read it again."),
    413: ("The body is too large.", "body_too_large", "The body is larger than one request may send."),
    415: ("The body is of a kind that is not read here.", "unsupported_media_type", "Send YAML or JSON."),
    422: ("The request does not fit its schema.", "invalid_request", "query: is missing."),
    500: ("REM failed.", "internal_error", "REM failed, and the reason is in its log."),
    502: ("The language model failed.", "model_error", "The language model closed the connection."),
    503: ("The memory cannot be used at the moment.", "memory_off", "This needs the database, which is switched off."),
    504: ("The language model took too long.", "model_timeout", "The language model takes too long."),
}


def error_responses(*statuses: int) -> Responses:
    """The documentation of errors with these statuses."""
    return {status: _documented(status) for status in statuses}


def _documented(status: int) -> dict[str, Any]:
    description, code, message = _MEANINGS[status]
    example = {"error": make_error_body(status, code, message).model_dump(mode="json")}
    return {
        "model": ErrorResponse,
        "description": description,
        "content": {"application/json": {"example": example}},
    }


COMMON_ERRORS = error_responses(400, 413, 422, 500, 503)
"""What every route of the API may answer."""
