"""Remove secrets from log messages: tokens, cookies, API keys, passwords in addresses, secrets in query strings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loguru import Record

MASK = "***"
_PARAMETERS = (
    r"access_token|api[_-]?key|apikey|auth|authorization|client_secret|code|code_verifier|cookie|id_token|key|passw(?:or)?d|"
    r"refresh_token|secret|session|set-cookie|sig|signature|state|token|x-amz-[a-z-]+|x-api-key"
)
_PATTERNS = (
    # Headers, in the forms `Authorization: …`, `authorization=…`, `'authorization': '…'` and `(b'cookie', b'…')`.
    (
        re.compile(
            r"""(\b(?:proxy-)?(?:authorization|set-cookie|cookie|x-api-key)(?:\s*[:=]|['"]\s*[:=,])\s*+)"""
            r"""(b?"[^"]*"|b?'[^']*'|[^\r\n]+)""",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    # A query string, or a form: everything that is named like a secret.
    (re.compile(rf"([?&;](?:{_PARAMETERS})=)[^&\s'\"#]*", re.IGNORECASE), rf"\1{MASK}"),
    # The password in an address.
    (re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@'\"]*:)[^\s/@'\"]+@", re.IGNORECASE), rf"\1{MASK}@"),
    # Keys and tokens by their form: of REM, OpenAI, Anthropic, GitHub, Slack, AWS, Google; JSON web tokens.
    (
        re.compile(
            r"\b(?:rem[kr]?_[A-Za-z0-9_-]{16,}|dev_[0-9a-f]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|"
            r"xox[abprs]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{30,}|"
            r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
        ),
        MASK,
    ),
)


def scrub(text: str) -> str:
    """Return a text for the log with `***` instead of secrets."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def scrub_record(record: Record) -> None:
    """Scrub the message of a log record, for `logger.configure(patcher=…)`."""
    record["message"] = scrub(record["message"])
