"""Custom entity types: plan the migration that creates or changes the table of a Pydantic class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_core import PydanticUndefined

from rem.db.migrator import CUSTOM_PREFIX, Migration
from rem.db.sql import identifier, literal, query
from rem.db.table import Column, Table, get_table
from rem.errors import ConflictError, InvalidInputError
from rem.models import BUILTIN_ENTITIES, Entity

if TYPE_CHECKING:
    from rem.db.database import Connection

_LOSSLESS_CASTS = {("bigint", "double precision"), ("bigint", "numeric"), ("double precision", "numeric")}


@dataclass(frozen=True, slots=True)
class TypePlan:
    """The migration for a class (None if its table is up to date), with notes for the user."""

    table: str
    migration: Migration | None
    notes: tuple[str, ...] = ()

    @property
    def sql(self) -> str:
        """Return the notes and the migration as SQL text. It is only a comment if nothing changes."""
        comments = "".join(f"-- {note}\n" for note in self.notes)
        return comments + (self.migration.up_script if self.migration else f"-- {self.table} is up to date.\n")


async def plan_type_migration(connection: Connection, model: type[Entity]) -> TypePlan:
    """Return the migration that a class needs. Raise ConflictError if its table cannot take the change."""
    table = get_table(model)
    if any(builtin.entity_type.table == table.name for builtin in BUILTIN_ENTITIES):
        raise ConflictError(f"{table.name} is one of REM's own tables: give {model.__name__} another table name.")
    _refuse_reserved_fields(model)
    number = await connection.fetchval(query("db/custom_types", "next_number"), f"{CUSTOM_PREFIX}{table.name}:")
    name = f"{CUSTOM_PREFIX}{table.name}:{number}"
    stored_columns = {
        row["name"]: row for row in await connection.fetch(query("db/custom_types", "columns"), table.name)
    }
    if not stored_columns:
        return TypePlan(table.name, Migration(name, _build_create_script(table, model), _build_drop_script(table)))
    entity = await connection.fetchrow(query("db/custom_types", "entity_type"), table.name)
    if entity is None:
        raise ConflictError(f"The schema rem has a table {table.name} that is no entity type: use another name.")
    if entity["natural_key"] != table.entity_type.key_expression:
        raise ConflictError(
            f"The key of {table.name} cannot change: register {model.__name__} under another table name."
        )
    ups, downs, notes = [], [], []
    for change in _compare_columns(table, model, stored_columns):
        ups += [change.up] if change.up else []
        downs += [change.down] if change.down else []
        notes += [change.note] if change.note else []
    expressions = _compare_expressions(table, entity)
    if expressions:
        ups.append(expressions.up)
        downs.append(expressions.down)
    if ups:
        # kv_store has copies of the old rows. After a rollback the migrator itself rebuilds it.
        ups.append("SELECT rem.rem_rebuild_kv_store()")
    up_script = "".join(f"{line};\n" for line in ups)
    down_script = "".join(f"{line};\n" for line in reversed(downs))
    return TypePlan(table.name, Migration(name, up_script, down_script) if up_script else None, tuple(notes))


def _refuse_reserved_fields(model: type[Entity]) -> None:
    changed = [
        name for name, info in Entity.model_fields.items() if model.model_fields[name].annotation != info.annotation
    ]
    if changed:
        raise InvalidInputError(f"{model.__name__} redefines {', '.join(changed)}, which every entity has: rename it.")
    key_field = get_table(model).entity_type.key_fields[0]
    if key_field != "id" and get_table(model).columns[key_field].sql_type != "text":
        raise InvalidInputError(f"{model.__name__}: the key field {key_field} must be a str.")


def _own_columns(table: Table) -> list[Column]:
    return [column for column in table.columns.values() if column.name not in Entity.model_fields]


def _build_create_script(table: Table, model: type[Entity]) -> str:
    definitions = ",\n".join(f"  {_define_column(column, model)}" for column in _own_columns(table))
    entity = table.entity_type
    return (
        f"CREATE TABLE rem.{identifier(table.name)} (\n{definitions}\n);\n"
        f"SELECT rem.rem_make_entity({literal(table.name)}, {literal(entity.key_expression)});\n"
        "INSERT INTO rem.entity_types (name, natural_key, key_expressions, summary_expression, search_expression,\n"
        "    search_fields, title_field)\n"
        f"  VALUES ({literal(table.name)}, {literal(entity.key_expression)}, ARRAY['r.key'],\n"
        f"    {literal(_summary_expression(table))}, {literal(_search_expression(table))},\n"
        f"    {_search_fields_literal(entity.search_fields)}, {_title_field_literal(table)});\n"
    )


def _build_drop_script(table: Table) -> str:
    name = literal(table.name)
    return (
        f"DELETE FROM rem.kv_store WHERE entity_type = {name};\n"
        f"DELETE FROM rem.edges WHERE src_type = {name};\n"
        f"DELETE FROM rem.search_queue WHERE entity_type = {name};\n"
        f"DELETE FROM rem.passages WHERE entity_type = {name};\n"
        f"DELETE FROM rem.entity_types WHERE name = {name};\n"
        f"DROP TABLE rem.{identifier(table.name)};\n"
    )


def _define_column(column: Column, model: type[Entity]) -> str:
    default = _get_default(column, model)
    parts = [identifier(column.name), column.sql_type]
    if not column.nullable:
        parts.append("NOT NULL")
    if default is not None:
        parts.append(f"DEFAULT {default}")
    return " ".join(parts)


def _get_default(column: Column, model: type[Entity]) -> str | None:
    """Return the default of a field as SQL, or None if it has no default."""
    value = model.model_fields[column.name].get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or value is None:
        return None
    value = column.encode(value) if column.encode else value
    if isinstance(value, Enum):
        value = value.value
    if column.sql_type == "jsonb":
        text = orjson.dumps(value).decode()
    elif column.sql_type.endswith("[]"):
        return f"ARRAY[{', '.join(literal(str(item)) for item in value)}]::{column.sql_type}"
    else:
        text = value.isoformat() if isinstance(value, date | datetime) else str(value)
    return f"{literal(text)}::{column.sql_type}"


def _summary_expression(table: Table) -> str:
    field_name = table.entity_type.summary_field or next(iter(table.entity_type.search_fields), None)
    return f"r.{identifier(field_name)}::text" if field_name else "''"


def _search_expression(table: Table) -> str:
    fields = ", ".join(f"r.{identifier(name)}::text" for name in table.entity_type.search_fields)
    return f"concat_ws(E'\\n', {fields})" if fields else "''"


def _search_fields_literal(names: Iterable[str]) -> str:
    return f"ARRAY[{', '.join(map(literal, names))}]::text[]"


def _title_field_literal(table: Table) -> str:
    key_field = table.entity_type.key_fields[0]
    return "NULL" if key_field == "id" else literal(key_field)


@dataclass(frozen=True, slots=True)
class _Change:
    """One statement for each direction, and a note; each part may be empty."""

    up: str = ""
    down: str = ""
    note: str = ""


def _compare_columns(table: Table, model: type[Entity], stored: dict[str, Any]) -> Iterator[_Change]:
    """Yield the changes from the stored columns to those of the class. `stored` maps names to column rows."""
    alter = f"ALTER TABLE rem.{identifier(table.name)}"
    own = {column.name: column for column in _own_columns(table)}
    for column in own.values():
        if column.name not in stored:
            yield _add_column(alter, column, model)
        else:
            yield from _alter_column(alter, column, model, stored[column.name])
    for name, row in stored.items():
        if name not in table.columns:
            note = f"{name} is no longer in {model.__name__}; its column stays, so no data is lost."
            if row["nullable"]:
                yield _Change(note=note)
            else:
                yield _Change(f"{alter} ALTER COLUMN {identifier(name)} DROP NOT NULL", "", note)


def _add_column(alter: str, column: Column, model: type[Entity]) -> _Change:
    if not column.nullable and _get_default(column, model) is None:
        raise InvalidInputError(
            f"{model.__name__}.{column.name} is new and required: give it a default, which the stored rows will have, "
            "or make it optional."
        )
    return _Change(
        f"{alter} ADD COLUMN {_define_column(column, model)}", f"{alter} DROP COLUMN {identifier(column.name)}"
    )


def _alter_column(alter: str, column: Column, model: type[Entity], stored: Any) -> Iterator[_Change]:
    name = identifier(column.name)
    old_type = stored["sql_type"]
    if old_type != column.sql_type:
        if column.sql_type != "text" and (old_type, column.sql_type) not in _LOSSLESS_CASTS:
            raise ConflictError(
                f"{model.__name__}.{column.name} is stored as {old_type} and cannot become {column.sql_type} without "
                "losing values: give the new field another name."
            )
        yield _Change(
            f"{alter} ALTER COLUMN {name} DROP DEFAULT,\n"
            f"  ALTER COLUMN {name} TYPE {column.sql_type} USING {name}::{column.sql_type}",
            f"{alter} ALTER COLUMN {name} TYPE {old_type} USING {name}::{old_type}",
        )
    if stored["nullable"] and not column.nullable:
        default = _get_default(column, model)
        if default is None:
            raise InvalidInputError(f"{model.__name__}.{column.name} becomes required: give it a default first.")
        yield _Change(
            f"UPDATE rem.{identifier(get_table(model).name)} SET {name} = {default} WHERE {name} IS NULL;\n"
            f"{alter} ALTER COLUMN {name} SET NOT NULL",
            f"{alter} ALTER COLUMN {name} DROP NOT NULL",
        )
    if column.nullable and not stored["nullable"]:
        yield _Change(f"{alter} ALTER COLUMN {name} DROP NOT NULL", "", f"{column.name} may be empty from now on.")


def _compare_expressions(table: Table, stored: Any) -> _Change | None:
    """Return the change if the class names other fields for its summary or search. Its key never changes."""
    new = (_summary_expression(table), _search_expression(table), table.entity_type.search_fields)
    old = (stored["summary_expression"], stored["search_expression"], tuple(stored["search_fields"]))
    if new == old:
        return None
    return _Change(_set_expressions(table, *new), _set_expressions(table, *old))


def _set_expressions(table: Table, summary: str, search: str, search_fields: Iterable[str]) -> str:
    return (
        f"UPDATE rem.entity_types SET summary_expression = {literal(summary)}, search_expression = {literal(search)},\n"
        f"  search_fields = {_search_fields_literal(search_fields)} WHERE name = {literal(table.name)};\n"
        "INSERT INTO rem.search_queue (tenant_id, owner, entity_type, entity_ids)\n"
        f"  SELECT tenant_id, coalesce(user_id, ''), {literal(table.name)}, array_agg(id)\n"
        f"  FROM rem.{identifier(table.name)}\n"
        "  WHERE deleted_at IS NULL GROUP BY tenant_id, user_id"
    )
