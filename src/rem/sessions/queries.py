"""Run the statements of `sessions/sessions.sql` for one owner's sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loguru import logger

from rem.db.retry import retry_when_busy
from rem.db.sql import query
from rem.errors import CorruptRowError, InvalidInputError
from rem.models import Message

if TYPE_CHECKING:
    from rem.db.store import Store


class SessionQueries:
    """The statements of `sessions/sessions.sql` on one store. A statement that finds the database busy is retried."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def owner(self) -> tuple[str, str]:
        """The tenant id and the user id. Raises `InvalidInputError` without a user: every session has an owner."""
        scope = self._store.scope
        if scope.user_id is None:
            raise InvalidInputError("Sessions have an owner: give a user.")
        return scope.tenant_id, scope.user_id

    async def fetch_value(self, name: str, *parameters: Any) -> Any:
        """Run a statement, and return the first column of its first row, or None if there is no row."""

        async def fetch() -> Any:
            async with self._store.executor.connection() as connection:
                return await connection.fetchval(query("sessions/sessions", name), *parameters)

        return await retry_when_busy(fetch)

    async def fetch_rows(self, name: str, *parameters: Any) -> Sequence[Any]:
        """Run a statement, and return its rows."""

        async def fetch() -> Sequence[Any]:
            async with self._store.executor.connection() as connection:
                return await connection.fetch(query("sessions/sessions", name), *parameters)

        return await retry_when_busy(fetch)


def parse_messages(rows: Sequence[Any]) -> list[Message]:
    """Parse the first column of rows as messages. A corrupt row is logged and skipped: the others are still useful."""
    return [message for row in rows if (message := parse_message(row[0])) is not None]


def parse_message(record: dict[str, Any]) -> Message | None:
    """Parse the JSON of a row as a message. A corrupt row is logged and gives None."""
    try:
        return Message.from_row(record)
    except CorruptRowError as error:
        logger.error("A stored message is skipped: {}", error)
        return None
