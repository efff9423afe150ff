"""WritePlan: the upsert statements for entities that have the same fields set."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from rem.db.sql import fill, identifier, query
from rem.db.table import IMMUTABLE_COLUMNS, READ_ONLY_COLUMNS, Column, Table
from rem.models.entity import Entity
from rem.privacy.policy import PrivacyPolicy, unescape_json

if TYPE_CHECKING:
    from rem.db.database import Connection


@dataclass(frozen=True, slots=True)
class PrivateColumn:
    """A column that the privacy policy reads."""

    position: int
    name: str
    mask: Callable[[PrivacyPolicy, Any, str], Any]
    """Applies the policy to an encoded value of the column, which has this name."""
    is_identity: bool
    """E-mail addresses and phone numbers stay in it, because they identify something."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The upsert statements for rows that have the same fields set."""

    columns: tuple[Column, ...]
    encoders: tuple[tuple[int, Callable[[Any], Any]], ...]
    """Positions in `columns` whose values need encoding, with their encoders."""
    private: tuple[PrivateColumn, ...]
    """Columns that may contain secrets or personal data."""
    staged: tuple[str, ...]
    """Names of the incoming columns: `columns`, then the revision that the caller read."""
    staging_table: str
    from_json: str
    from_staging: str


@lru_cache(maxsize=512)
def build_write_plan(
    table: Table, fields: frozenset[str], is_loaded: bool, is_shared: bool, with_records: bool
) -> WritePlan:
    """Build the plan for entities that have the same fields set.

    `is_loaded`: all of them were read from the store. `is_shared`: the writer is the tenant, not a user.
    `with_records`: the statement returns the stored rows as JSON.
    """
    columns = tuple(
        column
        for name, column in table.columns.items()
        if name not in READ_ONLY_COLUMNS
        and (name in fields or name in _ALWAYS_STAGED or name not in Entity.model_fields)
    )
    updates = [column.name for column in columns if column.name in fields - IMMUTABLE_COLUMNS]
    quoted = [identifier(column.name) for column in columns]
    staged = [*(column.name for column in columns), "rem_revision"]
    typed = [f"{identifier(column.name)} {_staged_type(column)}" for column in columns] + ["rem_revision timestamptz"]
    # A given created_at may be later than the start of this transaction; updated_at must not be earlier.
    is_dated = "created_at" in fields and "updated_at" not in fields
    derived = {'"updated_at"': 'greatest(i."created_at", now())'} if is_dated else {}
    name = f"rem.{identifier(table.name)}"
    owner = {f"owner_of_{alias}": owner_condition(alias, is_shared) for alias in ("r", "by_id", "by_key")}
    upsert = fill(
        query("db/repository", "upsert"),
        table=name,
        key=table.entity_type.key_expression,
        selection=", ".join(
            f"s.{identifier(column.name)}{_cast(column)} AS {identifier(column.name)}" for column in columns
        ),
        columns=", ".join([*quoted, *derived]),
        incoming_columns=", ".join([*(f"i.{column}" for column in quoted), *derived.values()]),
        updates=_build_assignments(updates, "i", is_loaded),
        conflict_updates=_build_assignments(updates, "excluded", is_loaded),
        changed=_compare_changes(updates, is_loaded),
        # A dump may contain deleted rows; they never replace a live row with the same key.
        is_live="i.deleted_at IS NULL" if "deleted_at" in fields else "true",
        returning="to_json(stored.*)" if with_records else "NULL::json",
        **owner,
    )
    return WritePlan(
        columns,
        tuple((position, column.encode) for position, column in enumerate(columns) if column.encode),
        tuple(find_private_columns(table.entity_type.key_fields[0], columns)),
        tuple(staged),
        fill(query("db/repository", "staging_table"), typed_columns=", ".join(typed)),
        fill(
            upsert,
            materialized="MATERIALIZED",
            source=fill(
                query("db/repository", "json_source"),
                typed_columns=", ".join(typed),
                columns=", ".join(identifier(column) for column in staged),
            ),
        ),
        fill(upsert, materialized="NOT MATERIALIZED", source=query("db/repository", "staged_source")),
    )


_TECHNICAL_COLUMNS = frozenset(
    {
        *("origin", "sources", "checksum", "mime_type", "role", "kind", "model", "mode", "tool_call_id", "moment_type"),
        *(
            "source_table",
            "version",
            "email",
            "tier",
            "activity_level",
            "processing_status",
            "status",
            "risk_level",
            "embedding_model",
        ),
        *("owner_user_id", "shared_with_user_id", "decided_by", "trace_id", "span_id"),
    }
)
"""Text columns whose values REM makes itself, or that say who somebody is."""
_IDENTITY_COLUMNS = frozenset(
    {"uri", "tags", "graph_edges", "related_entities", "present_persons", "previous_moment_keys", "topic_tags"}
)


