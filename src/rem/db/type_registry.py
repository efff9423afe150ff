"""TypeRegistry: the entity types of a database and their classes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic import TypeAdapter, create_model

from rem.db.custom_types import TypePlan, plan_type_migration
from rem.db.migrator import Migrator, change_schema
from rem.db.sql import query
from rem.db.table import get_table
from rem.errors import InvalidInputError
from rem.models import BUILTIN_ENTITIES, Entity
from rem.models.field_types import UtcDateTime, Vector

if TYPE_CHECKING:
    from rem.db.database import Connection, Database

_PYTHON_TYPES: dict[str, Any] = {
    "boolean": bool,
    "text": str,
    "bigint": int,
    "double precision": float,
    "numeric": Decimal,
    "timestamptz": UtcDateTime,
    "date": date,
    "uuid": UUID,
    "text[]": list[str],
    "uuid[]": list[UUID],
    "vector": Vector,
}
_KEY_EXPRESSION = re.compile(r'rem\.rem_key\("?(\w+)"?\)\Z')


class UnknownTableError(InvalidInputError):
    """There is no such table."""

    def __init__(self, table: str, known: Collection[str]) -> None:
        self.nearest = next(iter(difflib.get_close_matches(table, known, n=1)), None)
        hint = f"Did you mean {self.nearest!r}?" if self.nearest else "Register your own type with `rem db register`."
        super().__init__(f"There is no table {table!r}. {hint} The tables: {', '.join(sorted(known))}.")


@dataclass(slots=True)
class TypeRegistry:
    """The class of each table. A type that another program registered gets a class built from its columns."""

    models: dict[str, type[Entity]] = field(
        default_factory=lambda: {model.entity_type.table: model for model in BUILTIN_ENTITIES}
    )

    @classmethod
    async def load(cls, database: Database) -> TypeRegistry:
        """Return a registry with all types of the database."""
        registry = cls()
        async with database.connection() as connection:
            await registry.refresh(connection)
        return registry

    async def refresh(self, connection: Connection) -> None:
        """Add the types that were registered in the database since the last call."""
        for name, natural_key in await connection.fetch(query("db/custom_types", "entity_types")):
            if name not in self.models:
                self.models[name] = await _create_model(connection, name, natural_key)

    def get_model(self, table: str) -> type[Entity]:
        """Return the class of a table. Raise InvalidInputError if there is no such table."""
        if table in self.models:
            return self.models[table]
        raise UnknownTableError(table, self.models)

    def require_registered(self, model: type[Entity]) -> None:
        """Raise InvalidInputError if the class is not registered in this database."""
        if self.models.get(get_table(model).name) is not model:
            raise InvalidInputError(
                f"{model.__name__} is not registered: call `await rem.register({model.__name__})` after opening REM."
            )

    async def plan(self, database: Database, model: type[Entity]) -> TypePlan:
        """Return the migration that a class needs, without applying it."""
        async with database.connection() as connection:
            return await plan_type_migration(connection, model)

    async def register(self, database: Database, model: type[Entity]) -> TypePlan:
        """Apply the migration that a class needs, add the class, and return the plan."""
        async with database.unpooled_connection() as connection:

            async def change() -> TypePlan:
                await connection.execute(query("db/migrations", "lock"))
                plan = await plan_type_migration(connection, model)
                if plan.migration:
                    await Migrator(connection, database.server_info.search_path).migrate([plan.migration])
                return plan

            plan = await change_schema(connection, change)
        self.models[plan.table] = model
        return plan


async def _create_model(connection: Connection, table: str, natural_key: str) -> type[Entity]:
    """Build an entity class from the columns of a table."""
    fields: dict[str, Any] = {}
    for name, sql_type, nullable, default_expression in await connection.fetch(
        query("db/custom_types", "columns"), table
    ):
        if name not in Entity.model_fields:
            annotation = _PYTHON_TYPES.get(sql_type, Any)
            annotation = annotation | None if nullable else annotation
            default = None if nullable else ...
            if default_expression is not None:
                # Safe to run: the expression comes from the migration that created the column.
                value = await connection.fetchval(f"SELECT to_json({default_expression})")
                default = TypeAdapter(annotation).validate_python(value)
            fields[name] = (annotation, default)
    match = _KEY_EXPRESSION.match(natural_key)
    return create_model(
        table.title().replace("_", ""),
        __base__=Entity,
        __cls_kwargs__={
            "table": table,
            "key_expression": natural_key,
            "key_fields": (match.group(1),) if match else ("id",),
        },
        **fields,
    )
