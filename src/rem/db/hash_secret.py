"""The secret of a database for the keyed hashes of its words and texts. It is stored encrypted with the first key."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING
from uuid import UUID

from rem.db.sql import query
from rem.errors import EncryptionError, SettingsError

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.encryption.sealed_values import Sealer
    from rem.settings import EncryptionSettings

PLAIN_CONNECTION_NAME = "rem plain"
"""The application_name of connections in the pool of a process that has no key."""
_NO_ROW = UUID(int=0)


async def refuse_encrypted_texts(connection: Connection) -> None:
    """Raise EncryptionError if texts are encrypted, for a process that has no key."""
    if await connection.fetchval(query("db/installation", "is_encrypted")):
        raise EncryptionError(
            "The texts of this database are encrypted since this process was started, and it has no key: set "
            "ENCRYPTION__ENABLED=true and ENCRYPTION__KEYS or ENCRYPTION__KEYS_FILE, and start it again."
        )


async def open_sealer(connection: Connection, settings: EncryptionSettings) -> Sealer | None:
    """Return what encrypts and decrypts texts, or None if encryption is off and the database has no secret.

    The first start with encryption makes the secret. All rows are indexed again then, because the words of the index
    get other numbers. Connections of processes without a key are ended. Raise EncryptionError if the key of the secret
    is missing or wrong.
    """
    stored: str | None = await connection.fetchval(query("db/installation", "index_key"))
    if stored is None and not settings.enabled:
        return None
    from rem.encryption.key_ring import KEY_BYTES, KeyRing
    from rem.encryption.sealed_values import TOKEN, Place, Sealer, open_token, seal

    keys = KeyRing.from_settings(settings)
    if settings.enabled and keys.is_empty:
        raise SettingsError(
            "ENCRYPTION__ENABLED is true and no key is given: set ENCRYPTION__KEYS or ENCRYPTION__KEYS_FILE "
            "(`rem encryption new-key k1` prints one)."
        )
    if stored is None:
        new = seal(keys, base64.b64encode(os.urandom(KEY_BYTES)), Place("", _NO_ROW, "secret"))
        async with connection.transaction():
            # Of several processes that start at the same time, one makes the secret.
            if await connection.fetchval(query("db/installation", "set_index_key"), new) is not None:
                await connection.execute("SELECT rem.rem_enqueue_all_rows()")
        stored = str(await connection.fetchval(query("db/installation", "index_key")))
    match = TOKEN.fullmatch(stored)
    if match is None:
        raise EncryptionError("The secret of the database is damaged: restore the table rem.installation of a backup.")
    _, secret = open_token(keys, match)
    # A process that runs since before the texts were encrypted would show them as they are stored.
    await connection.execute(query("db/installation", "end_plain_connections"), PLAIN_CONNECTION_NAME)
    return Sealer(keys, base64.b64decode(secret), is_sealing=settings.enabled)
