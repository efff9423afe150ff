"""Read keys from the settings, without ever showing one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from rem.encryption.key_ring import KeyRing
from rem.errors import EncryptionError, SettingsError
from rem.settings import EncryptionSettings
from tests.encryption.keys import K1, K2, OTHER_K1


def read(text: str | None = None, file: Path | None = None) -> KeyRing:
    keys = None if text is None else SecretStr(text)
    return KeyRing.from_settings(EncryptionSettings(enabled=True, keys=keys, keys_file=file))


def test_first_key_seals(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# old keys\n\n{K2}\n")
    assert read(f"{K2}, {K1}").sealing_id == "k2"
    assert read(K1, file).ids == ("k1", "k2")
    assert read(file=file).ids == ("k2",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("k1", "k1 is not 32 bytes"),
        ("k1:c2hvcnQ=", "k1 is not 32 bytes"),
        ("k1:not base64!", "k1 is not 32 bytes"),
        (K1.replace("k1", "K_1"), "entry 1: the id of a key"),
        (f"{K1},{OTHER_K1}", "Two keys"),
    ],
)
def test_bad_keys_are_explained_and_not_shown(text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read(text)
    assert reason in str(raised.value)
    assert text.partition(":")[2][:8] not in str(raised.value) or ":" not in text


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nothing here"):
        read(file=tmp_path / "nothing here")


def test_missing_key_is_named() -> None:
    with pytest.raises(EncryptionError, match="k9"):
        read(K1).get_cipher("k9")
    with pytest.raises(EncryptionError, match="ENCRYPTION__KEYS"):
        _ = read().sealing_id


def test_keys_are_in_no_representation() -> None:
    assert repr(read(f"{K1},{K2}")) == "KeyRing(k1, k2)"
    assert K1.partition(":")[2] not in str(EncryptionSettings(keys=SecretStr(K1)))