def find_private_columns(label: str, columns: Sequence[Column]) -> Iterator[PrivateColumn]:
    """Yield the columns that the privacy policy reads. `label` is the column with the name of a row."""
    for position, column in enumerate(columns):
        mask = _check_label if column.name == label and column.sql_type == "text" else _MASKS.get(column.sql_type)
        if mask is not None and column.name not in _TECHNICAL_COLUMNS:
            yield PrivateColumn(position, column.name, mask, column.name in _IDENTITY_COLUMNS)


def list_private_texts(plan: WritePlan, encoded: Sequence[Any]) -> list[str]:
    """Return the texts of a row that the privacy policy reads."""
    texts: list[str] = []
    for column in plan.private:
        value = encoded[column.position]
        if not value:
            continue
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            texts += value
        elif len(document := orjson.dumps(value)) > len("{}"):
            texts.append(unescape_json(document))
    return texts


def _check_label(policy: PrivacyPolicy, value: str, name: str) -> str:
    return policy.check_label(value, name)


def _mask_text(policy: PrivacyPolicy, value: str, name: str) -> str:
    return policy.mask(value, name)


def _mask_texts(policy: PrivacyPolicy, value: list[str], name: str) -> list[str]:
    return [policy.mask(item, name) for item in value]


def _mask_json(policy: PrivacyPolicy, value: orjson.Fragment, name: str) -> orjson.Fragment:
    raw = orjson.dumps(value)
    masked = policy.mask_json(raw, name)
    return value if masked is raw else orjson.Fragment(masked)


_MASKS: dict[str, Callable[[PrivacyPolicy, Any, str], Any]] = {
    "text": _mask_text,
    "text[]": _mask_texts,
    "jsonb": _mask_json,
}

_ALWAYS_STAGED = frozenset({"id", "origin"})
"""Written for every row, with the columns of the class itself, because the database does not know their defaults."""


_STAGED_AS_TEXT = frozenset({"vector", "date", "timestamptz"})
"""Binary COPY of the driver has no vector, and it treats the first and last date as infinity."""


def _staged_type(column: Column) -> str:
    return "text" if column.sql_type in _STAGED_AS_TEXT else column.sql_type


def _cast(column: Column) -> str:
    return f"::{column.sql_type}" if column.sql_type in _STAGED_AS_TEXT else ""


_IS_EXPIRED = "coalesce(stored.expires_at <= now(), false)"


def _build_assignments(names: Sequence[str], source: str, is_loaded: bool) -> str:
    """Return the SET list for an update of the given fields. An expired row becomes live again."""
    assignments = [f"{identifier(name)} = {_new_value(name, source, is_loaded)}" for name in names]
    renewal = (
        [] if "expires_at" in names else [f'"expires_at" = CASE WHEN NOT {_IS_EXPIRED} THEN stored.expires_at END']
    )
    return ", ".join(assignments + renewal)


def _compare_changes(names: Sequence[str], is_loaded: bool) -> str:
    differences = [f"stored.{identifier(name)} IS DISTINCT FROM {_new_value(name, 'i', is_loaded)}" for name in names]
    return " OR ".join([*differences, *([] if "expires_at" in names else [_IS_EXPIRED])])


def _new_value(name: str, source: str, is_loaded: bool) -> str:
    value = f"{source}.{identifier(name)}"
    if name == "graph_edges" and not is_loaded:
        # A writer that has not read the stored edges must not remove edges of another origin.
        return f"rem.rem_merge_edges(stored.graph_edges, {value}, {source}.origin)"
    return value


@asynccontextmanager
async def stage_rows(connection: Connection, plan: WritePlan, rows: Iterable[tuple[Any, ...]]) -> AsyncIterator[None]:
    """Copy rows into a temporary table for the block. `rows` is consumed while the server already reads."""
    async with connection.transaction():
        await connection.execute(plan.staging_table)
        # A batch is hashed and sorted in memory; the default is for many small statements at once.
        await connection.execute("SET LOCAL work_mem = '64MB'")
        await connection.copy_records_to_table(
            "rem_incoming",
            records=((*row, number) for number, row in enumerate(rows)),
            columns=[*plan.staged, "rem_row"],
        )
        await connection.execute("ANALYZE pg_temp.rem_incoming (id, rem_row)")
        yield
        await connection.execute("DROP TABLE pg_temp.rem_incoming")


def owner_condition(alias: str, is_shared: bool) -> str:
    """Return the SQL condition for rows of the scope. Shared rows need IS NULL, which an index supports."""
    return f"({alias}.user_id IS NULL AND $2::text IS NULL)" if is_shared else f"{alias}.user_id = $2"
