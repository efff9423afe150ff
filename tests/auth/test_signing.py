"""Tokens are accepted only if this installation signed them, for this purpose, and they have not expired."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from pydantic import SecretStr

from rem.auth.signing import Purpose, Signer, read_secret
from rem.errors import SettingsError, UnauthorizedError
from rem.settings import AuthSettings, Settings
from tests.auth.forging import decode, encode, sign_hs256

OLD, NEW = "o" * 32, "n" * 32


def test_signed_claims_come_back() -> None:
    signer = Signer([NEW])
    claims = signer.verify(Purpose.ACCESS, signer.sign(Purpose.ACCESS, {"sub": "sarah"}, 60))
    assert claims["sub"] == "sarah"
    assert claims["aud"] == "rem:access"


def test_tokens_of_another_purpose_are_refused() -> None:
    signer = Signer([NEW])
    for made in Purpose:
        for expected in set(Purpose) - {made}:
            with pytest.raises(UnauthorizedError):
                signer.verify(expected, signer.sign(made, {}, 60))


def test_expired_tokens_are_refused() -> None:
    signer = Signer([NEW])
    with pytest.raises(UnauthorizedError, match="expired"):
        signer.verify(Purpose.ACCESS, signer.sign(Purpose.ACCESS, {}, -30))


def test_tokens_of_another_secret_or_issuer_are_refused() -> None:
    token = Signer([OLD]).sign(Purpose.ACCESS, {}, 60)
    with pytest.raises(UnauthorizedError, match="not signed by this server"):
        Signer([NEW]).verify(Purpose.ACCESS, token)
    with pytest.raises(UnauthorizedError):
        Signer([OLD], "https://other.example.com").verify(Purpose.ACCESS, token)


def test_secret_can_be_changed_without_logging_everyone_out() -> None:
    token = Signer([OLD]).sign(Purpose.ACCESS, {"sub": "sarah"}, 60)
    both = Signer([NEW, OLD])
    assert both.verify(Purpose.ACCESS, token)["sub"] == "sarah"
    # New tokens are signed with the new secret.
    assert Signer([NEW]).verify(Purpose.ACCESS, both.sign(Purpose.ACCESS, {"sub": "bob"}, 60))["sub"] == "bob"


@pytest.mark.parametrize("part", ["sub", "exp", "aud", "iss", "sid"])
def test_changed_claims_are_refused(part: str) -> None:
    signer = Signer([NEW])
    header, body, signature = signer.sign(Purpose.ACCESS, {"sub": "sarah", "sid": "1"}, 60).split(".")
    claims = decode(body)
    claims[part] = "changed" if part != "exp" else claims[part] + 3600
    with pytest.raises(UnauthorizedError):
        signer.verify(Purpose.ACCESS, ".".join((header, encode(claims), signature)))


def test_tokens_without_signature_are_refused() -> None:
    signer = Signer([NEW])
    _, body, signature = signer.sign(Purpose.ACCESS, {}, 60).split(".")
    for algorithm in ("none", "None", "NONE", ""):
        for end in ("", signature):
            with pytest.raises(UnauthorizedError):
                signer.verify(Purpose.ACCESS, ".".join((encode({"alg": algorithm}), body, end)))


def test_other_algorithms_are_refused() -> None:
    signer = Signer([NEW])
    now = int(time.time())
    claims = {"iss": "rem", "aud": "rem:access", "iat": now, "exp": now + 60}
    rsa = RSAKey.generate_key(2048)
    forged = [
        jwt.encode({"alg": "RS256"}, claims, rsa),
        # The key is sent along, as `jwk` in the header.
        jwt.encode({"alg": "RS256", "jwk": rsa.as_dict(private=False)}, claims, rsa),
        # Key confusion: the public part of a key as the secret.
        sign_hs256(claims, rsa.as_pem(private=False)),
        jwt.encode({"alg": "HS512"}, claims, OctKey.import_key(NEW * 2), algorithms=["HS512"]),
        # The secret itself is no key: keys are derived from it.
        jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(NEW)),
    ]
    for token in forged:
        with pytest.raises(UnauthorizedError):
            signer.verify(Purpose.ACCESS, token)


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "🎈.🎈.🎈", "x" * 8000, "e30.e30.e30", "null.null.null"])
def test_texts_that_are_no_tokens_are_refused(text: str) -> None:
    with pytest.raises(UnauthorizedError):
        Signer([NEW]).verify(Purpose.ACCESS, text)


def test_secret_is_created_once_for_all_processes(tmp_path: Path) -> None:
    settings = Settings(rem_home=tmp_path / "home")
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: read_secret(settings), range(32)))
    assert len(found) == 1
    assert len(found.pop()) == 64
    (file,) = (tmp_path / "home").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_secret_of_the_settings_is_used(tmp_path: Path) -> None:
    auth = AuthSettings(session_secret=SecretStr(NEW))
    assert read_secret(Settings(rem_home=tmp_path, auth=auth)) == NEW
    assert not list(tmp_path.iterdir())


def test_production_has_no_default_secret(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="AUTH__SESSION_SECRET is missing"):
        read_secret(Settings(rem_home=tmp_path, environment="production"))
    assert not list(tmp_path.iterdir())


def test_damaged_secret_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "session-secret").write_text("short")
    with pytest.raises(SettingsError, match="too short: remove the file"):
        read_secret(Settings(rem_home=tmp_path))
