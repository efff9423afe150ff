"""A body that is sent without saying that it is JSON is refused with that reason, not as a text that has no fields."""

from __future__ import annotations

from email.message import Message as MimeHeaders

from fastapi import Depends, Request

from rem.errors import InvalidInputError

NOT_DECLARED = "The body is not sent as JSON: add the header Content-Type: application/json."


async def _declared(request: Request) -> None:
    if await request.body() and not _is_json(request.headers.get("content-type", "")):
        raise InvalidInputError(NOT_DECLARED)


def _is_json(content_type: str) -> bool:
    headers = MimeHeaders()
    headers["content-type"] = content_type
    kind = headers.get_content_subtype()
    return headers.get_content_maintype() == "application" and (kind == "json" or kind.endswith("+json"))


JsonBody = Depends(_declared)
