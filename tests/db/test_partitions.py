"""Partitions: the large tables are divided by tenant, and everything works as without them.

`make test-partitioned` runs many other tests on a database with partitions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.backup import back_up, restore
from rem.db.database import Database, migrate_schema
from rem.db.maintenance import check_mirrors
from rem.db.partitions import LARGE_TABLES, count_partitions
from rem.db.preflight import read_server_info
from rem.db.store import Store
from rem.errors import ConflictError, InvalidInputError, RemError
from rem.models import Edge, Entity, Moment, Resource, Role
from rem.sessions.message import NewMessage
from tests.conftest import fresh_database, settings_for
from tests.db.test_backup import fill, read_all_rows
from tests.rem_command import rem

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PARTITIONS = 4
TENANTS = ("acme", "globex", "initech", "umbrella", "hooli", "stark")
USER = "alice@example.com"


class Recipe(Entity, table="recipes", summary_field="steps"):
    """A custom type."""

    name: str
    steps: str = ""


async def migrate(dsn: str, partitions: int | None = None) -> list[str]:
    settings = settings_for(dsn)
    async with Database(settings).unpooled_connection() as connection:
        return await migrate_schema(connection, settings, await read_server_info(connection), partitions)


@pytest.fixture
async def divided_dsn(empty_dsn: str) -> str:
    """Return a database whose large tables have partitions."""
    await migrate(empty_dsn, PARTITIONS)
    return empty_dsn


@pytest.fixture
async def divided(divided_dsn: str) -> AsyncIterator[Rem]:
    async with Rem.open(settings_for(divided_dsn)) as rem:
        yield rem


@pytest.fixture
async def divided_sql(divided_dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(divided_dsn, server_settings={"search_path": "rem, public"})
    yield connection
    await connection.close()


async def describe_tables(sql: Connection) -> dict[str, set[str]]:
    """Return what belongs to each large table: columns, constraints, indexes, triggers, policies and rights."""
    rows = await sql.fetch(
        """WITH tables AS (
             SELECT c.* FROM pg_class c WHERE c.relnamespace = 'rem'::regnamespace AND c.relname = ANY ($1))
           SELECT c.relname, d.text FROM tables c CROSS JOIN LATERAL (
             SELECT concat_ws(' ', 'column', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                              a.attidentity, a.attgenerated, a.attstorage, pg_get_expr(f.adbin, f.adrelid)) AS text
             FROM pg_attribute a LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             UNION ALL SELECT concat_ws(' ', 'constraint', k.conname, pg_get_constraintdef(k.oid))
               FROM pg_constraint k WHERE k.conrelid = c.oid AND k.conparentid = 0
             UNION ALL SELECT replace(pg_get_indexdef(x.indexrelid), ' ON ONLY ', ' ON ') FROM pg_index x
               WHERE x.indrelid = c.oid
             UNION ALL SELECT translate(pg_get_triggerdef(t.oid), '()', '') FROM pg_trigger t
               WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
             UNION ALL SELECT concat_ws(' ', 'policy', p.polname, pg_get_expr(p.polqual, p.polrelid)) FROM pg_policy p
               WHERE p.polrelid = c.oid
             UNION ALL SELECT concat_ws(' ', 'security', c.relrowsecurity, c.relforcerowsecurity, c.relacl)
             UNION ALL SELECT concat_ws(' ', 'leaf', l.relpersistence, l.reloptions) FROM pg_class l
               WHERE l.oid IN (SELECT rem.rem_leaves(c.oid))) d""",
        list(LARGE_TABLES),
    )
    described: dict[str, set[str]] = {}
    for name, text in rows:
        described.setdefault(name, set()).add(text)
    return described


async def test_divided_tables_have_everything_that_plain_ones_have(divided_sql: Connection) -> None:
    async with fresh_database("template1") as plain_dsn:
        await migrate(plain_dsn)
        plain_sql = await asyncpg.connect(plain_dsn, server_settings={"search_path": "rem, public"})
        plain = await describe_tables(plain_sql)
        await plain_sql.close()
    divided = await describe_tables(divided_sql)
    assert set(plain) == set(LARGE_TABLES)
    for name in LARGE_TABLES:
        assert divided[name] == plain[name], divided[name] ^ plain[name]
    assert "leaf u" in divided["kv_store"]
    counts = await divided_sql.fetch(
        "SELECT inhparent::regclass::text, count(*) FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhparent "
        "WHERE c.relkind = 'p' GROUP BY 1"
    )
    assert {row[0]: row[1] for row in counts} == dict.fromkeys(LARGE_TABLES, PARTITIONS)


async def test_rights_and_comments_of_a_table_are_kept(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    sql = await asyncpg.connect(empty_dsn, server_settings={"search_path": "rem, public"})
    await sql.execute("COMMENT ON TABLE messages IS 'Everything that was said.'")
    await sql.execute("COMMENT ON COLUMN messages.role IS 'Who said it.'")
    await sql.execute("GRANT SELECT ON messages TO pg_read_all_settings")
    await migrate(empty_dsn, PARTITIONS)
    assert await sql.fetchval("SELECT obj_description('messages'::regclass, 'pg_class')") == "Everything that was said."
    assert "Who said it." in [
        row[0] for row in await sql.fetch("SELECT description FROM pg_description WHERE objsubid > 0")
    ]
    assert await sql.fetchval("SELECT has_table_privilege('pg_read_all_settings', 'messages', 'SELECT')")
    assert not await sql.fetchval("SELECT has_table_privilege('pg_read_all_settings', 'messages', 'INSERT')")
    await sql.close()


async def store_tenants(rem: Rem) -> None:
    """Store rows of the same names in several tenants, and index them."""
    for tenant in TENANTS:
        store = rem.for_user(USER, tenant=tenant).store
        edges = [Edge(dst="harbour", rel_type="near")]
        await store.upsert(
            Resource(name="Boat", content=f"The boat of {tenant} has a torn mainsail.", graph_edges=edges)
        )
        await store.upsert(Resource(name="Harbour", content=f"The harbour of {tenant} opens at nine."))
        memory = rem.for_user(USER, tenant=tenant).sessions
        session = await memory.create_session()
        text = f"My colleague Sarah Chen <sarah.chen@{tenant}.com> repairs the mainsail for me on Friday."
        await memory.append(session.id, [NewMessage(role=Role.USER, content=text)])
    await rem.index()


async def test_every_verb_answers_from_its_own_tenant(divided: Rem, divided_sql: Connection) -> None:
    await store_tenants(divided)
    used = await divided_sql.fetchval("SELECT count(DISTINCT tableoid) FROM resources")
    assert 1 < used <= PARTITIONS
    for tenant in TENANTS:
        for text in (
            "LOOKUP boat",
            "FUZZY boatt",
            'SEARCH "a torn sail" FROM resources',
            "TRAVERSE boat DEPTH 1",
            "SELECT content FROM resources ORDER BY name",
        ):
            result = await divided.for_user(USER, tenant=tenant).query(text)
            found = str(result.hits or result.rows)
            assert tenant in found, text
            assert not any(other in found for other in TENANTS if other != tenant), text
    assert (await check_mirrors(divided.database)).is_exact
    with pytest.raises(RemError):
        await divided.for_user(USER, tenant="acme").query("SELECT * FROM rem_partitions.resources_0")


async def test_role_of_the_sql_verb_cannot_enter_the_partitions(divided: Rem, divided_sql: Connection) -> None:
    await divided.for_user(USER).query("SELECT name FROM resources")
    role = await divided_sql.fetchval("SELECT role_name FROM sql_access")
    assert not await divided_sql.fetchval("SELECT has_schema_privilege($1, 'rem_partitions', 'USAGE')", role)
    assert not await divided_sql.fetchval(
        "SELECT bool_or(has_any_column_privilege($1, c.oid, 'SELECT')) FROM pg_class c "
        "WHERE c.relnamespace = 'rem_partitions'::regnamespace AND c.relkind = 'r'",
        role,
    )


async def query_and_list_scans(rem: Rem, sql: Connection, text: str) -> dict[str, int]:
    """Run a query of one tenant, and return how many partitions of each table it read. The pool has one connection."""
    # The first calls also read the catalogue of types and plan the statements.
    assert (await rem.for_user(USER, tenant="acme").query(text)).count
    async with rem.database.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    await sql.execute("SELECT pg_stat_reset()")
    assert (await rem.for_user(USER, tenant="acme").query(text)).count
    async with rem.database.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    rows = await sql.fetch(
        r"""SELECT regexp_replace(relname, '_\d+$', ''), count(*) FROM pg_stat_user_tables
            WHERE schemaname = 'rem_partitions' AND coalesce(seq_scan, 0) + coalesce(idx_scan, 0) > 0 GROUP BY 1"""
    )
    return {row[0]: row[1] for row in rows}


async def test_lookup_and_search_read_one_partition(divided_dsn: str, divided_sql: Connection) -> None:
    async with Rem.open(settings_for(divided_dsn, pool_min_size=1, pool_max_size=1)) as rem:
        await store_tenants(rem)
        assert await query_and_list_scans(rem, divided_sql, "LOOKUP boat") == {"kv_store": 1}
        scanned = await query_and_list_scans(rem, divided_sql, 'SEARCH "a torn sail" FROM resources')
    assert {"passages", "resources"} <= set(scanned)
    assert set(scanned.values()) == {1}, scanned


async def test_search_by_meaning_uses_the_vector_index_of_one_partition(divided: Rem, divided_sql: Connection) -> None:
    await store_tenants(divided)
    definitions = await divided_sql.fetch(
        "SELECT indexdef FROM pg_indexes WHERE indexname LIKE 'passages_embedding_1%'"
    )
    assert sum("rem_partitions" in row[0] and "hnsw" in row[0] for row in definitions) == PARTITIONS
    await divided_sql.execute(
        "SET enable_seqscan = off; SET enable_sort = off; SET plan_cache_mode = force_generic_plan"
    )
    await divided_sql.execute(
        """PREPARE nearest (text, text, halfvec) AS SELECT p.id FROM passages p
           WHERE p.model_id = 1 AND p.tenant_id = $1 AND p.owner = $2
           ORDER BY p.embedding::halfvec(384) <=> $3::halfvec(384) LIMIT 5"""
    )
    vector = await divided_sql.fetchval("SELECT embedding::text FROM passages WHERE tenant_id = 'acme' LIMIT 1")
    rows = await divided_sql.fetch(f"EXPLAIN (ANALYZE, COSTS OFF) EXECUTE nearest ('acme', '{USER}', '{vector}')")
    plan = "\n".join(row[0] for row in rows)
    assert f"Subplans Removed: {PARTITIONS - 1}" in plan
    assert "Index Scan using passages_embedding_1_" in plan


async def test_dreams_and_forgetting_work_with_partitions(divided: Rem, divided_sql: Connection) -> None:
    await store_tenants(divided)
    store = divided.for_user(USER, tenant="acme").store
    await divided.dreamer().dream(store.scope)
    assert "sarah-chen" in [person for moment in await store.find(Moment) for person in moment.present_persons]
    assert await divided_sql.fetchval("SELECT count(*) FROM statements WHERE tenant_id = 'acme'")
    before = await divided_sql.fetchval("SELECT count(*) FROM resources WHERE tenant_id <> 'acme'")
    report = await divided.for_user(USER, tenant="acme").erase_user()
    assert report.is_applied
    for table in (*LARGE_TABLES, "sessions"):
        assert await divided_sql.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = 'acme'") == 0, table
    assert await divided_sql.fetchval("SELECT count(*) FROM resources WHERE tenant_id <> 'acme'") == before
    samples = await divided_sql.fetchval(
        "SELECT string_agg(most_common_vals::text, ' ') FROM pg_stats WHERE schemaname ~ '^rem'"
    )
    assert "boat of acme" not in (samples or "")


async def test_violated_keys_have_the_same_errors(divided: Rem) -> None:
    store: Store = divided.for_user(USER, tenant="acme").store
    boat = await store.upsert(Resource(name="Boat"))
    ship = await store.upsert(Resource(name="Ship"))
    with pytest.raises(ConflictError, match="Another row of the owner already has this key: boat"):
        await store.upsert(ship.model_copy(update={"name": "Boat"}))
    with pytest.raises(ConflictError, match="The id is not available"):
        await divided.for_user("bob@example.com", tenant="acme").store.upsert(Resource(id=boat.id, name="Stolen"))


async def test_custom_type_gets_partitions_too(divided: Rem, divided_sql: Connection) -> None:
    await divided.register(Recipe)
    assert await divided_sql.fetchval("SELECT count(*) FROM rem_leaves('rem.recipes')") == PARTITIONS
    for tenant in TENANTS:
        await divided.for_user(USER, tenant=tenant).store.upsert(Recipe(name="Bread", steps=f"Knead as {tenant} does."))
        assert tenant in str((await divided.for_user(USER, tenant=tenant).query("LOOKUP bread")).hits)
    assert (await check_mirrors(divided.database)).is_exact


async def test_backup_of_divided_tables_is_restored_with_partitions(divided_dsn: str, tmp_path: Path) -> None:
    async with Rem.open(settings_for(divided_dsn)) as rem:
        await fill(rem)
        await store_tenants(rem)
    before = await read_all_rows(divided_dsn)
    await back_up(settings_for(divided_dsn), tmp_path / "memory.backup")
    async with fresh_database("template1") as target:
        await restore(settings_for(target), tmp_path / "memory.backup")
        assert await read_all_rows(target) == before
        async with Rem.open(settings_for(target)) as rem:
            assert (await rem.for_user(USER, tenant="acme").query("LOOKUP boat")).count == 1
            async with rem.database.connection() as connection:
                assert await count_partitions(connection) == PARTITIONS
                sizes = await connection.fetch("SELECT entity_type, size_bytes FROM rem.rem_table_sizes()")
    assert all(row["size_bytes"] > 0 for row in sizes)


async def test_migrating_again_changes_nothing(divided_dsn: str, divided_sql: Connection) -> None:
    before = await divided_sql.fetch("SELECT oid, xmin FROM pg_class WHERE relnamespace::regnamespace::text ~ '^rem'")
    for partitions in (None, PARTITIONS):
        assert await migrate(divided_dsn, partitions) == []
    after = await divided_sql.fetch("SELECT oid, xmin FROM pg_class WHERE relnamespace::regnamespace::text ~ '^rem'")
    assert after == before


async def test_tables_with_rows_are_not_divided(empty_dsn: str) -> None:
    await migrate(empty_dsn)
    async with Rem.open(settings_for(empty_dsn)) as rem:
        await rem.for_user(USER).store.upsert(Resource(name="Boat"))
        with pytest.raises(ConflictError, match=r"resources have rows.*docs/database\.md"):
            await migrate(empty_dsn, PARTITIONS)
        assert (await rem.for_user(USER).query("LOOKUP boat")).count == 1


async def test_other_numbers_are_refused(divided_dsn: str) -> None:
    with pytest.raises(ConflictError, match="4 partitions already"):
        await migrate(divided_dsn, 8)
    with pytest.raises(InvalidInputError, match="2 to 256"):
        await migrate(divided_dsn, 1)


async def test_more_partitions_than_the_server_can_lock_are_refused(empty_dsn: str) -> None:
    with pytest.raises(InvalidInputError, match=r"max_locks_per_transaction to \d+ or more"):
        await migrate(empty_dsn, 256)


def test_command_divides_a_new_database(home: Path) -> None:
    settings = {"REM_HOME": str(home)}
    assert "Applied" in rem("db", "migrate", "--partitions", "3", settings=settings).stdout
    assert "Partitions  3" in rem("db", "status", settings=settings).stdout
    assert "3 partitions already" in rem("db", "migrate", "--partitions", "5", settings=settings).stderr
