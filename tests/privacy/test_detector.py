"""Secrets are found by their format, in linear time, and nothing else is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import rem
from rem.privacy.detector import PrivacyKind, find_private_data, is_random
from tests.privacy.sample_secrets import CARD_NUMBERS, CREDENTIALS, GITHUB_TOKEN, HARMLESS, PRIVATE_KEY, make_random

ALL = frozenset(PrivacyKind)
SECRETS = frozenset({PrivacyKind.CREDENTIALS, PrivacyKind.CARD_NUMBERS})
MAX_SECONDS = 5.0
"""Far more than a megabyte takes (under half a second), and far less than a quadratic pattern would."""


@pytest.mark.parametrize("name", CREDENTIALS)
def test_credential_is_found(name: str) -> None:
    text, label = CREDENTIALS[name]
    for surrounded in (text, f"Look: {text}", f"Look:\n{text}\nThat is all.", f"({text})"):
        findings = find_private_data(surrounded, ALL)
        assert [(finding.kind, finding.label) for finding in findings] == [(PrivacyKind.CREDENTIALS, label)], surrounded


@pytest.mark.parametrize("number", CARD_NUMBERS)
def test_card_number_is_found(number: str) -> None:
    for text in (number, f"My card is {number}.", f"Visa {number}, 12/29"):
        (finding,) = find_private_data(text, SECRETS)
        assert (text[finding.start : finding.end], finding.label) == (number, "card number")
    wrong = number[:-1] + str((int(number[-1]) + 1) % 10)
    assert find_private_data(f"My card is {wrong}.", SECRETS) == []


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_is_not_found(text: str) -> None:
    assert find_private_data(text, SECRETS) == []


def test_only_the_password_of_an_address_is_found() -> None:
    text = "see postgresql://app:hunter2@db.example.com/app"
    (finding,) = find_private_data(text, SECRETS)
    assert text[finding.start : finding.end] == "hunter2"


def test_private_key_is_found_as_a_whole() -> None:
    text = f"a\n{PRIVATE_KEY}\nb\n{PRIVATE_KEY}\nc"
    findings = find_private_data(text, SECRETS)
    assert [text[finding.start : finding.end] for finding in findings] == [PRIVATE_KEY, PRIVATE_KEY]


def test_several_secrets_are_found_in_their_order() -> None:
    text = f"{CARD_NUMBERS[0]} and {GITHUB_TOKEN} and postgresql://app:hunter2@db/app and {GITHUB_TOKEN}"
    labels = [finding.label for finding in find_private_data(text, SECRETS)]
    assert labels == ["card number", "token", "password", "token"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("write to sarah.chen+work@mail.example.co.uk!", "sarah.chen+work@mail.example.co.uk"),
        ("müller@bücher.example", "müller@bücher.example"),
        ("call +49 170 1234567 today", "+49 170 1234567"),
        ("0171/1234567", "0171/1234567"),
        ("(555) 123-4567 x", "(555) 123-4567"),
        ("on 2026-03-04 at 10:00, 0.123456789 or 03.04.2026", None),
        ("user@localhost and @sarah", None),
        ("order 2026000123456", None),
    ],
)
def test_addresses_and_phone_numbers_are_found_if_asked_for(text: str, found: str | None) -> None:
    findings = find_private_data(text, frozenset({PrivacyKind.EMAILS, PrivacyKind.PHONES}))
    assert [text[finding.start : finding.end] for finding in findings] == ([found] if found else [])
    assert find_private_data(text, SECRETS) == []


@pytest.mark.parametrize("value", ["a" * 40, "correct-horse-battery-staple", "password", "x" * 20, "short1A"])
def test_words_are_not_random(value: str) -> None:
    assert not is_random(value)


MEGABYTE = 1_000_000
HOSTILE = [
    *("a", "a_", "a-", "4", "4 ", "4111 1111 1111 ", "0", "+1 ()", "@", "a@a.", "a.b@", "://", "a://b:", "a://b:c@"),
    *("eyJ", "eyJaaaaaaaaaa.", "sk-", "sk-a1B", "ghp_", "AKIA", "SG.", "xoxb-", "1:AA", "remk_", "AccountKey="),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN ",
        "-----END",
        "api_key",
        "api_key=",
        "api_key = '",
        "api-",
        "secret_",
    ),
    *(
        "Authorization: Bearer ",
        "Bearer ",
        "token:",
        "A_TOKEN=",
        "order ",
        "\\n",
        '"',
        "é",
        "\u200b",
        "Ａ１",
        "a://b:@",
        "\u202e",
        "\ud800",
        "😀",
    ),
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_megabyte_takes_linear_time(unit: str) -> None:
    text = unit * (MEGABYTE // len(unit))
    began = time.process_time()
    find_private_data(text, ALL)
    find_private_data(f"{make_random(1000)}{text}=@", ALL)
    assert time.process_time() - began < MAX_SECONDS


def _iter_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield f"{name}: {item}" if isinstance(item, str) else str(name)
            yield from _iter_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _iter_texts(item)


@pytest.mark.parametrize("path", ["bench/quality/week/week.yaml", "src/rem/demo/workspace.yaml"])
def test_nothing_is_found_in_our_sample_data(path: str) -> None:
    source = (Path(rem.__file__).parents[2] / path).read_text(encoding="utf-8")
    texts = [source, *(text for document in yaml.safe_load_all(source) for text in _iter_texts(document))]
    assert len(texts) > 100
    assert [text for text in texts if find_private_data(text, SECRETS)] == []


def test_nothing_is_found_in_our_own_documentation() -> None:
    root = Path(rem.__file__).parents[2]
    pages = [*root.glob("docs/**/*.md"), root / "README.md"]
    assert len(pages) > 20
    found = {page.name: find_private_data(page.read_text(encoding="utf-8"), SECRETS) for page in pages}
    assert {name: findings for name, findings in found.items() if findings} == {}


def _widen(text: str) -> str:
    """Return the text in the wide letters of Asian keyboards."""
    return "".join(chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else character for character in text)


@pytest.mark.parametrize(
    ("text", "secret", "label"),
    [
        (f"a {GITHUB_TOKEN[:12]}\u200b{GITHUB_TOKEN[12:]} b", f"{GITHUB_TOKEN[:12]}\u200b{GITHUB_TOKEN[12:]}", "token"),
        (f"\u200ba {GITHUB_TOKEN[:9]}\u00ad{GITHUB_TOKEN[9:20]}\u2060{GITHUB_TOKEN[20:]}", None, "token"),
        (f"鍵は{_widen(GITHUB_TOKEN)}です", _widen(GITHUB_TOKEN), "token"),
        (f"_{GITHUB_TOKEN}", GITHUB_TOKEN, "token"),
        (f"__{GITHUB_TOKEN}", GITHUB_TOKEN, "token"),
        ("card 4111\u00a01111\u00a01111\u00a01111.", "4111\u00a01111\u00a01111\u00a01111", "card number"),
        ("card 4111–1111–1111–1111", "4111–1111–1111–1111", "card number"),
        ("card 4111.1111.1111.1111", "4111.1111.1111.1111", "card number"),
        ("٤١١١ ١١١١ ١١١١ ١١١١", "٤١١١ ١١١١ ١١١١ ١١١١", "card number"),
        (f"カード {_widen('4111111111111111')}", _widen("4111111111111111"), "card number"),
        ("postgres://app:p@ss:w0rd@db/x", "p@ss:w0rd", "password"),
    ],
)
def test_other_forms_of_the_same_characters_hide_nothing(text: str, secret: str | None, label: str) -> None:
    (finding,) = find_private_data(text, SECRETS)
    assert text[finding.start : finding.end] == (secret or text.split(" ", 1)[1])
    assert finding.label == label
