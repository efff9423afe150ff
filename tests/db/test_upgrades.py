"""Upgrades without downtime: processes of two versions share a database, and a migration does not stop the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.database import Database, migrate_schema
from rem.db.maintenance import check_mirrors
from rem.db.migrator import builtin_migrations, find_heavy_statements
from rem.db.preflight import read_server_info
from rem.errors import ConflictError, MigrationError
from rem.models import Resource
from tests.conftest import settings_for
from tests.rem_command import rem as run_rem

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
NEWEST = builtin_migrations()[-1].name


async def migrate(dsn: str, max_wait_seconds: float = 60, messages: list[str] | None = None) -> list[str]:
    """Migrate a database as `rem db migrate` does."""
    settings = settings_for(dsn)
    async with Database(settings).unpooled_connection() as connection:
        info = await read_server_info(connection)
        on_progress = None if messages is None else messages.append
        return await migrate_schema(
            connection, settings, info, on_progress=on_progress, max_wait_seconds=max_wait_seconds
        )


@pytest.fixture
async def outdated(dsn: str, sql: Connection) -> str:
    """Return a database with the functions of another version, which a migration drops and creates again."""
    await sql.execute("UPDATE rem.installed_functions SET checksum = 'of another REM'")
    return dsn


@pytest.fixture
async def reader(dsn: str) -> AsyncIterator[Connection]:
    """Yield a connection that has read a table in a transaction that is still open."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": "slow report"})
    await connection.execute("BEGIN")
    await connection.fetch("SELECT FROM rem.resources")
    try:
        yield connection
    finally:
        await connection.close()


async def use_memory(rem: Rem, number: int) -> None:
    """Write a row, look it up and search for it."""
    store = rem.for_user("alice@example.com").store
    await store.upsert(Resource(name=f"Report {number}", content=f"The boat number {number} is green."))
    assert [row.key for row in await store.lookup(f"report-{number}")] == [f"report-{number}"]
    found = await rem.for_user("alice@example.com").query('SEARCH "green boat" FROM resources')
    assert found.count >= 0


async def test_process_works_while_another_migrates_and_afterwards(dsn: str, sql: Connection) -> None:
    async with Rem.open(settings_for(dsn)) as rem:
        await use_memory(rem, 0)
        await sql.execute("UPDATE rem.installed_functions SET checksum = 'of another REM'")
        migration = asyncio.create_task(migrate(dsn))
        number = 0
        while not migration.done() or number < 5:
            number += 1
            # On a slow machine a writer may lose against the migration. It has stored nothing and may try again.
            with suppress(ConflictError):
                await use_memory(rem, number)
        assert await migration == []
        # A newer version adds columns and tables.
        await sql.execute("ALTER TABLE rem.resources ADD COLUMN newer text NOT NULL DEFAULT 'x'")
        await sql.execute("CREATE TABLE rem.newer (tenant_id text PRIMARY KEY)")
        await sql.execute("SELECT rem.rem_refresh_entity_types()")
        await sql.execute("SELECT rem.rem_rebuild_kv_store()")
        await sql.execute("INSERT INTO rem.migrations (name, checksum, down_script) VALUES ('9999_newer', '', '')")
        for more in range(5):
            await use_memory(rem, number + more)
        assert (await check_mirrors(rem.database)).is_exact


async def test_process_of_an_older_version_says_why_it_fails(rem: Rem, sql: Connection) -> None:
    await use_memory(rem, 0)
    # A newer version gives the function of SEARCH one more parameter.
    await sql.execute("DROP FUNCTION rem.rem_search")
    await sql.execute("CREATE FUNCTION rem.rem_search(jsonb, integer) RETURNS json LANGUAGE sql RETURN NULL::json")
    with pytest.raises(MigrationError, match=r"does not fit this version of REM .*rem_search.*upgrade this one"):
        await rem.for_user("alice@example.com").query('SEARCH "green boat" FROM resources')


