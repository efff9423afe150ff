"""Secrets of every kind. They are made at run time, so that no scanner takes this file for a leak."""

from __future__ import annotations

import random
import string

_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits
_MIXED = string.ascii_letters + string.digits


def make_random(length: int, alphabet: str = _MIXED, seed: int = 7) -> str:
    """Return the same random text every time."""
    source = random.Random(f"{seed} {length} {alphabet}")  # it is no secret
    return "".join(source.choice(alphabet) for _ in range(length))


GITHUB_TOKEN = f"ghp_{make_random(36)}"
PRIVATE_KEY = "\n".join(
    [
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        *(make_random(64, _MIXED + "+/", seed) for seed in range(40)),
        "-----END RSA " + "PRIVATE KEY-----",
    ]
)
CARD = "4111 1111 1111 1111"

CREDENTIALS: dict[str, tuple[str, str]] = {
    "openai": (f"My key is sk-proj-{make_random(48)} for now", "api key"),
    "anthropic": (f"sk-ant-api03-{make_random(90)}", "api key"),
    "hexadecimal": (f"sk-{make_random(32, _HEX)}", "api key"),
    "hexadecimal with underscore": (f"sk_{make_random(48, _HEX)}", "api key"),
    "github": (f"use {GITHUB_TOKEN}.", "token"),
    "github fine-grained": (f"github_pat_{make_random(70)}", "token"),
    "gitlab": (f"glpat-{make_random(20)}", "token"),
    "slack": (f"xoxb-{make_random(12, string.digits)}-{make_random(24)}", "token"),
    "aws": (f"AKIA{make_random(16, _UPPER)}", "api key"),
    "aws secret": (f"aws_secret_access_key = {make_random(40, _MIXED + '+/')}", "api key"),
    "google": (f"AIza{make_random(35)}", "api key"),
    "hugging face": (f"hf_{make_random(34)}", "token"),
    "stripe": (f"sk_live_{make_random(24)}", "api key"),
    "sendgrid": (f"SG.{make_random(22)}.{make_random(43)}", "api key"),
    "jwt": (f"eyJ{make_random(30)}.eyJ{make_random(60)}.{make_random(43)}", "token"),
    "header": (f"Authorization: Bearer {make_random(40)}", "token"),
    "curl": (f"curl -H 'X-Api-Key: {make_random(32, _HEX)}' https://example.com", "api key"),
    "json": (f'{{"client_secret": "{make_random(32)}"}}', "token"),
    "environment": (f"export DB_PASSWORD={make_random(20)}", "password"),
    "url": ("postgresql://app:hunter2@db.example.com/app", "password"),
    "private key": (PRIVATE_KEY, "private key"),
    "unfinished private key": (PRIVATE_KEY[:500], "private key"),
    "our own": (f"remk_{make_random(12, _HEX)}_{make_random(43)}", "api key"),
    "telegram": (f"{make_random(10, '123456789')}:AA{make_random(33)}", "token"),
}
"""Texts with a credential, and the label of what is found."""

CARD_NUMBERS = [
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "5555555555554444",
    "3782 822463 10005",
    "2223003122003222",
]

HARMLESS = [
    "My code word is heliotrope-91.",
    "The wifi password is bluefin.",
    f"wifi password: {make_random(16)}",
    "PIN 4711, and the safe is 12-34-56.",
    f"commit {make_random(40, _HEX)}",
    f"sha256:{make_random(64, _HEX)}",
    f"etag {make_random(32, _HEX)}",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "token: 123e4567-e89b-12d3-a456-426614174000",
    "Order 4111111111111111 was shipped.",
    "Ticket no. 4539578763621486, tracking number: 5555555555554444",
    "At 1700000000000 ms, or 1767225600000000000 ns",
    "EAN 4006381333931 and 4012345678901, ISBN 978-3-16-148410-0",
    "postgresql://user:password@host:5432/database",
    "https://example.com:8000/path/to@something",
    "redis://localhost:6379/0",
    "sk-learn-extra-package-with-long-name-2024",
    "JIRA-1234, INC0012345, PO-2026-000123",
    "The API key is in the vault: ask Sarah about it tomorrow.",
    "api_key = your-api-key-goes-here",
    "token: apple",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ sarah@laptop",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "file:///home/sarah/notes/2026-03-04-meeting-with-the-whole-team.md",
    "session-123e4567-e89b-12d3-a456-426614174000-msg-12",
    "The IBAN is not a card: DE89 3704 0044 0532 0130 00",
    "[masked: api key]",
]
"""Texts that look like a secret in some way, and contain none that REM masks."""
