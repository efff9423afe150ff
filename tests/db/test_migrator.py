"""Migrations go up and down, also concurrently, and a failure changes nothing."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.db import migrator
from rem.db.database import Database, migrate_schema
from rem.db.maintenance import check_mirrors
from rem.db.migrator import Migration, MigrationStatus, Migrator, builtin_migrations
from rem.db.preflight import read_server_info
from rem.errors import MigrationError
from rem.models import BUILTIN_ENTITIES, Document, Edge, Entity, Message, Resource, Role, Session, User
from rem.settings import Settings
from tests.conftest import filled_template, settings_for

BUILTIN = [migration.name for migration in builtin_migrations()]
ALL = [*BUILTIN, "custom:projects:1", "custom:projects:2", "custom:notes:1"]
MEMORIES = ("report", "atlas", "shopping")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Project(Entity, table="projects", summary="goal"):
    name: str
    goal: str = ""


class ProjectWithBudget(Entity, table="projects", summary="budget"):
    name: str
    goal: str = ""
    budget: int = 0


class Note(Entity, table="notes"):
    name: str


async def migrate_database(dsn: str, **postgres: object) -> list[str]:
    settings = settings_for(dsn, **postgres)
    async with Database(settings).unpooled_connection() as connection:
        return await migrate_schema(connection, settings, await read_server_info(connection))


async def roll_back(dsn: str, steps: int = 1) -> list[str]:
    async with Database(settings_for(dsn)).unpooled_connection() as connection:
        return await Migrator(connection).rollback(steps)


async def states(dsn: str) -> list[MigrationStatus]:
    async with Database(settings_for(dsn)).unpooled_connection() as connection:
        return await Migrator(connection).status()


async def store_rows(rem: Rem) -> None:
    """Store rows in built-in and custom tables that migrations must keep."""
    shared, alice = rem.for_user().store, rem.for_user("alice@example.com").store
    await shared.upsert(User(name="Sarah Chen", email="sarah@example.com"))
    session = await alice.upsert(Session(name="Standup"))
    await alice.upsert(
        Message(session_id=session.id, message_index=0, role=Role.USER, content="hello", kind="statement")
    )
    await alice.upsert(Document(content="a text", embedding=[0.5] * 384))
    edges = [Edge(dst="sarah-chen", rel_type="written_by"), Edge(dst="nowhere")]
    await alice.upsert(Resource(name="Report", content="fine", graph_edges=edges))
    await alice.delete(await alice.upsert(Resource(id=uuid4(), name=f"Old Report {uuid4()}")))
    for model in (Project, ProjectWithBudget, Note):
        await rem.register(model)
    await alice.upsert(ProjectWithBudget(name="Atlas", goal="the moon", budget=3, graph_edges=edges))
    await alice.upsert(Note(name="Shopping"))


@pytest.fixture(scope="module")
def template_with_rows() -> Iterator[str]:
    with filled_template(store_rows) as name:
        yield name


@pytest.fixture
def template(request: pytest.FixtureRequest, template: str) -> str:
    return str(request.getfixturevalue("template_with_rows")) if "filled" in request.fixturenames else template


@pytest.fixture
def filled(dsn: str) -> str:
    """Return a database with rows in built-in and custom tables."""
    return dsn


async def contents(sql: Connection) -> dict[str, list[Any]]:
    """Return every row of every entity table."""
    tables = [
        name
        for (name,) in await sql.fetch(
            """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'deleted_at'
               WHERE c.relnamespace = 'rem'::regnamespace AND c.relkind IN ('r', 'p')"""
        )
    ]
    return {name: await sql.fetch(f"SELECT to_jsonb(r) FROM {name} r ORDER BY id") for name in tables}


async def leftovers(sql: Connection) -> set[str]:
    """Return the objects in the schema, without those of the extensions."""
    rows = await sql.fetch(
        """WITH things AS (
             SELECT 'pg_class'::regclass AS catalog, oid, relname::text AS name FROM pg_class
               WHERE relnamespace = 'rem'::regnamespace AND relkind NOT IN ('i', 'I')
             UNION ALL SELECT 'pg_proc'::regclass, oid, proname FROM pg_proc WHERE pronamespace = 'rem'::regnamespace
             UNION ALL SELECT 'pg_type'::regclass, oid, typname FROM pg_type
               WHERE typnamespace = 'rem'::regnamespace AND typrelid = 0 AND typelem = 0)
           SELECT name FROM things t WHERE NOT EXISTS (
             SELECT FROM pg_depend d WHERE d.classid = t.catalog AND d.objid = t.oid AND d.deptype = 'e')"""
    )
    return {name for (name,) in rows}


async def persistence(sql: Connection) -> Any:
    return await sql.fetchval(
        "SELECT string_agg(DISTINCT c.relpersistence, '') FROM pg_class c "
        "WHERE c.oid IN (SELECT rem.rem_leaves('rem.kv_store'))"
    )


async def test_empty_database_becomes_current(empty_dsn: str) -> None:
    assert await migrate_database(empty_dsn) == BUILTIN
    assert {status.state for status in await states(empty_dsn)} == {"applied"}
    async with Rem.open(settings_for(empty_dsn)) as rem:
        await store_rows(rem)
        assert (await check_mirrors(rem.database)).is_exact


async def test_migrating_a_current_database_does_nothing(dsn: str, sql: Connection) -> None:
    before = await sql.fetch("SELECT oid, xmin FROM pg_class WHERE relnamespace = 'rem'::regnamespace")
    assert await migrate_database(dsn) == []
    assert await sql.fetch("SELECT oid, xmin FROM pg_class WHERE relnamespace = 'rem'::regnamespace") == before


async def test_eight_tasks_may_migrate_at_once(empty_dsn: str) -> None:
    applied = await asyncio.gather(*(migrate_database(empty_dsn) for _ in range(8)))
    assert sorted(applied) == [[]] * 7 + [BUILTIN]
    async with Rem.open(settings_for(empty_dsn)) as rem:
        assert await rem.for_user().store.upsert(Resource(name="x"))


async def test_two_processes_may_migrate_at_once(empty_dsn: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rem", "db", "migrate"]
    environment = {"POSTGRES__CONNECTION_STRING": empty_dsn, "HOME": str(tmp_path)}
    processes = [
        await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=STDOUT) for _ in range(2)
    ]
    outputs = sorted([(await process.communicate())[0].decode().strip() for process in processes])
    assert outputs == [f"Applied {', '.join(BUILTIN)}.", "The schema is up to date."]
    assert [process.returncode for process in processes] == [0, 0]


@pytest.mark.parametrize("steps", range(1, len(ALL) + 1))
async def test_migrations_can_be_undone_and_applied_again(filled: str, sql: Connection, steps: int) -> None:
    before = await contents(sql)
    assert await roll_back(filled, steps) == ALL[::-1][:steps]
    surviving = await contents(sql)
    assert before.keys() - surviving.keys() == tables_of(ALL[::-1][:steps], before)

    assert await migrate_database(filled) == [name for name in ALL[-steps:] if name in BUILTIN]
    async with Rem.open(settings_for(filled)) as rem:
        for model in (Project, ProjectWithBudget, Note):
            await rem.register(model)
        after = await contents(sql)
        for table in surviving.keys() - {"projects"}:
            assert after[table] == before[table]
        assert (await check_mirrors(rem.database)).is_exact
        tables = {
            entity.entity_type.table for entity in await rem.for_user("alice@example.com").store.lookup(*MEMORIES)
        }
        assert tables == {"resources", "projects", "notes"} & surviving.keys()

        await store_rows(rem)
        assert (await check_mirrors(rem.database)).is_exact


def tables_of(rolled_back: list[str], tables: dict[str, Any]) -> set[str]:
    """Return the tables that some migrations created."""
    custom = {"custom:notes:1": {"notes"}, "custom:projects:1": {"projects"}, "custom:projects:2": set()}
    builtin = tables.keys() - {"notes", "projects"}
    return {table for name in rolled_back for table in custom.get(name, builtin if name == BUILTIN[0] else set())}


async def test_rollback_of_a_column_keeps_the_other_data(filled: str, sql: Connection) -> None:
    await roll_back(filled, 2)
    (project,) = await sql.fetch("SELECT * FROM projects")
    assert (project["name"], project["goal"]) == ("Atlas", "the moon")
    assert "budget" not in project
    assert await sql.fetchval("SELECT content_summary FROM kv_store WHERE entity_key = 'atlas'") == "the moon"


async def test_all_migrations_can_be_undone_one_by_one(filled: str, sql: Connection) -> None:
    for name in ALL[::-1]:
        assert await roll_back(filled) == [name]
    assert await roll_back(filled) == []
    assert await leftovers(sql) == {"migrations", "migrations_position_seq", "installed_functions"}
    assert {status.state for status in await states(filled)} == {"pending"}
    assert await migrate_database(filled) == BUILTIN
    async with Rem.open(settings_for(filled)) as rem:
        await store_rows(rem)
        assert (await check_mirrors(rem.database)).is_exact


async def test_all_migrations_can_be_undone_at_once(filled: str, sql: Connection) -> None:
    assert await roll_back(filled, 100) == ALL[::-1]
    assert await leftovers(sql) == {"migrations", "migrations_position_seq", "installed_functions"}


async def test_edited_migration_is_refused(dsn: str, sql: Connection) -> None:
    await sql.execute("UPDATE migrations SET checksum = 'other' WHERE name = $1", BUILTIN[0])
    assert (await states(dsn))[0].state == "changed"
    for opening in (Rem.open(settings_for(dsn)).__aenter__, lambda: migrate_database(dsn)):
        with pytest.raises(MigrationError, match=f"{BUILTIN[0]} changed after they were applied"):
            await opening()


async def test_database_of_a_newer_rem_is_refused(dsn: str, sql: Connection) -> None:
    await sql.execute("INSERT INTO migrations (name, checksum, down_script) VALUES ('9999_future', '', '')")
    assert (await states(dsn))[-1].state == "unknown"
    for opening in (Rem.open(settings_for(dsn)).__aenter__, lambda: migrate_database(dsn)):
        with pytest.raises(MigrationError, match=r"9999_future.*newer version wrote it, so upgrade REM"):
            await opening()


async def test_database_of_an_earlier_schema_is_refused_and_not_changed(filled: str, sql: Connection) -> None:
    await sql.execute("DELETE FROM migrations WHERE name = $1", BUILTIN[0])
    await sql.execute("INSERT INTO migrations (name, checksum, down_script) VALUES ('0001_foundation', '', '')")
    await sql.execute("DROP FUNCTION rem_lookup; DELETE FROM installed_functions")
    before = await contents(sql), await leftovers(sql)
    for change in (
        Rem.open(settings_for(filled)).__aenter__,
        lambda: migrate_database(filled),
        lambda: roll_back(filled),
    ):
        with pytest.raises(MigrationError, match=r"REM_HOME.*`rem db dump`"):
            await change()
    assert (await contents(sql), await leftovers(sql)) == before


@pytest.mark.parametrize("start", ["empty", "current"])
async def test_failing_migration_changes_nothing(start: str, empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if start == "current":
        await migrate_database(empty_dsn)
    bad = Migration("9000_bad", "CREATE TABLE half_done (); SELECT 1 / 0;", "")
    with monkeypatch.context() as patched:
        patched.setattr(migrator, "builtin_migrations", lambda: (*builtin_migrations(), bad))
        with pytest.raises(
            MigrationError, match="migration 9000_bad failed, and nothing was changed: division by zero"
        ):
            await migrate_database(empty_dsn)
    connection = await asyncpg.connect(empty_dsn)
    assert await connection.fetchval("SELECT to_regclass('rem.half_done')") is None
    assert await connection.fetchval("SELECT to_regnamespace('rem') IS NOT NULL") == (start == "current")
    await connection.close()
    assert {status.state for status in await states(empty_dsn)} == {"pending" if start == "empty" else "applied"}


async def test_failing_rollback_changes_nothing(filled: str, sql: Connection) -> None:
    before = await contents(sql)
    await sql.execute("UPDATE migrations SET down_script = 'SELECT 1 / 0' WHERE name = $1", BUILTIN[-1])
    with pytest.raises(MigrationError, match=f"migration {BUILTIN[-1]} failed, and nothing was changed"):
        await roll_back(filled, 100)
    assert await contents(sql) == before
    async with Rem.open(settings_for(filled)) as rem:
        assert (await check_mirrors(rem.database)).is_exact
        assert await rem.for_user("alice@example.com").store.lookup("atlas")


async def test_external_database_is_not_migrated_on_open(empty_dsn: str) -> None:
    with pytest.raises(MigrationError, match="run `rem db migrate`"):
        await Rem.open(settings_for(empty_dsn)).__aenter__()
    connection = await asyncpg.connect(empty_dsn)
    assert await connection.fetchval("SELECT to_regnamespace('rem')") is None
    await connection.close()


async def test_embedded_database_migrates_itself(home: Path) -> None:
    settings = Settings(rem_home=home)
    async with Rem.open(settings) as rem:
        await rem.for_user().store.upsert(Resource(name="Report"))
    async with Database(settings).unpooled_connection() as connection:
        assert await Migrator(connection).rollback() == [BUILTIN[-1]]
    messages: list[str] = []
    async with Rem.open(settings, on_progress=messages.append) as rem:
        assert await rem.for_user().store.lookup("report") == []
        assert await rem.for_user().store.upsert(Resource(name="Report"))
    assert messages == ["Preparing the schema ..."]


async def test_changed_functions_are_replaced_and_the_mirrors_stay_exact(filled: str, sql: Connection) -> None:
    kept = await sql.fetch("SELECT * FROM kv_store ORDER BY entity_type, entity_id, entity_key")
    await sql.execute("UPDATE installed_functions SET checksum = 'of an older REM'")
    await sql.execute("DROP FUNCTION rem_lookup; CREATE FUNCTION rem_lookup(int) RETURNS int LANGUAGE sql RETURN 1")
    with pytest.raises(MigrationError, match="run `rem db migrate`"):
        await Rem.open(settings_for(filled)).__aenter__()
    assert await migrate_database(filled) == []
    assert await sql.fetch("SELECT * FROM kv_store ORDER BY entity_type, entity_id, entity_key") == kept
    assert await sql.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'rem_lookup'") == 1
    async with Rem.open(settings_for(filled)) as rem:
        alice = rem.for_user("alice@example.com").store
        assert [entity.key for entity in await alice.lookup("atlas", "report")] == ["atlas", "report"]
        await alice.upsert(Resource(name="Report", graph_edges=[Edge(dst="atlas")]))
        assert (await check_mirrors(rem.database)).is_exact


async def test_migration_that_changes_keys_rebuilds_them(filled: str, sql: Connection) -> None:
    kept = await sql.fetch("SELECT * FROM kv_store ORDER BY entity_type, entity_id, entity_key")
    await sql.execute("UPDATE installed_functions SET checksum = 'of an older REM'")
    # Such a migration removes the marker row. These are the keys of an older REM.
    await sql.execute("DELETE FROM kv_store WHERE tenant_id = '' OR key_rank > 1")
    assert await migrate_database(filled) == []
    assert await sql.fetch("SELECT * FROM kv_store ORDER BY entity_type, entity_id, entity_key") == kept


async def test_kv_store_is_logged_as_configured(filled: str, sql: Connection) -> None:
    kept = await sql.fetchval("SELECT count(*) FROM kv_store")
    assert await persistence(sql) == "u"
    for logged, expected in ((True, "p"), (True, "p"), (False, "u")):
        await migrate_database(filled, kv_logged=logged)
        assert await persistence(sql) == expected
        assert await sql.fetchval("SELECT count(*) FROM kv_store") == kept


async def test_unknown_message_role_is_refused(filled: str, sql: Connection) -> None:
    insert = """INSERT INTO messages (user_id, session_id, message_index, content, role)
                SELECT user_id, session_id, $2, 'x', $1 FROM messages WHERE message_index = 0"""
    for index, role in enumerate(["user", "assistant", "system", "tool"], start=1):
        await sql.execute(insert, role, index)
    with pytest.raises(asyncpg.CheckViolationError, match="role_is_known"):
        await sql.execute(insert, "moderator", 5)


async def test_erasing_a_session_erases_its_messages(filled: str, sql: Connection) -> None:
    assert await sql.fetchval("SELECT count(*) FROM messages") == 1
    await sql.execute("DELETE FROM sessions")
    assert await sql.fetchval("SELECT count(*) FROM messages") == 0


async def test_every_entity_has_its_indexes(filled: str, sql: Connection) -> None:
    for table in [*(model.entity_type.table for model in BUILTIN_ENTITIES), "projects"]:
        indexes = await sql.fetch("SELECT indexdef FROM pg_indexes WHERE schemaname = 'rem' AND tablename = $1", table)
        definitions = {definition.partition(" USING ")[2] for (definition,) in indexes}
        missing = {
            "gin (metadata jsonb_path_ops)",
            "gin (tags)",
            "btree (tenant_id, user_id, created_at)",
            "btree (tenant_id, user_id, key) NULLS NOT DISTINCT WHERE (deleted_at IS NULL)",
        } - definitions
        assert not missing, table


async def test_metadata_filter_uses_its_index(sql: Connection) -> None:
    await sql.execute("SET enable_seqscan = off")
    plan = await sql.fetch("""EXPLAIN SELECT FROM resources WHERE metadata @> '{"team": "x"}'""")
    assert "resources_metadata" in str(plan)


async def test_nearest_neighbour_query_uses_the_hnsw_index(sql: Connection) -> None:
    definition = await sql.fetchval("SELECT indexdef FROM pg_indexes WHERE indexname = 'documents_embedding_384'")
    assert "USING hnsw (((embedding)::" in definition
    assert "vector(384)) vector_cosine_ops) WITH (m='16', ef_construction='64')" in definition.replace("public.", "")
    await sql.execute("SET enable_seqscan = off")
    plan = await sql.fetch(
        """EXPLAIN SELECT id FROM documents WHERE vector_dims(embedding) = 384
           ORDER BY (embedding::vector(384)) <=> array_fill(0.5, ARRAY[384])::vector LIMIT 5"""
    )
    assert "Index Scan using documents_embedding_384" in str(plan)


async def test_another_dimension_gets_its_own_index(dsn: str, sql: Connection) -> None:
    settings = settings_for(dsn).model_copy(update={"embedding": settings_for(dsn).embedding.model_copy()})
    settings.embedding.dimension = 3072
    async with Database(settings).unpooled_connection() as connection:
        await migrate_schema(connection, settings, await read_server_info(connection))
    indexes = await sql.fetch(
        "SELECT indexname FROM pg_indexes WHERE schemaname = 'rem' AND indexname LIKE 'documents_embedding%'"
    )
    assert {name for (name,) in indexes} == {"documents_embedding_384", "documents_embedding_3072"}
    async with Rem.open(settings) as rem:
        await rem.for_user().store.upsert(Document(content="x", embedding=[0.25] * 3072))


async def test_tenant_is_the_first_column_of_every_key(filled: str, sql: Connection) -> None:
    keys = await sql.fetch(
        """SELECT c.relname || '.' || i.relname AS name, a.attname AS leading
           FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
           LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]
           WHERE c.relnamespace = 'rem'::regnamespace AND x.indisunique
             AND c.relname NOT IN ('migrations', 'installed_functions', 'entity_types', 'embedding_models')
           UNION ALL
           SELECT c.relname || '.' || k.conname || '.' || side.name, a.attname
           FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid,
           LATERAL (VALUES ('from', k.conrelid, k.conkey[1]), ('to', k.confrelid, k.confkey[1]))
             AS side (name, relation, attribute)
           JOIN pg_attribute a ON a.attrelid = side.relation AND a.attnum = side.attribute
           WHERE k.connamespace = 'rem'::regnamespace AND k.contype = 'f'"""
    )
    assert {key["leading"] for key in keys} == {"tenant_id"}, keys
    names = {key["name"] for key in keys}
    assert {"resources.resources_pkey", "projects.projects_live_key", "messages.messages_session.from"} <= names
    assert {"kv_store.kv_store_key", "edges.edges_pkey", "users.users_live_email"} <= names


async def test_functions_that_call_each_other_are_dropped(dsn: str, sql: Connection) -> None:
    """A function depends on those that it calls: their drop drops it, too, whichever of them comes first."""
    called = "1"
    for count in range(1, 12):
        types = ", ".join(["integer"] * count)
        await sql.execute(f"CREATE FUNCTION rem.rem_lookup({types}) RETURNS integer LANGUAGE sql RETURN {called}")
        called = f"rem.rem_lookup({', '.join('1' * count)})"
    await roll_back(dsn)
    assert await migrate_database(dsn) == BUILTIN[-1:]
    assert await sql.fetchval("SELECT count(*) FROM pg_proc WHERE proname = 'rem_lookup'") == 1