def test_new_version_refuses_a_schema_that_is_behind(dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    assert run_rem("db", "rollback", "--yes", settings=settings).returncode == 0
    refused = run_rem("serve", "--port", "0", settings=settings)
    assert refused.returncode != 0
    assert "The schema of the database does not fit this version of REM: run `rem db migrate`." in refused.stderr


async def test_migration_lets_others_work_while_it_waits_for_a_reader(outdated: str, reader: Connection) -> None:
    messages: list[str] = []
    writer = await asyncpg.connect(outdated)
    insert = "INSERT INTO rem.resources (tenant_id, user_id, name) VALUES ('default', 'alice', $1)"
    migration = asyncio.create_task(migrate(outdated, messages=messages))
    async with asyncio.timeout(60):
        number = 0
        while len(messages) < 2:
            # Without the time limit of its locks, the migration would keep writers waiting until the reader ends.
            await writer.execute(insert, f"Row {number}")
            number += 1
            await asyncio.sleep(0.01)
        assert not migration.done()
        await reader.execute("COMMIT")
        assert await migration == []
    await writer.close()
    assert "slow report" in messages[0]
    assert number > 2


async def test_migration_gives_up_and_names_the_session(outdated: str, reader: Connection, sql: Connection) -> None:
    with pytest.raises(MigrationError, match=r"nothing was changed .*process \d+ \(slow report\)"):
        await migrate(outdated, max_wait_seconds=0)
    assert await sql.fetchval("SELECT checksum FROM rem.installed_functions") == "of another REM"
    assert await reader.fetchval("SELECT 1") == 1


def test_check_tells_whether_something_is_pending(dsn: str, empty_dsn: str) -> None:
    settings = {"POSTGRES__CONNECTION_STRING": dsn}
    current = run_rem("db", "migrate", "--check", settings=settings)
    assert (current.returncode, current.stdout) == (0, "The schema is up to date.\n")
    assert run_rem("db", "rollback", "--yes", settings=settings).returncode == 0
    behind = run_rem("db", "migrate", "--check", settings=settings)
    assert behind.returncode == 1
    assert behind.stdout.startswith(f"Pending: {NEWEST}.")
    empty = run_rem("db", "migrate", "--check", "--json", settings={"POSTGRES__CONNECTION_STRING": empty_dsn})
    assert empty.returncode == 1
    plan = json.loads(empty.stdout)
    assert plan["pending"] == [migration.name for migration in builtin_migrations()]
    assert plan["heavy_statements"] == {}
    assert run_rem("db", "migrate", settings=settings).returncode == 0


@pytest.mark.parametrize(
    ("statement", "is_heavy"),
    [
        ("CREATE INDEX by_name ON resources (tenant_id, name)", True),
        ("CREATE UNIQUE INDEX IF NOT EXISTS by_name ON rem.resources (tenant_id, name)", True),
        ("CREATE INDEX CONCURRENTLY by_name ON resources (tenant_id, name)", False),
        ("ALTER TABLE resources ADD COLUMN colour text NOT NULL DEFAULT 'red'", False),
        ("ALTER TABLE resources ALTER COLUMN colour SET NOT NULL", True),
        ("ALTER TABLE resources ALTER COLUMN size TYPE bigint", True),
        ("ALTER TABLE resources ADD CONSTRAINT sized CHECK (size > 0)", True),
        ("ALTER TABLE resources ADD CONSTRAINT sized CHECK (size > 0) NOT VALID", False),
        ("UPDATE resources SET size = 1", True),
        ("DELETE FROM resources", True),
        ("INSERT INTO resources (name) SELECT name FROM users", True),
        ("CREATE TABLE boxes (tenant_id text); CREATE INDEX boxes_tenant ON boxes (tenant_id)", False),
        ("CREATE FUNCTION f() RETURNS void LANGUAGE sql AS $$ UPDATE resources SET size = 1; $$", False),
        ("-- UPDATE resources;\nSELECT 1", False),
    ],
)
def test_statements_that_lock_tables_are_found(statement: str, is_heavy: bool) -> None:
    assert bool(find_heavy_statements(f"SELECT 1;\n{statement};\n")) is is_heavy
