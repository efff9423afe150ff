"""An unsupported server is refused with its unmet requirements and their fixes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.db.database import Database, migrate_schema
from rem.db.embedded.server import EmbeddedServer
from rem.db.preflight import Extension, ServerInfo, check_requirements, find_unmet_requirements, read_server_info
from rem.errors import DatabaseUnavailableError, DatabaseUnsupportedError, RemError, SettingsError
from rem.models import Resource
from tests.conftest import dsn_of, settings_for

SUPPORTED = ServerInfo(
    version_number=150000,
    version="15.0",
    database_name="memory",
    role_name="rem",
    encoding="UTF8",
    lowers_unicode=True,
    is_replica=False,
    may_create=True,
    has_schema=False,
    is_restoring=False,
    may_use_schema=False,
    vector=Extension("0.8.0"),
    pg_trgm=Extension("1.6"),
)
WITH_EXTENSIONS = replace(
    SUPPORTED, vector=Extension("0.8.0", "0.8.0", "public"), pg_trgm=Extension("1.6", "1.6", "public")
)


def test_supported_server_has_no_unmet_requirement() -> None:
    assert find_unmet_requirements(SUPPORTED) == []
    check_requirements(SUPPORTED)
    migrated = replace(WITH_EXTENSIONS, has_schema=True, may_use_schema=True)
    assert find_unmet_requirements(migrated) == []
    assert find_unmet_requirements(replace(migrated, may_create=False, is_replica=True)) == []


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (
            replace(SUPPORTED, version_number=140011, version="14.11"),
            "PostgreSQL is 14.11, REM needs 15 or newer: upgrade",
        ),
        (
            replace(SUPPORTED, vector=Extension()),
            "vector is not installed on the server: install its package (for vector: p",
        ),
        (replace(SUPPORTED, pg_trgm=Extension()), "pg_trgm is not installed on the server: install its package"),
        (replace(SUPPORTED, vector=Extension("0.7.4")), "vector is 0.7.4, REM needs 0.8: update it"),
        (
            replace(SUPPORTED, vector=Extension("0.8.6", "0.5.1", "public")),
            "vector is 0.5.1, REM needs 0.8: update it, then ALTER EXTENSION vector UPDATE",
        ),
        (
            replace(SUPPORTED, encoding="LATIN1"),
            "encoding is LATIN1: create one with ENCODING 'UTF8' TEMPLATE template0",
        ),
        (
            replace(SUPPORTED, lowers_unicode=False),
            "create one with a UTF-8 locale (LOCALE_PROVIDER builtin LOCALE 'C.UTF-8'",
        ),
        (
            replace(WITH_EXTENSIONS, may_create=False),
            'role rem may not create the schema `rem`: as the database\'s owner run GRANT CREATE ON DATABASE "memory"',
        ),
        (
            replace(SUPPORTED, may_create=False, pg_trgm=WITH_EXTENSIONS.pg_trgm, has_schema=True, may_use_schema=True),
            "vector is not in this database: as its owner run CREATE EXTENSION vector",
        ),
        (
            replace(WITH_EXTENSIONS, has_schema=True),
            'role rem may not use the schema `rem`: GRANT ALL ON SCHEMA rem TO "rem"',
        ),
        (
            replace(SUPPORTED, is_replica=True),
            "replica without REM's schema: connect to the primary and run `rem db migrate`",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_unmet_requirement_is_reported_with_its_fix(info: ServerInfo, expected: str) -> None:
    (message,) = find_unmet_requirements(info)
    assert expected in message


@pytest.mark.parametrize("version", ["0.8", "0.8.0", "0.8.6", "0.10.0", "1.0"])
def test_newer_versions_of_an_extension_are_supported(version: str) -> None:
    assert find_unmet_requirements(replace(SUPPORTED, vector=Extension(version))) == []


def test_all_unmet_requirements_are_listed_together() -> None:
    unsupported = replace(SUPPORTED, version_number=130000, vector=Extension(), encoding="SQL_ASCII", may_create=False)
    with pytest.raises(DatabaseUnsupportedError) as error:
        check_requirements(unsupported)
    assert str(error.value).count("\n  - ") == 5


@asynccontextmanager
async def create_database(options: str) -> AsyncIterator[str]:
    name = f"test_{uuid4().hex}"
    admin = await asyncpg.connect(dsn_of("postgres"))
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 {options}")
    try:
        yield dsn_of(name)
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()


@asynccontextmanager
async def create_role(dsn: str, grants: str = "") -> AsyncIterator[str]:
    """Create a role with few rights, and yield its connection string for a database."""
    role = f"role_{uuid4().hex}"
    owner = await asyncpg.connect(dsn)
    await owner.execute(f"CREATE ROLE {role} LOGIN")
    await owner.execute(f"GRANT CONNECT ON DATABASE {urlsplit(dsn).path[1:]} TO {role}; {grants.format(role=role)}")
    try:
        yield dsn.replace(f"{urlsplit(dsn).username}@", f"{role}@")
    finally:
        await owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
        await owner.close()


async def open_refused(dsn: str, **postgres: object) -> RemError:
    """Open REM, which must fail, and return the error."""
    with pytest.raises(RemError) as error:
        await Rem.open(settings_for(dsn, **postgres)).__aenter__()
    return error.value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("ENCODING 'SQL_ASCII' LOCALE 'C' LOCALE_PROVIDER libc", "encoding is SQL_ASCII"),
        ("ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc", "encoding is LATIN1"),
        ("ENCODING 'KOI8R' LOCALE 'C' LOCALE_PROVIDER libc", "encoding is KOI8R"),
        ("ENCODING 'UTF8' LOCALE 'C' LOCALE_PROVIDER libc", "locale cannot lower-case letters beyond ASCII"),
    ],
)
async def test_database_that_cannot_hold_all_text_is_refused(options: str, expected: str) -> None:
    async with create_database(options) as dsn:
        error = await open_refused(dsn)
    assert isinstance(error, DatabaseUnsupportedError)
    assert expected in str(error)
    assert "TEMPLATE template0" in str(error)


async def test_missing_create_right_is_reported_with_the_grant(empty_dsn: str) -> None:
    async with create_role(empty_dsn) as dsn:
        error = await open_refused(dsn)
        assert isinstance(error, DatabaseUnsupportedError)
        assert "may not create the schema `rem`" in str(error)
        assert "CREATE EXTENSION vector" in str(error)
        assert f'GRANT CREATE ON DATABASE "{urlsplit(dsn).path[1:]}" TO "{urlsplit(dsn).username}"' in str(error)


async def test_missing_schema_right_is_reported_with_the_grant(dsn: str) -> None:
    async with create_role(dsn) as restricted:
        assert 'GRANT ALL ON SCHEMA rem TO "role_' in str(await open_refused(restricted))


async def test_role_that_owns_the_database_needs_no_more(empty_dsn: str) -> None:
    extensions = "CREATE EXTENSION vector; CREATE EXTENSION pg_trgm; "
    grants = extensions + f"GRANT CREATE ON DATABASE {urlsplit(empty_dsn).path[1:]} TO {{role}}"
    async with create_role(empty_dsn, grants) as dsn:
        settings = settings_for(dsn)
        async with Database(settings).unpooled_connection() as connection:
            info = await read_server_info(connection)
            check_requirements(info)
            await migrate_schema(connection, settings, info)
        async with Rem.open(settings) as rem:
            assert await rem.for_user().store.upsert(Resource(name="x"))


async def test_extensions_may_have_their_own_schema(empty_dsn: str) -> None:
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute(
        "CREATE SCHEMA elsewhere; CREATE EXTENSION vector SCHEMA elsewhere; CREATE EXTENSION pg_trgm SCHEMA elsewhere"
    )
    await connection.close()
    settings = settings_for(empty_dsn)
    async with Database(settings).unpooled_connection() as other:
        await migrate_schema(other, settings, await read_server_info(other))
    async with Rem.open(settings) as rem:
        assert await rem.for_user().store.upsert(Resource(name="x"))


async def test_missing_database_is_named() -> None:
    error = await open_refused(dsn_of("no_such_database"))
    assert isinstance(error, DatabaseUnavailableError)
    assert '"no_such_database" does not exist. Create it, or fix the connection string' in str(error)


async def test_unknown_user_is_refused(dsn: str) -> None:
    error = await open_refused(dsn.replace(f"{urlsplit(dsn).username}@", "nobody_we_know@"))
    assert isinstance(error, DatabaseUnavailableError)
    assert "refuses the user or password" in str(error)


async def test_wrong_password_is_refused_and_never_shown(home: Path) -> None:
    address = EmbeddedServer(home).ensure_running()
    connection = await asyncpg.connect(
        host=str(address.socket_dir), port=address.port, user=address.user, database="rem"
    )
    await connection.execute("CREATE ROLE guest LOGIN PASSWORD 'right-secret'")
    rules = Path(await connection.fetchval("SHOW hba_file"))
    rules.write_text("local all guest scram-sha-256\n" + rules.read_text())
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    where = f"/rem?host={address.socket_dir}&port={address.port}"
    error = await open_refused(f"postgresql://guest:wrong-secret@{where}", connect_timeout_seconds=5)
    assert isinstance(error, DatabaseUnavailableError)
    assert "refuses the user or password" in str(error)
    assert "secret" not in f"{error} {error.__cause__}"
    assert "wrong-secret" not in repr(settings_for(f"postgresql://guest:wrong-secret@{where}"))
    assert "may not" in str(await open_refused(f"postgresql://guest:right-secret@{where}"))


async def test_unreachable_server_is_named_without_the_password() -> None:
    error = await open_refused("postgresql://me:secret@127.0.0.1:9/memory", connect_timeout_seconds=0.2)
    assert isinstance(error, DatabaseUnavailableError)
    assert "No PostgreSQL server answers at 127.0.0.1:9/memory" in str(error)
    assert "secret" not in f"{error} {error.__cause__}"


async def test_missing_socket_is_named(tmp_path: Path) -> None:
    error = await open_refused(f"postgresql://me:secret@/memory?host={tmp_path}", connect_timeout_seconds=0.2)
    assert isinstance(error, DatabaseUnavailableError)
    assert f"No PostgreSQL server answers at {tmp_path}/memory" in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        "mysql://me:secret@localhost/memory",
        "me:secret@localhost/memory",
        "secret",
        "postgresql://me:secret@localhost:port/memory",
        "postgresql://me:sec/ret@localhost:5432/memory",
        "postgresql://me:secret@[::1/memory",
        "postgresql://me:secret@localhost/memory?sslmode=sometimes",
        "postgresql://me:1#secret@localhost/memory",
        "postgresql://me:1?secret@localhost/memory",
    ],
)
async def test_malformed_connection_string_is_explained_without_the_password(text: str) -> None:
    error = await open_refused(text, connect_timeout_seconds=0.2)
    assert isinstance(error, SettingsError)
    assert "POSTGRES__CONNECTION_STRING must look like postgresql://user:password@host:5432/database" in str(error)
    assert "sec" not in f"{error} {error.__cause__}"


async def test_sqlalchemy_connection_string_is_accepted(dsn: str) -> None:
    async with Rem.open(settings_for(dsn.replace("postgresql://", "postgresql+asyncpg://"))) as rem:
        assert await rem.for_user().store.upsert(Resource(name="x"))
