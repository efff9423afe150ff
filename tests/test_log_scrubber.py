"""Secrets never reach the log."""

from __future__ import annotations

import pytest
from loguru import logger

from rem.log_scrubber import MASK, scrub, scrub_record

KEY = "remk_4f3c2b1a9d8e_" + "Zm9vYmFyLXNlY3JldA" * 2
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"Authorization: Bearer {TOKEN}", TOKEN),
        (f"headers {{'authorization': 'Bearer {KEY}', 'accept': '*/*'}}", KEY),
        ("[(b'cookie', b'rem_session=abcdef123'), (b'host', b'rem')]", "abcdef123"),
        ("Set-Cookie: __Host-rem_session=abcdef123; Secure", "abcdef123"),
        (f"bearer {TOKEN} is not valid", TOKEN),
        (f"the key {KEY} is unknown", KEY),
        ("GET /api/auth/google/callback?state=qwertz&code=4/0AX4XfWh failed", "4/0AX4XfWh"),
        ("GET /files?token=abc123&name=report", "abc123"),
        ("https://bucket.example/x?X-Amz-Signature=deadbeef&x=1", "deadbeef"),
        ("cannot connect to postgresql://rem:hunter2@db:5432/rem", "hunter2"),
        ("sk-proj-abcdefghijklmnop was refused", "sk-proj-abcdefghijklmnop"),
        ("AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
        ("x-api-key: hush-hush", "hush-hush"),
    ],
)
def test_secret_is_masked(text: str, secret: str) -> None:
    scrubbed = scrub(text)
    assert secret not in scrubbed
    assert MASK in scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "GET /api/v1/entities/{table}/{key} 200 1.5 ms",
        "The worker failed and restarts in 1 s: no connection",
        "Opened the embedded server in /home/me/.rem/postgres, PostgreSQL 18.6",
        "The cookie, which is old, is ignored.",
        "https://example.com:8000/docs?page=2",
        "Indexed 5 rows of bearer-bonds",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert scrub(text) == text


def test_configured_logger_masks_what_any_code_logs() -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, format="{message}")
    logger.configure(patcher=scrub_record)
    try:
        logger.warning("The key {} is unknown", KEY)
    finally:
        logger.configure(patcher=lambda _record: None)
        logger.remove(sink)
    assert KEY not in lines[0]
