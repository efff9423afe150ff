"""KeyRing: the keys of the settings, by id. The first key seals; the others only open what they sealed before."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rem.errors import EncryptionError, SettingsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    from rem.settings import EncryptionSettings

KEY_BYTES = 32
KEY_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
_ADVICE = "write id:key, such as k1:…; `rem encryption new-key k1` prints one"


@dataclass(frozen=True, slots=True)
class _Key:
    id: str
    secret: bytes = field(repr=False)


class KeyRing:
    """The keys of an installation. Their values are never logged or printed."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        """Take the keys by id, the one that seals first."""
        self._keys = {key_id: _Key(key_id, secret) for key_id, secret in keys.items()}
        self._ciphers: dict[str, AESSIV] = {}

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._keys)})"

    @classmethod
    def from_settings(cls, settings: EncryptionSettings) -> KeyRing:
        """Return the keys of the settings. Raise SettingsError, which names no key, if one cannot be read."""
        text = settings.keys.get_secret_value() if settings.keys is not None else ""
        if settings.keys_file is not None:
            try:
                text = f"{text}\n{settings.keys_file.read_text(encoding='utf-8')}"
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(f"ENCRYPTION__KEYS_FILE ({settings.keys_file}) cannot be read: {error}") from error
        keys: dict[str, bytes] = {}
        for number, line in enumerate(re.split(r"[\n,]", text), start=1):
            if line.strip() and not line.strip().startswith("#"):
                key_id, secret = _parse_key(line.strip(), number)
                if key_id in keys:
                    raise SettingsError(f"Two keys of ENCRYPTION__KEYS have the id {key_id}: give each its own id.")
                keys[key_id] = secret
        return cls(keys)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of the keys."""
        return tuple(self._keys)

    @property
    def sealing_id(self) -> str:
        """Return the id of the key that seals. Raise EncryptionError if there is none."""
        if not self._keys:
            raise EncryptionError("There is no key: set ENCRYPTION__KEYS or ENCRYPTION__KEYS_FILE.")
        return next(iter(self._keys))

    def get_cipher(self, key_id: str) -> AESSIV:
        """Return the cipher of a key. Raise EncryptionError, which names the id, if the key is missing."""
        if key_id not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV

            self._ciphers[key_id] = AESSIV(self._derive(key_id, b"rem texts", 64))
        return self._ciphers[key_id]

    def _derive(self, key_id: str, purpose: bytes, length: int) -> bytes:
        if key_id not in self._keys:
            raise EncryptionError(
                f"A stored text is encrypted with the key {key_id}, which is missing: add it to ENCRYPTION__KEYS or "
                "ENCRYPTION__KEYS_FILE. Nothing is lost as long as you have the key."
            )
        return derive(self._keys[key_id].secret, purpose, length)

    @cached_property
    def is_empty(self) -> bool:
        """Return True if there is no key."""
        return not self._keys


def derive(secret: bytes, purpose: bytes, length: int) -> bytes:
    """Return a key for one purpose."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length, None, purpose).derive(secret)


def _parse_key(line: str, number: int) -> tuple[str, bytes]:
    key_id, _, encoded = line.partition(":")
    key_id = key_id.strip()
    if not KEY_ID.match(key_id):
        raise SettingsError(
            f"ENCRYPTION__KEYS, entry {number}: the id of a key has up to 32 lower-case letters, digits and hyphens: "
            f"{_ADVICE}."
        )
    try:
        secret = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise SettingsError(f"The key {key_id} is not 32 bytes in base64: {_ADVICE}.")
    return key_id, secret
