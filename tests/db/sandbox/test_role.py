"""The login role of the sandbox: REM creates it, or uses a given one, and refuses an unsafe one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import asyncpg
import pytest
from pydantic import SecretStr

from rem.app import Rem
from rem.db.database import Database, migrate_schema
from rem.db.migrator import Migrator
from rem.db.preflight import read_server_info
from rem.db.sandbox import SqlSandbox
from rem.db.sql import query
from rem.errors import DatabaseUnsupportedError, MigrationError
from rem.models import Resource
from rem.settings import Settings
from tests.conftest import dsn_of, settings_for
from tests.db.sandbox.conftest import ALICE, Client, Connection, sandbox_on

if TYPE_CHECKING:
    from rem.db.database import Connection as DatabaseConnection


async def _names(rem: Rem, settings: Settings, statement: str = "SELECT name FROM resources") -> list[str]:
    sandbox = SqlSandbox(rem.database, settings)
    try:
        return [row["name"] for row in (await sandbox.select(ALICE, statement)).rows]
    finally:
        await sandbox.close()


async def _gaps(rem: Rem, settings: Settings) -> list[str]:
    sandbox = SqlSandbox(rem.database, settings)
    try:
        return await sandbox.find_security_gaps()
    finally:
        await sandbox.close()


async def _role_exists(sql: DatabaseConnection, name: str) -> bool:
    return bool(await sql.fetchval("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", name))


class _ExternalServer:
    """A server on which the role of REM owns its database and is not a superuser."""

    def __init__(self) -> None:
        self.owner = f"owner_{uuid4().hex[:12]}"
        self.given = f"given_{uuid4().hex[:12]}"
        self.dsn = dsn_of(f"managed_{self.owner}").replace("postgresql://rem@", f"postgresql://{self.owner}@")
        self.given_dsn = self.dsn.replace(self.owner + "@", f"{self.given}@", 1)
        self.admin_dsn = dsn_of(f"managed_{self.owner}")

    def settings(self, **postgres: object) -> Settings:
        return settings_for(self.dsn, **postgres)


async def _migrate(settings: Settings) -> None:
    async with Database(settings).unpooled_connection() as connection:
        await migrate_schema(connection, settings, await read_server_info(connection))


@asynccontextmanager
async def _create_external_server(attributes: str) -> AsyncIterator[_ExternalServer]:
    managed = _ExternalServer()
    server = await asyncpg.connect(dsn_of("postgres"))
    await server.execute(f"CREATE ROLE {managed.owner} LOGIN {attributes}")
    await server.execute(f"CREATE ROLE {managed.given} LOGIN")
    await server.execute(f"CREATE DATABASE managed_{managed.owner} OWNER {managed.owner} TEMPLATE template1")
    admin = await asyncpg.connect(managed.admin_dsn)
    await admin.execute("CREATE EXTENSION vector; CREATE EXTENSION pg_trgm")
    role_name = await admin.fetchval("SELECT 'rem_sql_' || oid FROM pg_database WHERE datname = current_database()")
    await admin.close()
    settings = managed.settings()
    await _migrate(settings)
    try:
        async with Rem.open(settings) as rem:
            await rem.for_user("alice").store.upsert(Resource(name="mine"))
            await rem.for_user("bob").store.upsert(Resource(name="not mine"))
        yield managed
    finally:
        await server.execute(f"DROP DATABASE managed_{managed.owner} WITH (FORCE)")
        for role in (role_name, managed.given, managed.owner):
            await server.execute(f"DROP ROLE IF EXISTS {role}")
        await server.close()


async def test_owner_with_createrole_needs_no_setup(subtests: pytest.Subtests) -> None:
    async with _create_external_server("CREATEROLE") as managed, Rem.open(managed.settings()) as rem:
        assert await _names(rem, managed.settings()) == ["mine"]
        gaps = await _gaps(rem, managed.settings())
        assert len(gaps) == 2
        assert "SELECT rem.rem_sql_close_catalog()" in gaps[0]
        assert "temp_file_limit" in gaps[1]

        with subtests.test("a superuser closes the rest, and REM still works"):
            admin = await asyncpg.connect(managed.admin_dsn)
            await admin.execute("SELECT rem.rem_sql_close_catalog()")
            role_name = await admin.fetchval("SELECT rem.rem_sql_role_name()")
            await admin.execute(f"ALTER ROLE {role_name} SET temp_file_limit = '256MB'")
            sandbox = SqlSandbox(rem.database, managed.settings())
            assert await sandbox.find_security_gaps() == []
            assert (await Client(sandbox, ALICE).answer("SELECT pg_sleep(1)"))[0] is False
            assert (await Client(sandbox, ALICE).answer("SELECT * FROM pg_stat_activity"))[0] is False
            await sandbox.close()
            async with Rem.open(managed.settings()) as again:
                assert await again.for_user("alice").store.lookup("mine")
                assert (await again.check_cache()).is_exact
                assert await _names(again, managed.settings()) == ["mine"]

        with subtests.test("and opens it again"):
            await admin.execute("SELECT rem.rem_sql_reopen_catalog()")
            assert len(await _gaps(rem, managed.settings())) == 1
            await admin.close()

        with subtests.test("the migration goes back and up again"):
            async with Database(managed.settings()).unpooled_connection() as connection:
                await Migrator(connection).rollback(100)
                assert not await _role_exists(connection, role_name)
            await _migrate(managed.settings())
            await rem.for_user("alice").store.upsert(Resource(name="new row"))
            assert await _names(rem, managed.settings()) == ["new row"]


async def test_owner_without_createrole_gets_instructions(subtests: pytest.Subtests) -> None:
    async with _create_external_server("") as managed, Rem.open(managed.settings()) as rem:
        with pytest.raises(
            DatabaseUnsupportedError, match=r"CREATEROLE; or create it yourself .*POSTGRES__SQL_CONNECTION_STRING"
        ):
            await _names(rem, managed.settings())
        given = managed.settings(sql_connection_string=SecretStr(managed.given_dsn))
        assert await _names(rem, given) == ["mine"]
        assert await _names(rem, given) == ["mine"]

        admin = await asyncpg.connect(managed.admin_dsn)
        for unsafe, safe, reason in (
            ("ALTER ROLE {} SUPERUSER", "ALTER ROLE {} NOSUPERUSER", "a superuser"),
            ("ALTER ROLE {} BYPASSRLS", "ALTER ROLE {} NOBYPASSRLS", "BYPASSRLS"),
            ("ALTER ROLE {} CREATEROLE", "ALTER ROLE {} NOCREATEROLE", "create roles"),
            (
                "GRANT pg_read_all_data TO {}",
                "REVOKE pg_read_all_data FROM {}",
                "a member of the role pg_read_all_data",
            ),
            (
                f"GRANT {managed.owner} TO {{}}",
                f"REVOKE {managed.owner} FROM {{}}",
                f"a member of the role {managed.owner}",
            ),
            (
                "GRANT SELECT ON rem.sql_access TO {}",
                "REVOKE ALL ON rem.sql_access FROM {}",
                "read rem.sql_access, which no policy",
            ),
            (
                "GRANT DELETE ON rem.resources TO {}",
                "REVOKE DELETE ON rem.resources FROM {}",
                "may write rem.resources",
            ),
            (
                "ALTER TABLE rem.users DISABLE ROW LEVEL SECURITY",
                "ALTER TABLE rem.users ENABLE ROW LEVEL SECURITY",
                "read rem.users",
            ),
            ("CREATE SCHEMA s AUTHORIZATION {}", "DROP SCHEMA s", "it owns something"),
        ):
            with subtests.test(reason):
                await admin.execute(unsafe.format(managed.given))
                with pytest.raises(
                    DatabaseUnsupportedError, match=f"must not run SELECT statements of users: .*{reason}"
                ):
                    await _names(rem, given)
                await admin.execute(safe.format(managed.given))
                assert await _names(rem, given) == ["mine"]
        await admin.close()

        with subtests.test("the role that owns the tables"):
            owner = managed.settings(sql_connection_string=SecretStr(managed.dsn))
            with pytest.raises(DatabaseUnsupportedError, match="the role that owns REM's tables"):
                await _names(rem, owner)

        with subtests.test("the migration goes back, and the role stays with its administrator"):
            async with Database(managed.settings()).unpooled_connection() as connection:
                await Migrator(connection).rollback(100)
                assert await _role_exists(connection, managed.given)


async def test_embedded_server_closes_the_catalogue(home: Path) -> None:
    settings = Settings(rem_home=home)
    async with Rem.open(settings) as rem:
        await rem.for_user("alice").store.upsert(Resource(name="mine"))
        sandbox = SqlSandbox(rem.database, settings)
        alice = Client(sandbox, ALICE)
        assert await alice.select("SELECT name FROM resources") == [{"name": "mine"}]
        assert (await alice.answer("SELECT pg_sleep(0)"))[0] is False
        assert await sandbox.find_security_gaps() == []
        await sandbox.close()
        assert (await rem.check_cache()).is_exact


async def test_six_sandboxes_may_open_at_once(rem: Rem, settings: Settings, memories: None) -> None:
    sandboxes = [sandbox_on(rem, settings) for _ in range(6)]
    answers = await asyncio.gather(
        *(Client(sandbox, ALICE).select("SELECT count(*) AS n FROM resources") for sandbox in sandboxes)
    )
    assert answers == [[{"n": 2}]] * 6
    await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))


async def test_catalogue_that_was_opened_in_part_is_closed_again(
    sandbox: SqlSandbox, sql: Connection, memories: None
) -> None:
    assert await sql.fetchval("SELECT rem.rem_sql_close_catalog()")
    assert await sql.fetchval("SELECT rem.rem_sql_close_catalog()") == 0
    await sql.execute("GRANT EXECUTE ON FUNCTION pg_catalog.translate(text, text, text) TO PUBLIC")
    assert not await sql.fetchval(query("db/sandbox", "is_catalog_closed"))
    assert await sql.fetchval("SELECT rem.rem_sql_close_catalog()")
    assert await sql.fetchval(query("db/sandbox", "is_catalog_closed"))
    assert (await sandbox.select(ALICE, "SELECT rem_key('Sarah Chen') AS key")).rows == [{"key": "sarah-chen"}]
    role_name = await sql.fetchval("SELECT role_name FROM sql_access")
    can_call = "SELECT has_function_privilege($1, $2, 'EXECUTE')"
    assert not await sql.fetchval(can_call, role_name, "translate(text, text, text)")
    await sql.execute("SELECT rem.rem_sql_reopen_catalog()")
    for name in ("translate(text, text, text)", "pg_sleep(double precision)"):
        assert await sql.fetchval(can_call, role_name, name)


async def test_rollback_removes_the_role_and_the_policies(
    rem: Rem, settings: Settings, sandbox: SqlSandbox, sql: Connection, memories: None
) -> None:
    assert (await sandbox.select(ALICE, "SELECT count(*) AS n FROM resources")).rows == [{"n": 2}]
    await sql.execute("SELECT rem.rem_sql_close_catalog()")
    role_name = await sql.fetchval("SELECT role_name FROM sql_access")
    async with Database(settings).unpooled_connection() as connection:
        await Migrator(connection).rollback(len(await Migrator(connection).status()))
        assert not await _role_exists(connection, role_name)
        assert await sql.fetchval("SELECT count(*) FROM pg_class WHERE relrowsecurity") == 0
        assert await sql.fetchval("SELECT has_function_privilege('pg_monitor', 'pg_sleep(float8)', 'EXECUTE')")
        with pytest.raises((MigrationError, DatabaseUnsupportedError)):
            await sandbox_on(rem, settings).select(ALICE, "SELECT 1")
        await migrate_schema(connection, settings, await read_server_info(connection))
    # The sandbox that was open meanwhile finds its new login and keys. The rows went with their tables.
    assert (await sandbox.select(ALICE, "SELECT count(*) AS n FROM resources")).rows == [{"n": 0}]


async def test_clone_of_the_database_gets_its_own_role(
    rem: Rem, settings: Settings, sandbox: SqlSandbox, memories: None, dsn: str, sql: Connection
) -> None:
    await sandbox.select(ALICE, "SELECT 1")
    role_name = await sql.fetchval("SELECT role_name FROM sql_access")
    name = dsn.split("/")[3].split("?")[0]
    await sandbox.close()
    await rem.database.close()
    await sql.close()
    server = await asyncpg.connect(dsn_of("postgres"))
    await server.execute(f"CREATE DATABASE {name}_clone TEMPLATE {name}")
    clone = settings_for(dsn_of(f"{name}_clone"))
    async with Rem.open(clone) as cloned:
        assert await _names(cloned, clone) == ["alice apple", "shared apple"]
        async with cloned.database.connection() as connection:
            assert await connection.fetchval("SELECT role_name FROM rem.sql_access") != role_name
    await server.execute(f"DROP DATABASE {name}_clone WITH (FORCE)")
    await server.close()


async def test_lost_login_is_created_again(rem: Rem, settings: Settings, memories: None, sql: Connection) -> None:
    sandbox = sandbox_on(rem, settings)
    await sandbox.select(ALICE, "SELECT 1")
    role_name = await sql.fetchval("SELECT role_name FROM sql_access")
    await sql.execute(f"ALTER ROLE {role_name} NOLOGIN")
    await sql.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = $1", role_name)
    assert (await sandbox.select(ALICE, "SELECT count(*) AS n FROM resources")).rows == [{"n": 2}]
    await sandbox.close()
