"""OwnerQueries: runs named queries for one owner, in a form that uses an index."""

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
    """Return the statement with its filter on the owner ($2) in a form that uses an index.

    The owner is a user or, for the rows that a tenant shares, NULL. PostgreSQL uses no index for IS NOT DISTINCT FROM.
    """
    return _rewrite(statement, user_id is None)


@cache
def _rewrite(statement: str, is_shared: bool) -> str:
    return statement.replace(OWNER_FILTER, "user_id IS NULL AND $2::text IS NULL" if is_shared else "user_id = $2")


@dataclass(frozen=True, slots=True)
class OwnerQueries:
    """Named queries of `{file}.sql` for one owner on one connection."""

    connection: Connection
    tenant_id: str
    user_id: str | None
    file: str = "dreams/dreams"

    async def fetch(self, name: str, *parameters: Any, table: str | None = None) -> list[Any]:
        """Run the query `name` with the tenant ($1) and `parameters` ($2 and following), and return its rows.

        `table` replaces `{table}` in the query.
        """
        return await self._fetch(query(self.file, name), table, self.tenant_id, *parameters)

    async def fetch_owned(self, name: str, *parameters: Any, table: str | None = None) -> list[Any]:
        """Run the query `name` with the tenant ($1), the user ($2) and `parameters`, and return its rows."""
        statement = rewrite_owner_filter(query(self.file, name), self.user_id)
        return await self._fetch(statement, table, self.tenant_id, self.user_id, *parameters)

    async def fetch_keys(self, labels: Sequence[str]) -> list[Any]:
        """Return a row with `label` and `key` for each label."""
        return list(await self.connection.fetch(query("dreams/dreams", "keys_of_labels"), labels))

    async def _fetch(self, statement: str, table: str | None, *parameters: Any) -> list[Any]:
        if table is not None:
            statement = fill(statement, table=identifier(table))
        return list(await self.connection.fetch(statement, *parameters))
