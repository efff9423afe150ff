"""No dream repeats a credential; the message keeps it."""

from __future__ import annotations

import time

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.dreams.text.secrets import contains_secret, mask_secrets
from rem.models import Message, Moment, Ontology, User
from tests.dreams.sample_sessions import store_session


@pytest.mark.parametrize(
    "text",
    [
        "My password is hunter2-Xy9.",
        "the wifi password for the office is swordfish",
        "Password:\nhunter2",
        "Our passphrase is 'blue moon rising'.",
        "The PIN of the card is 4711.",
        "PIN 4711",
        "Mein Passwort lautet geheim123.",
        "Das Kennwort vom Server ist Sonne.",
        "Die Geheimzahl ist 0815.",
        "Pay with 4111 1111 1111 1111, please.",
        "Use the API key sk-abcdefghijklmnop123.",
        "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
        "It is Zm9vYmFyQmF6MTIzNDU2Nzg5MFF1eA",
        "token: a8f3k2l9x0",
        '{"api_key": "Zx81kQ0vvP3mT7"}',
        "**Password**: hunter2horse",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_sentence_with_credential_is_masked(text: str) -> None:
    assert contains_secret(text)
    assert mask_secrets(f"We sail.\n{text}\nIt rains.").split() == ["We", "sail.", "It", "rains."]


@pytest.mark.parametrize(
    "text",
    [
        "The password is too short.",
        "I changed my password yesterday.",
        "The token is valid for an hour.",
        'The "token" identifies the *password* field.',
        "My secret is to bake slowly.",
        "Commit 3f2a9c1b7d8e4f5a6b7c8d9e0f1a2b3c4d5e6f70 broke it.",
        "The session is 550e8400-e29b-41d4-a716-446655440000.",
        "Order number 4111111111111112 is late.",
        "Connect pin 13 to the LED.",
        "Set max_tokens: 4096 and LLM__DEFAULT_MODEL.",
        "Das Passwort ist zu kurz.",
        "Das Passwort war falsch.",
    ],
)
def test_sentence_about_passwords_and_numbers_is_kept(text: str) -> None:
    assert not contains_secret(text)
    assert mask_secrets(text) == text


@pytest.mark.parametrize("part", ["password ", "password for ", "1 ", "-----BEGIN PRIVATE", "a1B", "pin is ", "S. "])
def test_masking_is_fast_on_repetitive_text(part: str) -> None:
    started = time.process_time()
    mask_secrets(part * (100_000 // len(part)))
    assert time.process_time() - started < 5


async def test_no_dream_stores_a_secret(rem: Rem, alice: Store) -> None:
    secret_text = "My password is hunter2-Xy9 and my credit card is 4111 1111 1111 1111."
    mixed_text = "My colleague Sarah Chen <sarah.chen@acme.com> repairs the mainsail. Her password is Tr0ub4dor&3."
    await store_session(alice, "secrets", f"user: {secret_text}", f"user: {mixed_text}")
    await store_session(alice, "only a secret", f"user: {secret_text}")
    await rem.dreamer().dream(alice.scope)
    derived = [row for model in (Moment, Ontology, User) for row in await alice.find(model)]
    assert {type(row) for row in derived} == {Moment, Ontology, User}
    everything = "\n".join(row.model_dump_json().lower() for row in derived)
    for secret in ("hunter2", "4111", "tr0ub4dor", "password", "credit"):
        assert secret not in everything
    assert "mainsail" in everything
    stored = secret_text.replace("4111 1111 1111 1111", "[masked: card number]")
    assert stored in [message.content for message in await alice.find(Message)]
