"""Which tables hold something of a user, found from the database's own catalogue, so that none is forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Connection

OWNER_COLUMNS = ("user_id", "owner", "owner_user_id", "shared_with_user_id")
"""Columns that say whose a row is, or with whom it is shared."""

JOBS = ("rem_jobs", "pgqueuer")
"""A job says in its headers whose it is."""

_BY_SESSION = ("rem", "session_counters")
_NOT_PERSONAL = frozenset(
    {
        *(
            ("rem", name)
            for name in ("entity_types", "migrations", "installed_functions", "embedding_models", "sql_access")
        ),
        # How often words occur in a tenant: numbers in place of the words, and counts.
        *(("rem", "term_counts"), ("rem", "term_count_deltas")),
        # When which kind of job ran. Nothing of a user is written there.
        *(("rem_jobs", name) for name in ("pgqueuer_log", "pgqueuer_schedules", "pgqueuer_statistics")),
    }
)
_EARLY = frozenset({"statement_sources", "statements", "dream_progress", "dream_runs"})


@dataclass(frozen=True, slots=True)
class OwnedTable:
    """A table that may hold rows of a user."""

    schema: str
    name: str
    how: str
    """By what its rows are known to be the user's."""
    condition: str
    """SQL over a row `t`: $1 is the tenant, $2 the user; where it is known by its session, the ids of those."""
    is_by_session: bool = False

    @property
    def full_name(self) -> str:
        """The table's full name, for people and for SQL; the catalogue gave it."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class _Reference:
    """A foreign key."""

    child: tuple[str, str]
    parent: tuple[str, str]
    columns: tuple[str, ...]
    parent_columns: tuple[str, ...]


async def find_owned_tables(connection: Connection) -> tuple[list[OwnedTable], list[str]]:
    """The tables that hold something of users, in an order in which they can be emptied; and those unaccounted for.

    A table that is made later and has a column for its owner is among the first without anybody's doing.
    """
    columns = {
        (row["schema"], row["name"]): set(row["columns"])
        for row in await connection.fetch(query("forgetting", "tables"))
    }
    references = [
        _Reference(
            (row["child_schema"], row["child"]),
            (row["parent_schema"], row["parent"]),
            tuple(row["columns"]),
            tuple(row["parent_columns"]),
        )
        for row in await connection.fetch(query("forgetting", "references"))
    ]
    entities = {row["name"] for row in await connection.fetch(query("custom_types", "entity_types"))}
    owned = {table: found for table in columns if (found := _find_owner_columns(table, columns[table])) is not None}
    _add_referencing_tables(owned, columns, references)
    unknown = sorted(f"{schema}.{name}" for schema, name in set(columns) - set(owned) - _NOT_PERSONAL - {JOBS})
    return [owned[table] for table in _sort_for_deletion(owned, references, entities)], unknown


def _find_owner_columns(table: tuple[str, str], columns: set[str]) -> OwnedTable | None:
    """The table, if its own columns say whose a row is."""
    if table == _BY_SESSION:
        return OwnedTable(*table, "its session", "t.tenant_id = $1 AND t.session_id = ANY ($2::uuid[])", True)
    found = [column for column in OWNER_COLUMNS if column in columns]
    if not found or "tenant_id" not in columns:
        return None
    condition = " OR ".join(f"t.{column} = $2" for column in found)
    return OwnedTable(*table, ", ".join(found), f"t.tenant_id = $1 AND ({condition})")


def _add_referencing_tables(
    owned: dict[tuple[str, str], OwnedTable],
    columns: Mapping[tuple[str, str], set[str]],
    references: Sequence[_Reference],
) -> None:
    """Add the tables whose rows belong to rows of the others, by their foreign keys."""
    for reference in references:
        child, parent = reference.child, owned.get(reference.parent)
        if child in owned or child not in columns or parent is None:
            continue
        match = " AND ".join(
            f"p.{theirs} = t.{ours}" for ours, theirs in zip(reference.columns, reference.parent_columns, strict=True)
        )
        inner = parent.condition.replace("t.", "p.")
        condition = f"EXISTS (SELECT FROM {parent.full_name} p WHERE {match} AND {inner})"
        owned[child] = OwnedTable(*child, f"its row in {parent.name}", condition)


def _sort_for_deletion(
    owned: Mapping[tuple[str, str], OwnedTable], references: Sequence[_Reference], entities: set[str]
) -> list[tuple[str, str]]:
    """Who refers before who is referred to; statements before their sources; what triggers keep exact at the end."""

    def rank(table: tuple[str, str]) -> tuple[int, tuple[str, str]]:
        name = table[1]
        # A trigger writes the totals of an owner anew when passages go.
        place = 0 if name in _EARLY else 1 if name in entities else 2 if name == "passages" else 3
        return place, table

    ordered: list[tuple[str, str]] = []
    left = set(owned)
    while left:
        waiting = {reference.parent for reference in references if reference.child in left - {reference.parent}}
        free = sorted(left - waiting, key=rank) or sorted(left, key=rank)
        ordered.append(free[0])
        left.remove(free[0])
    return ordered
