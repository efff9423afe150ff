"""Find the tables that hold rows of users, in PostgreSQL's catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Connection

OWNER_COLUMNS = ("user_id", "owner", "owner_user_id", "shared_with_user_id")
"""Columns with the id of the user who owns a row, or with whom it is shared."""

_BY_SESSION = ("rem", "session_counters")
_NOT_PERSONAL = frozenset(
    {
        *(
            ("rem", name)
            for name in (
                "entity_types",
                "migrations",
                "installed_functions",
                "embedding_models",
                "sql_access",
                "installation",
            )
        ),
        # The erasure replaces the user by a pseudonym in it.
        ("rem", "audit_log"),
        # Word counts of a tenant, with hashes instead of words.
        *(("rem", "term_counts"), ("rem", "term_count_deltas")),
        # Programs that registered themselves, before anyone logged in for them.
        ("rem_auth", "oauth_clients"),
        # Times and kinds of jobs, without user data.
        *(("rem_jobs", name) for name in ("log", "schedules", "workers")),
    }
)
_ERASED_FIRST = frozenset({"statement_sources", "statements", "dream_progress", "dream_runs"})


@dataclass(frozen=True, slots=True)
class OwnedTable:
    """A table that can hold rows of a user."""

    schema: str
    name: str
    how: str
    """The column or reference that identifies the user's rows, for people."""
    condition: str
    """SQL condition on a row `t`. $1 is the tenant, $2 the user id, or the session ids if `is_by_session`."""
    is_by_session: bool = False

    @property
    def full_name(self) -> str:
        """Return the table name with its schema. It is safe in SQL, because it comes from the catalog."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class _Reference:
    """A foreign key."""

    child: tuple[str, str]
    parent: tuple[str, str]
    columns: tuple[str, ...]
    parent_columns: tuple[str, ...]


async def find_owned_tables(connection: Connection) -> tuple[list[OwnedTable], list[str]]:
    """Return the tables with rows of users, in an order in which they can be emptied, and the unknown tables.

    A table with an owner column is found without any registration. A table is unknown if neither a column nor a
    reference identifies the owner of its rows.
    """
    columns = {
        (row["schema"], row["name"]): set(row["columns"])
        for row in await connection.fetch(query("forget/forget", "tables"))
    }
    references = [
        _Reference(
            (row["child_schema"], row["child"]),
            (row["parent_schema"], row["parent"]),
            tuple(row["columns"]),
            tuple(row["parent_columns"]),
        )
        for row in await connection.fetch(query("forget/forget", "references"))
    ]
    entities = {row["name"] for row in await connection.fetch(query("db/custom_types", "entity_types"))}
    by_columns = {table: _find_owner_columns(table, names) for table, names in columns.items()}
    owned = {table: owned_table for table, owned_table in by_columns.items() if owned_table is not None}
    _add_referencing_tables(owned, columns, references)
    unknown = sorted(f"{schema}.{name}" for schema, name in set(columns) - set(owned) - _NOT_PERSONAL)
    return [owned[table] for table in _sort_for_deletion(owned, references, entities)], unknown


def _find_owner_columns(table: tuple[str, str], columns: set[str]) -> OwnedTable | None:
    """Return the table if its own columns identify the owner of a row."""
    if table == _BY_SESSION:
        return OwnedTable(*table, "its session", "t.tenant_id = $1 AND t.session_id = ANY ($2::uuid[])", True)
    owner_columns = [column for column in OWNER_COLUMNS if column in columns]
    if not owner_columns or "tenant_id" not in columns:
        return None
    condition = " OR ".join(f"t.{column} = $2" for column in owner_columns)
    return OwnedTable(*table, ", ".join(owner_columns), f"t.tenant_id = $1 AND ({condition})")


def _add_referencing_tables(
    owned: dict[tuple[str, str], OwnedTable],
    columns: Mapping[tuple[str, str], set[str]],
    references: Sequence[_Reference],
) -> None:
    """Add the tables whose rows reference rows of owned tables."""
    for reference in references:
        child, parent = reference.child, owned.get(reference.parent)
        if child in owned or child not in columns or parent is None:
            continue
        match = " AND ".join(
            f"p.{parent_column} = t.{column}"
            for column, parent_column in zip(reference.columns, reference.parent_columns, strict=True)
        )
        inner = parent.condition.replace("t.", "p.")
        condition = f"EXISTS (SELECT FROM {parent.full_name} p WHERE {match} AND {inner})"
        owned[child] = OwnedTable(*child, f"its row in {parent.name}", condition)


def _sort_for_deletion(
    owned: Mapping[tuple[str, str], OwnedTable], references: Sequence[_Reference], entities: set[str]
) -> list[tuple[str, str]]:
    """Sort referencing tables before referenced ones, and tables that triggers maintain last."""

    def rank(table: tuple[str, str]) -> tuple[int, tuple[str, str]]:
        name = table[1]
        # A trigger updates the owner's totals when passages are deleted, so the totals come after them.
        group = 0 if name in _ERASED_FIRST else 1 if name in entities else 2 if name == "passages" else 3
        return group, table

    ordered: list[tuple[str, str]] = []
    left = set(owned)
    while left:
        referenced = {reference.parent for reference in references if reference.child in left - {reference.parent}}
        table = min(left - referenced or left, key=rank)
        ordered.append(table)
        left.remove(table)
    return ordered
