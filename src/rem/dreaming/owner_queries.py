"""Owner: runs statements about one owner's rows, said in a way that an index understands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rem.db.sql import fill, identifier, query

if TYPE_CHECKING:
    from rem.db.database import Connection

OWNER_FILTER = "user_id IS NOT DISTINCT FROM $2"


def rewrite_owner_filter(statement: str, user_id: str | None) -> str:
    """A statement about the rows of the owner $2, a user or, without one, what the tenant shares.

    As it is written it would look at every row of the tenant: no index finds what is not distinct from something.
    """
    return _rewrite(statement, user_id is None)


@cache
def _rewrite(statement: str, is_shared: bool) -> str:
    return statement.replace(OWNER_FILTER, "user_id IS NULL AND $2::text IS NULL" if is_shared else "user_id = $2")


@dataclass(frozen=True, slots=True)
class OwnerQueries:
    """Whose statements they are, on one connection. The statements are those of `queries/dreaming.sql`."""

    connection: Connection
    tenant_id: str
    user_id: str | None

    async def fetch(self, name: str, *parameters: Any, table: str | None = None) -> list[Any]:
        """What a statement finds among all that the tenant has."""
        return await self._fetch(query("dreaming", name), table, self.tenant_id, *parameters)

    async def fetch_owned(self, name: str, *parameters: Any, table: str | None = None) -> list[Any]:
        """What a statement finds that is the owner's."""
        statement = rewrite_owner_filter(query("dreaming", name), self.user_id)
        return await self._fetch(statement, table, self.tenant_id, self.user_id, *parameters)

    async def fetch_keys(self, labels: Sequence[str]) -> list[Any]:
        """Labels, each with the key that it has."""
        return list(await self.connection.fetch(query("dreaming", "keys_of"), labels))

    async def _fetch(self, statement: str, table: str | None, *parameters: Any) -> list[Any]:
        if table is not None:
            statement = fill(statement, table=identifier(table))
        return list(await self.connection.fetch(statement, *parameters))
