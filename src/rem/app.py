"""Rem: the one object that opens the database and everything on it. Library, API, MCP and CLI all use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO

from rem.context import DEFAULT_TENANT, Scope
from rem.db.custom import TypePlan
from rem.db.database import Database, Progress
from rem.db.dump import dump
from rem.db.load import LoadReport, RowProgress, load, read_files
from rem.db.maintenance import CacheReport, MirrorReport, check_mirrors, rebuild_mirrors
from rem.db.registry import TypeRegistry
from rem.db.store import Store
from rem.demo import workspace
from rem.models import Entity
from rem.settings import Settings, get_settings


class Rem:
    """An open REM. `async with Rem.open() as rem:` starts the embedded server if no other is configured."""

    def __init__(self, database: Database, types: TypeRegistry) -> None:
        self._database = database
        self._types = types

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings | None = None, *, on_progress: Progress | None = None) -> AsyncIterator[Rem]:
        """Open REM with the given settings, or with those of the environment."""
        async with Database.open(settings or get_settings(), on_progress) as database:
            yield cls(database, await TypeRegistry.read(database))

    @property
    def database(self) -> Database:
        """The database, for what the store does not offer."""
        return self._database

    def store(self, user: str | None = None, *, tenant: str = DEFAULT_TENANT) -> Store:
        """The memory of one user, by e-mail address or id; without a user, what the tenant shares."""
        return self.store_for(Scope.of(user, tenant))

    def store_for(self, scope: Scope) -> Store:
        """The memory that a scope sees."""
        return Store(self._database, scope, self._types)

    async def plan(self, model: type[Entity]) -> TypePlan:
        """The migration that `register` would apply for a class of your own, to be read first."""
        return await self._types.plan(self._database, model)

    async def register(self, model: type[Entity]) -> TypePlan:
        """Make a table for a class of your own, or bring it up to date; what was applied."""
        return await self._types.register(self._database, model)

    async def load(
        self,
        *paths: Path,
        user: str | None = None,
        tenant: str = DEFAULT_TENANT,
        on_rows: RowProgress | None = None,
    ) -> LoadReport:
        """Load YAML files into one user's memory, or into what the tenant shares; all of them or nothing."""
        return await load(self.store(user, tenant=tenant), read_files(paths), on_rows)

    async def load_demo(self, *, tenant: str = DEFAULT_TENANT, on_rows: RowProgress | None = None) -> LoadReport:
        """Load the sample workspace."""
        return await load(self.store(tenant=tenant), workspace(), on_rows)

    async def dump(
        self,
        stream: TextIO,
        *,
        user: str | None = None,
        tenant: str = DEFAULT_TENANT,
        with_deleted: bool = False,
        on_rows: Callable[[int], None] | None = None,
    ) -> int:
        """Write one user's own rows, or the shared ones, as YAML that `load` reads; how many there were."""
        return await dump(self.store(user, tenant=tenant), stream, with_deleted=with_deleted, on_rows=on_rows)

    async def rebuild_cache(self) -> CacheReport:
        """Fill kv_store and edges anew from the tables."""
        return await rebuild_mirrors(self._database)

    async def check_cache(self) -> MirrorReport:
        """Compare kv_store and edges with what the tables imply."""
        return await check_mirrors(self._database)
