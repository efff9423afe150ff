"""DerivedIds: ids that follow from a name, and that only this database can compute."""

from __future__ import annotations

import hmac
import json
from uuid import UUID

MAX_ATTEMPTS = 3
"""Ids to try for one name, if another user's row has the first ones."""


class DerivedIds:
    """Makes ids with the secret key of a database.

    With a plain UUID5, another user of the tenant could compute the id of a session or profile: probe whether it
    exists, or take it first.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def make(self, purpose: str, *parts: str | None, attempt: int = 0) -> UUID:
        """Return the id for a purpose and a name. The same input gives the same id in this database."""
        payload = json.dumps([purpose, attempt, *parts]).encode()
        return UUID(bytes=hmac.digest(self._key, payload, "sha256")[:16], version=4)

    def list_candidates(self, purpose: str, *parts: str | None) -> list[UUID]:
        """Return the ids to try, in their order."""
        return [self.make(purpose, *parts, attempt=attempt) for attempt in range(MAX_ATTEMPTS)]
