"""A policy keeps, masks or refuses each kind, in texts and in JSON."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rem.errors import PrivacyError
from rem.privacy.policy import PrivacyPolicy
from rem.settings import PrivacySettings
from tests.privacy.sample_secrets import CARD, CREDENTIALS, GITHUB_TOKEN, HARMLESS, PRIVATE_KEY, make_random


def policy(**actions: str) -> PrivacyPolicy:
    return PrivacyPolicy.from_settings(PrivacySettings.model_validate(actions))


def test_credentials_and_cards_are_masked_by_default() -> None:
    text = f"Token {GITHUB_TOKEN}, card {CARD}, mail sarah@example.com, phone +49 170 1234567."
    masked = "Token [masked: token], card [masked: card number], mail sarah@example.com, phone +49 170 1234567."
    assert policy().mask(text) == masked
    assert policy().mask(masked) == masked
    assert policy().list_masked([text, text]) == ["token", "card number"]


def test_each_kind_has_its_own_action() -> None:
    text = f"{GITHUB_TOKEN} {CARD} sarah@example.com +49 170 1234567"
    assert policy(credentials="keep", card_numbers="keep").mask(text) == text
    assert policy(credentials="keep", card_numbers="keep").is_off
    assert policy(emails="mask", phones="mask").mask(text) == (
        "[masked: token] [masked: card number] [masked: e-mail address] [masked: phone number]"
    )
    with pytest.raises(PrivacyError, match=r"The message contains a token.*PRIVACY__CREDENTIALS=refuse"):
        policy(credentials="refuse").mask(text, "message")
    assert policy(credentials="refuse").masking.mask(GITHUB_TOKEN) == "[masked: token]"
    assert policy(phones="refuse").mask("no number") == "no number"


def test_error_does_not_repeat_the_secret() -> None:
    with pytest.raises(PrivacyError) as raised:
        policy(credentials="refuse").mask(GITHUB_TOKEN)
    assert GITHUB_TOKEN not in str(raised.value)


def test_label_with_a_secret_is_refused() -> None:
    assert policy(emails="refuse").check_label("sarah@example.com") == "sarah@example.com"
    with pytest.raises(PrivacyError, match="choose another name"):
        policy().check_label(f"Note on {GITHUB_TOKEN}")
    assert policy(credentials="keep").check_label(GITHUB_TOKEN) == GITHUB_TOKEN


@pytest.mark.parametrize("name", CREDENTIALS)
def test_credential_is_masked_in_json(name: str) -> None:
    text, label = CREDENTIALS[name]
    value: dict[str, Any] = {"a": [1, None, {"b": f"x\n{text}\ty", "c": text}], "d": "unchanged"}
    masked = policy().mask_value(value)
    secrets = [word for word in text.replace('"', " ").replace("'", " ").split() if len(word) > 30]
    rendered = orjson.dumps(masked).decode()
    assert rendered.count(f"[masked: {label}]") == 2
    assert not any(secret in rendered for secret in secrets)
    assert orjson.loads(policy().mask_json(orjson.dumps(value))) == masked
    assert masked["d"] == "unchanged"


def test_named_value_is_masked_by_its_name() -> None:
    secret = make_random(32)
    arguments = {"api_key": secret, "password": "bluefin", "name": secret, "API_TOKEN": secret, secret: 1}
    masked = policy().mask_value(arguments)
    assert masked["api_key"] == "[masked: api key]"
    assert masked["API_TOKEN"] == "[masked: token]"
    assert (masked["password"], masked["name"]) == ("bluefin", secret), "a name alone does not make it a credential"


def test_harmless_json_is_returned_as_it_is() -> None:
    document = orjson.dumps({"texts": HARMLESS, "n": 1.5})
    assert policy().mask_json(document) is document


def test_a_secret_may_fill_the_whole_text() -> None:
    assert policy().mask(PRIVATE_KEY) == "[masked: private key]"
    assert policy().mask("") == ""
