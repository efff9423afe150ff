"""Keys and settings of tests."""

from __future__ import annotations

import base64

from pydantic import SecretStr

from rem.settings import EncryptionSettings, Settings

K1 = f"k1:{base64.b64encode(b'1' * 32).decode()}"
K2 = f"k2:{base64.b64encode(b'2' * 32).decode()}"
OTHER_K1 = f"k1:{base64.b64encode(b'3' * 32).decode()}"


def encrypting(settings: Settings, *keys: str, enabled: bool = True) -> Settings:
    """Return settings with these keys, the one that encrypts first."""
    encryption = EncryptionSettings(enabled=enabled, keys=SecretStr(",".join(keys)))
    return settings.model_copy(update={"encryption": encryption})
