"""The schema can be distributed by tenant: keys hold the tenant, and requests of users touch the rows of one tenant."""

from __future__ import annotations

from typing import TypeAlias

import asyncpg
from asyncpg.connection import LoggedQuery

from rem.app import Rem
from rem.models import Edge, Resource, Role
from rem.sessions.message import NewMessage
from tests.conftest import settings_for

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
TENANT = "acme"
USER = "alice@example.com"
SHARED_TABLES = {
    "embedding_models": "a few rows, which all tenants read: a reference table",
    "entity_types": "the description of the tables: a reference table",
    "installation": "one row for the database",
    "installed_functions": "one row, of the migrator",
    "migrations": "of the migrator",
    "sql_access": "one row, the login of the SQL verb",
}
"""Tables without a tenant, each with the reason."""
CONTROL_STATEMENTS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET ")


async def test_every_table_has_a_tenant_or_a_reason(sql: Connection) -> None:
    rows = await sql.fetch(
        """SELECT c.relname::text AS name, coalesce(a.attnotnull, false) AS has_tenant,
                  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique) AS has_key
           FROM pg_class c
           LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
           WHERE c.relnamespace = 'rem'::regnamespace AND c.relkind IN ('r', 'p')"""
    )
    assert {row["name"] for row in rows if not row["has_tenant"]} == set(SHARED_TABLES)
    # Deltas are only added and folded, so nothing has to find one of them again.
    without_key = {row["name"] for row in rows if row["has_tenant"] and not row["has_key"]}
    assert without_key == {"passage_total_deltas", "term_count_deltas"}


async def test_other_schemas_are_those_that_stay_on_one_server(sql: Connection) -> None:
    schemas = await sql.fetch(
        """SELECT DISTINCT n.nspname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"""
    )
    # A token is found before its tenant is known, and all tenants share the queue of jobs.
    assert {row["name"] for row in schemas} == {"rem", "rem_auth", "rem_jobs"}


async def test_keys_of_tenants_hold_the_tenant(sql: Connection) -> None:
    unique = await sql.fetch(
        """SELECT c.relname::text AS table_name, pg_get_indexdef(i.indexrelid) AS definition,
                  (SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id')
                    = ANY (i.indkey::int2[]) AS holds_tenant
           FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
           WHERE c.relnamespace = 'rem'::regnamespace AND i.indisunique"""
    )
    assert [
        row["definition"] for row in unique if row["table_name"] not in SHARED_TABLES and not row["holds_tenant"]
    ] == []
    constraints = await sql.fetch(
        """SELECT conrelid::regclass::text AS source, confrelid::regclass::text AS target, contype::text AS type,
                  pg_get_constraintdef(oid) AS definition
           FROM pg_constraint WHERE connamespace = 'rem'::regnamespace AND contype IN ('f', 'x')"""
    )
    assert len(constraints) > 5
    for row in constraints:
        # An exclusion constraint cannot be distributed.
        assert row["type"] == "f", row["definition"]
        assert row["definition"].startswith("FOREIGN KEY (tenant_id, "), row["definition"]
        assert "(tenant_id, " in row["definition"].partition(" REFERENCES ")[2], row["definition"]
        assert row["target"] not in SHARED_TABLES, row["definition"]


async def test_requests_of_a_user_name_the_tenant_in_each_statement(dsn: str) -> None:
    # One connection, so that all statements are seen.
    async with Rem.open(settings_for(dsn, pool_min_size=1, pool_max_size=1)) as rem:
        # The first use of a database records its embedding model, and the driver asks for its types.
        await use_memory(rem, "another tenant")
        queries: list[LoggedQuery] = []
        async with rem.database.connection() as connection:
            connection.add_query_logger(queries.append)
        await use_memory(rem, TENANT)
        async with rem.database.connection() as connection:
            connection.remove_query_logger(queries.append)
    statements = [(query.query, query.args) for query in queries if not query.query.startswith(CONTROL_STATEMENTS)]
    assert len(statements) > 15
    across_tenants = [
        query
        for query, arguments in statements
        if TENANT not in str(arguments) and not any(table in query for table in SHARED_TABLES)
    ]
    assert across_tenants == []


async def use_memory(rem: Rem, tenant: str) -> None:
    """Write, look up, search, follow edges and talk, as requests of one user do."""
    store = rem.for_user(USER, tenant=tenant).store
    await store.upsert(Resource(name="Sarah Chen", content="Sarah owns the green boat."))
    await store.upsert(Resource(name="Report", content="Fine.", graph_edges=[Edge(dst="sarah-chen")]))
    assert await store.lookup("report")
    for text in ("LOOKUP report", "FUZZY sara", 'SEARCH "green boat" FROM resources', "TRAVERSE report"):
        assert (await rem.for_user(USER, tenant=tenant).query(text)).count, text
    memory = rem.for_user(USER, tenant=tenant).sessions
    session = (await memory.create_session("Be kind.")).id
    await memory.save_message(session, NewMessage(role=Role.USER, content="I like the green boat."))
    await store.delete(await store.upsert(Resource(name="Old", content="x")))
