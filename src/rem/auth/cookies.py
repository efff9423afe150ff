"""Read one of REM's cookies from the header of a request, in linear time."""

from __future__ import annotations


def read_cookie(header: str, name: str) -> str | None:
    """Return the value of a cookie as it was sent; None if there is none. Of several, the first counts.

    REM's cookies are signed tokens, which are never quoted. The parser of the standard library takes quadratic time to
    remove quotes, and so one header could stop the server for a minute.
    """
    if name not in header:
        return None
    for part in header.split(";"):
        found, separator, value = part.partition("=")
        if separator and found.strip() == name:
            return value.strip()
    return None
