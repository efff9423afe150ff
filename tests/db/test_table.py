"""The entity classes match their tables."""

from __future__ import annotations

import asyncpg

from rem.db.table import get_table
from rem.models import BUILTIN_ENTITIES, Entity
from tests.cases import cases

_SAME = {"integer": "bigint"}


@cases("model", BUILTIN_ENTITIES, ids=lambda model: model.__name__)
async def test_class_has_the_columns_of_its_table(model: type[Entity], sql: asyncpg.Connection[asyncpg.Record]) -> None:
    rows = await sql.fetch(
        """SELECT attname, replace(format_type(atttypid, NULL), 'timestamp with time zone', 'timestamptz') AS type,
                  NOT attnotnull AS nullable
           FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped""",
        f"rem.{model.entity_type.table}",
    )
    stored = {row["attname"]: (_SAME.get(row["type"], row["type"]), row["nullable"]) for row in rows}
    declared = {column.name: (column.sql_type, column.nullable) for column in get_table(model).columns.values()}
    for owned in ("key", "user_id"):  # filled in by the store, so the class must allow their absence
        stored.pop(owned), declared.pop(owned)
    assert declared == stored


@cases("model", BUILTIN_ENTITIES, ids=lambda model: model.__name__)
async def test_class_and_table_agree_on_the_key(model: type[Entity], sql: asyncpg.Connection[asyncpg.Record]) -> None:
    natural_key = await sql.fetchval("SELECT natural_key FROM entity_types WHERE name = $1", model.entity_type.table)
    assert natural_key == model.entity_type.key_expression


async def test_every_entity_type_has_a_class(sql: asyncpg.Connection[asyncpg.Record]) -> None:
    names = {name for (name,) in await sql.fetch("SELECT name FROM entity_types")}
    assert names == {model.entity_type.table for model in BUILTIN_ENTITIES}
